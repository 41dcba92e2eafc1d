package rawjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestValid(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	for in, want := range map[string]bool{
		`{}`: true, ` [ ] `: true, `"x"`: true, `0`: true, `-0.5e+10`: true, `true`: true, `null`: true,
		`{"a":[1,{"b":"c"}],"a":2}`: true, `"\ud800"`: true, `"\"\\\/\b\f\n\r\té"`: true,
		"\"12345678\u00e91234567812345678\"": true, `"123456\"8"`: true,
		``: false, ` `: false, `{`: false, `[1,]`: false, `{"a":1,}`: false, `{"a"}`: false, `{a:1}`: false,
		`01`: false, `-`: false, `1.`: false, `.5`: false, `1e`: false, `+1`: false, `tru`: false, `nul`: false,
		`"`: false, `"\x"`: false, `"\u12g4"`: false, `"\u12`: false, "\"\n\"": false, "\"1234567\x00\"": false,
		"\"\xff\"": false, "\"12345678\xc3\"": false, `{} {}`: false, "\ufeff{}": false, `[1 2]`: false, `{"a" 1}`: false,
		"\x00": false, "[\x00]": false, `"a` + "\x00": false,
		deep(MaxDepth): true, deep(MaxDepth + 1): false, strings.Repeat(`[`, 1e6): false,
	} {
		if got := Valid([]byte(in)); got != want {
			t.Errorf("Valid(%.40q) = %v, want %v", in, got, want)
		}
	}
}

func BenchmarkValid(b *testing.B) {
	for name, valid := range map[string]func([]byte) bool{
		"rawjson":  Valid,
		"jsontext": func(v []byte) bool { return jsontext.Value(v).IsValid(jsontext.AllowDuplicateNames(true)) },
	} {
		for size, text := range map[string]string{"8KiB": strings.Repeat("words of a result ", 455), "64B": "words"} {
			result := []byte(`{"content":[{"type":"text","text":"` + text + `"}],"isError":false}`)
			b.Run(name+"/"+size, func(b *testing.B) {
				b.SetBytes(int64(len(result)))
				for b.Loop() {
					if !valid(result) {
						b.Fatal("the result is invalid")
					}
				}
			})
		}
	}
}

// A string that does not end is invalid, whatever its length is. Strings are read several bytes at a time.
func TestUnfinishedString(t *testing.T) {
	for n := range 200 {
		for _, text := range []string{strings.Repeat("x", n), strings.Repeat("x", n) + "\\", strings.Repeat("ü", n)} {
			for _, data := range []string{`"` + text, `{"` + text, `{"a":"` + text, `["x","` + text} {
				if Valid([]byte(data)) || Lookup([]byte(data), "a", "b") != nil {
					t.Fatalf("%q is valid", data)
				}
			}
		}
	}
}

func TestLookup(t *testing.T) {
	const doc = ` {"a": {"b" :[1, {"c":2}], "\u0064": "x"}, "a": 3} `
	for path, want := range map[string]string{
		"a/b": `[1, {"c":2}]`, "a/d": `"x"`, "a/c": "", "b": "", "a/b/0": "", "": doc,
	} {
		var names []string
		if path != "" {
			names = strings.Split(path, "/")
		}
		if got := Lookup([]byte(doc), names...); string(got) != want {
			t.Errorf("Lookup(%s) = %s, want %s", path, got, want)
		}
	}
}

// Members finds nothing in an array, and Elements finds nothing in an object.
func TestWalkReadsItsOwnKind(t *testing.T) {
	Members([]byte(`[1]`), func(name string, _ jsontext.Value) { t.Errorf("member %s of an array", name) })
	Elements([]byte(`{"a":1}`), func(value jsontext.Value) { t.Errorf("element %s of an object", value) })
	for in, want := range map[string]string{
		`{"a":1}`: "", `{}`: "", `{"a":1} x`: "after the end", `{"a":}`: "invalid", `1`: "neither", `{"a":1`: "invalid",
	} {
		w := Walk([]byte(in))
		for _, _, ok := w.Member(); ok; _, _, ok = w.Member() {
		}
		if got := w.Problem(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("the problem of %s is %q, want %q", in, got, want)
		}
	}
}

func TestTwice(t *testing.T) {
	many := `{"n0":0`
	for i := range 48 {
		many += fmt.Sprintf(`,"m%d":{"a":1,"a":2}`, i)
	}
	for in, want := range map[string]bool{
		`{}`: false, `[{"a":1},{"a":2}]`: false, `"a"`: false, ``: false,
		`{"content":[{"a":1,"a":2}],"isError":true}`:                            false, // Twice compares only the names of the outer object
		` {"isError":true,"isError":false}`:                                     true,
		`{"isError":true,"x":{},"isErr\u006fr":false}`:                          true,
		`{"\u0069sError":true,"isError":false}`:                                 true,
		`{"isError":true,"ISERROR":false}`:                                      true, // encoding/json ignores case
		`{"isError":true,"i\u017fError":false}`:                                 true, // encoding/json also folds the long s (U+017F)
		`{"\ud800":1,"\ud801":2}`:                                               true, // both names decode to the replacement character U+FFFD
		`{"a":1,"a\u0000":2}`:                                                   false,
		`{"a":"\\\"","b":"}{\"a\":1,\\","c" : [ "]" , {"a":1} ] , "d":-1.5e3 }`: false,
		`{"a":"\\","b":[["\\\""],"a"],"c":null , "a" : true}`:                   true,
		many + `}`:             false,
		many + `,"n0":1}`:      true,
		many + `,"N\u0030":1}`: true,
		many + `,"m40":1}`:     true,
	} {
		if got := Twice([]byte(in)); got != want {
			t.Errorf("Twice(%.60s) = %v, want %v", in, got, want)
		}
	}
}

func BenchmarkTwice(b *testing.B) {
	result := []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("words of a result ", 455) + `"}],"isError":false}`)
	b.SetBytes(int64(len(result)))
	b.ReportAllocs()
	for b.Loop() {
		if Twice(result) {
			b.Fatal("Twice returned true for an object without duplicate names")
		}
	}
}

// FuzzTwice compares Twice with the number of members that encoding/json finds in the object.
func FuzzTwice(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":{"b":1}}`, `{"a":1,"\u0061":2}`, `{"a":1,"a":2}`, `{"":1,"é":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var members map[string]json.RawMessage
		if !Valid(object) || json.Unmarshal(object, &members) != nil || members == nil {
			t.Skip()
		}
		n := 0
		w := Walk(object)
		for _, _, ok := w.Member(); ok; _, _, ok = w.Member() {
			n++
		}
		if n > len(members) && !Twice(object) {
			t.Errorf("Twice returned false for %d members with %d different names: %s", n, len(members), object)
		}
	})
}
