package limit

import (
	"os"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
)

// ReadQuotas accepts no negative quota for any principal.
func FuzzQuotas(f *testing.F) {
	for _, s := range []string{
		"[quota]\ncalls_per_minute = 600\ncalls_per_day = 50000\n[quota.principals.\"ci\"]\ncalls_per_minute = 6000\n", "[quota]\ncalls_per_minute = -1\n",
		"[quota.principals.ci]\ncalls_per_day = -9223372036854775808\n", "[quota]\ncalls = 1\n", "quota = 1\n", "[quota]\ncalls_per_day = 99999999999999999999\n", "[other]\n",
	} {
		f.Add([]byte(s))
	}
	h := home.At(f.TempDir())
	f.Fuzz(func(t *testing.T, text []byte) {
		os.Remove(h.Config()) // overwriting a file can wait for the disk
		if err := os.WriteFile(h.Config(), text, 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := ReadQuotas(h)
		if err != nil || q == nil {
			return
		}
		for _, name := range []string{"ci", "", "unknown"} {
			if own := q.of(name); own.PerMinute < 0 || own.PerDay < 0 {
				t.Errorf("the quota of %q is %+v", name, own)
			}
		}
		for name := range q.Principals {
			if own := q.of(name); own.PerMinute < 0 || own.PerDay < 0 {
				t.Errorf("the quota of %q is %+v", name, own)
			}
		}
	})
}
