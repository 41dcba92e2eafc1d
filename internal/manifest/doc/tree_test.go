package doc

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Strings obtained from a tree stay valid after Release, including strings with escapes. A tree that reuses the
// memory of another tree contains none of its values.
func TestReleasedTrees(t *testing.T) {
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			var taken []string
			for i := range 100 {
				name := fmt.Sprintf("%d-%d", worker, i)
				src := diag.NewSource("x", fmt.Sprintf(`{"plain": "a%s", "\u006bey": "\u0062%s", "list": [%s1]}`, name, name, strings.Repeat("1,", i)))
				tree, ok := ParseJSON(src, diag.NewReporter(src, false))
				root := tree.Root()
				if !ok || root.Len() != 3 || root.Get("list").Len() != i+1 {
					t.Errorf("%s: got ok = %t and %d members, want ok and 3 members", src.Text, ok, root.Len())
				}
				taken = append(taken, root.Get("plain").Text()+root.Get("key").Text())
				tree.Release()
			}
			for i, text := range taken {
				if want := fmt.Sprintf("a%d-%db%d-%d", worker, i, worker, i); text != want {
					t.Errorf("after Release: got %q, want %q", text, want)
				}
			}
		})
	}
	wait.Wait()
}

// The inputs end in spaces because the parser checks eight bytes at a time: it always treats a string in the last few
// bytes of a file as not plain.
func TestOdd(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", `{"a": "b", "c": [1, true, null, "d"]}` + "\n      ", ""},
		{"beyond ASCII", `{"a": "é", "ü": 1}` + "\n      ", "/a /ü"},
		{"escapes", `{"a": "\u0041", "\u0042": "c"}` + "\n      ", "/a /B"},
		{"key and text", `{"é": "é", "b": ["x", "\n"]}` + "\n      ", "/é /b/1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := diag.NewSource("x", tt.in)
			tree, _ := ParseJSON(src, diag.NewReporter(src, false))
			var got []string
			for v := range tree.Odd() {
				got = append(got, v.Pointer())
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
		})
	}
}

func TestOddTOML(t *testing.T) {
	tree, ok, found := parseTOML("a = 'b'\n\"quoted\" = 1\nc = \"é\"\nd = \"\\u0041\"\n[t]\nx = true\ny = [\"z\", '''\nw''']\n")
	var got []string
	for v := range tree.Odd() {
		got = append(got, v.Pointer())
	}
	if s := strings.Join(got, " "); s != "/quoted /c /d /t/y/1" || !ok || found != nil {
		t.Errorf("got %s, %t, %v", s, ok, found)
	}
}
