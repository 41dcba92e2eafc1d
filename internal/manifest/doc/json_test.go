package doc

import (
	"bytes"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// problems parses a JSON text and lists its problems as "code line:column".
func problems(t *testing.T, text string) (*Tree, bool, []string) {
	t.Helper()
	src := diag.NewSource("test.json", text)
	r := diag.NewReporter(src, false)
	tree, ok := ParseJSON(src, r)
	var out []string
	for _, d := range r.Finish() {
		out = append(out, fmt.Sprintf("%s %d:%d", d.Code, d.Line, d.Column))
	}
	return tree, ok, out
}

func TestJSONProblems(t *testing.T) {
	tests := []struct {
		name, in string
		complete bool
		want     []string
	}{
		{"valid", `{"a": [1, -2.5e3, "x\n\u00e9\ud83d\ude00", true, false, null], "b": {}}`, true, nil},
		{"comments", "{ // one\n\"a\": 1 /* two */ }", true, []string{"AM007 1:3", "AM007 2:8"}},
		{"open comment", "{ /* \"a\": 1 }", false, []string{"AM005 1:3"}},
		{"trailing commas", "{\"a\": [1, 2,],\n}", true, []string{"AM008 1:12", "AM008 1:14"}},
		{"missing comma", "{\"a\": 1\n \"b\": 2}", true, []string{"AM005 1:8"}},
		{"two commas", "{\"a\": 1,, \"b\": [,2]}", true, []string{"AM005 1:9", "AM005 1:17"}},
		{"duplicate keys", "{\"a\": 1,\n\"b\": {\"c\": 1, \"c\": 2},\n\"a\": 3}", true, []string{"AM009 2:15", "AM009 3:1"}},
		{"single quotes", `{'a': 'b'}`, true, []string{"AM005 1:2", "AM005 1:7"}},
		{"unclosed single quote", `{"name": '`, false, []string{"AM005 1:10"}},
		{"unquoted key", `{a: 1}`, true, []string{"AM005 1:2"}},
		{"equals", `{"a" = 1}`, true, []string{"AM005 1:6"}},
		{"foreign words", `{"a": True, "b": None, "c": NaN, "d": yes}`, true, []string{"AM005 1:7", "AM005 1:18", "AM005 1:29", "AM005 1:39"}},
		{"bad numbers", `[01, 1., .5, +1, 0x10, 1e, -, 1_000]`, true, []string{"AM005 1:2", "AM005 1:6", "AM005 1:10", "AM005 1:14", "AM005 1:18", "AM005 1:24", "AM005 1:28", "AM005 1:31"}},
		{"inexact numbers", `[9007199254740992, 9007199254740993, -9007199254740993, 1e400, 0.1234567890123456789]`, true, []string{"AM012 1:20", "AM012 1:38", "AM012 1:57", "AM012 1:64"}},
		{"numbers that a double rounds", `[1.0000000000000001, 59999.999999999999, 1e-400, 0.1, 123456.789012345, 1e3, 5.0e0, 100]`, true, []string{"AM012 1:2", "AM012 1:22", "AM012 1:42"}},
		{"bad escape", `"\x \d"`, true, []string{"AM005 1:2", "AM005 1:5"}},
		{"short escape", `"\u12"`, true, []string{"AM005 1:2"}},
		{"lone surrogates", `"\ud800 \udc00x \ud83d\u0041"`, true, []string{"AM013 1:2", "AM013 1:9", "AM013 1:17"}},
		{"raw tab", "\"a\tb\"", true, []string{"AM005 1:3"}},
		{"open string", "{\"a\": \"b\n}", false, []string{"AM005 1:7"}},
		{"open object", "{\"a\": {\"b\": 1}", false, []string{"AM005 1:15"}},
		{"open list", "[1, 2", false, []string{"AM005 1:6"}},
		{"nothing", "", false, []string{"AM005 1:1"}},
		{"text after the document", "{} {}", false, []string{"AM005 1:4"}},
		{"no colon", `{"a" 1}`, false, []string{"AM005 1:6"}},
		{"wrong close", `{"a": 1]`, false, []string{"AM005 1:8"}},
		{"columns count characters", `{"é😀": x, "b": y}`, true, []string{"AM005 1:8", "AM005 1:16"}},
		{"lists nested too deeply", strings.Repeat("[", 10_000), false, []string{"AM010 1:101"}},
		{"objects nested too deeply", strings.Repeat(`{"a":`, 10_000), false, []string{"AM010 1:501"}},
		{"too many values", "[" + strings.Repeat("0,", 1_100_000) + "0]", false, []string{"AM011 1:2000000"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, ok, got := problems(t, tt.in)
			if ok != tt.complete || fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got complete=%t %v, want %t %v", ok, got, tt.complete, tt.want)
			}
		})
	}
}

