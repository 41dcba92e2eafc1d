package doc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

func parseTOML(text string) (*Tree, bool, []string) {
	src := diag.NewSource("test.toml", text)
	r := diag.NewReporter(src, false)
	tree, ok := ParseTOML(src, r)
	var out []string
	for _, d := range r.Finish() {
		out = append(out, fmt.Sprintf("%s %d:%d", d.Code, d.Line, d.Column))
	}
	return tree, ok, out
}

func TestTOMLTree(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"tables", "a = 1\n[t]\nb = \"x\"\n[t.u]\nc = true\n[v]\n", `{"a":1,"t":{"b":"x","u":{"c":true}},"v":{}}`},
		{"reopened", "[a.b]\nx = 1\n[c]\n[a.d]\ny = 2\n", `{"a":{"b":{"x":1},"d":{"y":2}},"c":{}}`},
		{"dotted", "a.b.c = 1\na.b.d = 2\n", `{"a":{"b":{"c":1,"d":2}}}`},
		{"inline", "p = { x = 1, y.z = [1, \"a\", { q = false }] }\n", `{"p":{"x":1,"y":{"z":[1,"a",{"q":false}]}}}`},
		{"lists of tables", "[[s]]\nn = 1\n[[s]]\nn = 2\n[s.t]\nm = 3\n", `{"s":[{"n":1},{"n":2,"t":{"m":3}}]}`},
		{"numbers", "a = 0x1F\nb = 1_000\nc = -5\nd = 0o17\ne = 0b101\nf = 1.50\ng = +3\n", `{"a":31,"b":1000,"c":-5,"d":15,"e":5,"f":1.5,"g":3}`},
		{"strings", "a = '''\nx'''\nb = \"\\u00e9\"\nc = 'C:\\x'\n", `{"a":"x","b":"é","c":"C:\\x"}`},
		{"dates", "a = 2026-11-15\n", `{"a":"2026-11-15"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree, ok, found := parseTOML(tt.in)
			if got := string(tree.Root().Canonical()); got != tt.want || !ok || found != nil {
				t.Errorf("got %s, %t, %v; want %s", got, ok, found, tt.want)
			}
		})
	}
}

func TestTOMLProblems(t *testing.T) {
	tests := []struct {
		name, in string
		complete bool
		want     []string
	}{
		{"syntax", "[agent]\nid = \n", false, []string{"AM006 2:6"}},
		{"duplicate keys", "a = 1\na = 2\n[t]\nb = {c = 1, c = 2}\n", true, []string{"AM009 2:1", "AM009 4:13"}},
		{"duplicate tables", "[a]\n[a]\nx = 1\n[[a]]\n", true, []string{"AM009 2:2", "AM009 4:3"}},
		{"closed inline table", "a = {b = 1}\n[a.c]\n", true, []string{"AM009 2:2"}},
		{"dotted into header", "[a.b]\n[a]\nb.c = 1\n", true, []string{"AM009 3:1"}},
		{"bad number", "a = 01\n", false, []string{"AM006 1:5"}},
		{"json", "{\"a\": 1}", false, []string{"AM006 1:1"}},
		{"largest integer", "a = 9223372036854775807\n", true, nil},
		{"too large", "a = 9223372036854775808\n", false, []string{"AM006 1:5"}},
		{"infinite", "a = inf\nb = nan\n", true, []string{"AM012 1:5", "AM012 2:5"}},
		{"deep", "a = " + strings.Repeat("[", 500) + strings.Repeat("]", 500), false, []string{"AM010 1:1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, ok, got := parseTOML(tt.in)
			if ok != tt.complete || fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got complete=%t %v, want %t %v", ok, got, tt.complete, tt.want)
			}
		})
	}
}

func TestTOMLManyTables(t *testing.T) {
	var b strings.Builder
	const n = 100_000
	for i := range n {
		fmt.Fprintf(&b, "[t%d]\na = 1\n", i)
	}
	tree, ok, found := parseTOML(b.String())
	if !ok || found != nil || tree.Root().Len() != n {
		t.Errorf("got %d tables, %t, %v", tree.Root().Len(), ok, found)
	}
}

// FuzzTOML compares the tree with the result of go-toml's own decoder.
func FuzzTOML(f *testing.F) {
	for _, s := range []string{"a = 1\n[t]\nb = 'x'", "[[a]]\n[[a]]\n[a.b]\n", "a.b = {c = [1, {d = 2}]}", "a = inf", "x = 1979-05-27T07:32:00Z", "a = \"\"\"\n\"\"\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		src := diag.NewSource("fuzz.toml", string(b))
		r := diag.NewReporter(src, false)
		tree, ok := ParseTOML(src, r)
		found := r.Finish()
		for _, d := range found {
			src.Frame(d)
		}
		var want map[string]any
		err := toml.Unmarshal(b, &want)
		clean := ok && r.Errors() == 0
		if clean && err != nil {
			t.Fatalf("ParseTOML accepts %q, but go-toml returns an error: %v", b, err)
		}
		if clean {
			compareTOML(t, tree.Root(), want)
		}
		for _, d := range found {
			if err == nil && (d.Code == diag.BadTOML.Code || d.Code == diag.DuplicateKey.Code) {
				t.Fatalf("ParseTOML rejects %q, which go-toml accepts: %s", b, d.Message)
			}
		}
	})
}

func compareTOML(t *testing.T, v Value, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		if !v.Is(Object) || v.Len() != len(want) {
			t.Fatalf("%q: %s of %d, want %d members", v.Pointer(), v.Kind(), v.Len(), len(want))
		}
		for m := range v.Each() {
			w, ok := want[m.Key()]
			if !ok {
				t.Fatalf("go-toml does not return the member %q", m.Pointer())
			}
			compareTOML(t, m, w)
		}
	case []any:
		if !v.Is(Array) || v.Len() != len(want) {
			t.Fatalf("%q: %s of %d, want %d items", v.Pointer(), v.Kind(), v.Len(), len(want))
		}
		i := 0
		for m := range v.Each() {
			compareTOML(t, m, want[i])
			i++
		}
	case string:
		if !v.Is(String) || v.Text() != want {
			t.Fatalf("%q: %q, want %q", v.Pointer(), v.Text(), want)
		}
	case int64:
		if n, ok := v.Int(); v.Text() != "0" && (!ok || n != want) {
			t.Fatalf("%q: %s, want %d", v.Pointer(), v.Text(), want)
		}
	case bool:
		if !v.Is(Bool) || v.Text() != fmt.Sprint(want) {
			t.Fatalf("%q: %s, want %t", v.Pointer(), v.Text(), want)
		}
	}
}

// The integers of TOML have 64 bits, so their digests differ where doubles would be equal.
func TestLargeIntegersHaveTheirDigests(t *testing.T) {
	a, _, _ := parseTOML("a = 9007199254740992")
	b, _, _ := parseTOML("a = 9007199254740993")
	if a.Digest() == b.Digest() || string(b.Root().Canonical()) != `{"a":9007199254740993}` {
		t.Errorf("got the canonical form %s (same digest: %t), want all digits of the integer and another digest",
			b.Root().Canonical(), a.Digest() == b.Digest())
	}
}
