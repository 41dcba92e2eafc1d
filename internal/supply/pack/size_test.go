package pack

import "testing"

func TestSize(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	small := stored(t, s, nil)
	want := Want{Digest: small.Digest, Tree: small.Tree}
	size := s.Size(want)
	large := stored(t, s, map[string]string{"lib/c.js": "", "lib/d.js": ""})
	if more := s.Size(Want{Digest: large.Digest, Tree: large.Tree}); size == 0 || more <= size {
		t.Errorf("the size is %d, and with more files %d", size, more)
	}
	for name, want := range map[string]Want{
		"another archive": {Digest: digestOf([]byte("another"))},
		"another tree":    {Digest: small.Digest, Tree: digestOf([]byte("another"))},
		"no digest":       {},
	} {
		if got := s.Size(want); got != 0 {
			t.Errorf("%s has the size %d", name, got)
		}
	}
}