// TestNotPlain puts every byte value at every position of an eight-byte word. The first byte that is not plain must
// be the first marked byte.
func TestNotPlain(t *testing.T) {
	isPlain := func(c byte) bool { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' }
	for c := range 256 {
		for place := range 8 {
			for _, rest := range []byte{'a', ' ', '~', byte(c)} {
				b := bytes.Repeat([]byte{rest}, 8)
				b[place] = byte(c)
				want := 0
				for want < len(b) && isPlain(b[want]) {
					want++
				}
				if got := bits.TrailingZeros64(markNotPlain(loadWord(string(b), 0))) / 8; got != want {
					t.Fatalf("%q: the first marked byte is %d, want %d", b, got, want)
				}
			}
		}
	}
}

func TestPointers(t *testing.T) {
	tree, _, _ := problems(t, `{"a/b": [{"c~d": 1}], "": 2}`)
	var got []string
	for v := range tree.All() {
		got = append(got, v.Pointer())
	}
	want := []string{"", "/a~1b", "/a~1b/0", "/a~1b/0/c~0d", "/"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAbsentValueIsEmpty(t *testing.T) {
	var v Value
	if n, ok := v.Get("a").Get("b").Int(); v.Ok() || v.Len() != 0 || v.Text() != "" || n != 0 || ok {
		t.Error("an absent value is not empty")
	}
	for range v.Each() {
		t.Error("an absent value has children")
	}
}

// TestManyProblems parses files with very many problems. Parsing must not take quadratic time. Without indexes, these
// files take minutes, and the test times out.
func TestManyProblems(t *testing.T) {
	const n = 200_000
	tests := map[string]string{
		"duplicate keys": "{" + strings.Repeat(`"a":1,`, n) + `"a":1}`,
		"late duplicates": func() string {
			var b strings.Builder
			b.WriteString("{")
			for range 2 {
				for i := range n / 2 {
					fmt.Fprintf(&b, `"k%d":1,`, i)
				}
			}
			return b.String() + `"z":1}`
		}(),
		"one line of bad escapes": `["` + strings.Repeat(`é\x`, n) + `"]`,
		"comments":                "[" + strings.Repeat("/**/", n) + "]",
		"missing commas":          "[" + strings.Repeat(`"a" `, n) + "]",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, got := problems(t, text)
			if len(got) != 10_001 {
				t.Errorf("got %d problems, want 10,000 and the count of the rest", len(got))
			}
		})
	}
}

// FuzzJSON compares the parser with the jsontext package. Both must accept the same texts: valid JSON under RFC
// 8259 without duplicate keys. Both must return the same canonical form.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"\u00e9\ud83d\ude00",null],"b":{"":true}}`, "[1,]", "// x\n{}", `{"a":1,"a":2}`, `"\ud800"`, "\x00", "1e400", `{"\u0061":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !utf8.Valid(b) {
			return // manifest.Parse rejects the file before it calls ParseJSON
		}
		src := diag.NewSource("fuzz.json", string(b))
		r := diag.NewReporter(src, false)
		tree, ok := ParseJSON(src, r)
		found := r.Finish()
		for _, d := range found {
			src.Frame(d)
		}
		for v := range tree.All() {
			_ = v.Text() + v.Key() + v.Pointer()
		}
		clean := ok && len(found) == 0
		other := jsontext.Value(bytes.Clone(b))
		valid := other.IsValid()
		if clean && !valid {
			t.Fatalf("ParseJSON accepts %q, which is not JSON", b)
		}
		if valid && !clean {
			for _, d := range found {
				if d.Code != diag.InexactNumber.Code && d.Code != diag.TooDeep.Code && d.Code != diag.TooManyValues.Code {
					t.Fatalf("ParseJSON rejects %q, which is valid JSON: %s %s", b, d.Code, d.Message)
				}
			}
		}
		if clean {
			if err := other.Canonicalize(); err != nil {
				t.Fatal(err)
			}
			if got := tree.Root().Canonical(); !bytes.Equal(got, other) {
				t.Fatalf("canonical form of %q: %q, want %q", b, got, other)
			}
		}
	})
}
