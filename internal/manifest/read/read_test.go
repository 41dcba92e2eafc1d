package read_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// open parses a JSON object for a dialect with a field "name". Other formats call this field
// "title".
func open(t *testing.T, text string) (*read.Reader, doc.Value) {
	t.Helper()
	src := diag.NewSource("test.json", text)
	r := &read.Reader{
		Reporter:    diag.NewReporter(src, false),
		Foreign:     map[string]string{"title": "name"},
		Unknown:     diag.UnknownField,
		UnknownHint: "nothing is close",
		Hints:       map[string]string{"legacy": "this was dropped"},
	}
	tree, ok := doc.ParseJSON(src, r.Reporter)
	if !ok {
		t.Fatalf("%s: %v", text, r.Finish())
	}
	return r, tree.Root()
}

// problems lists the code, pointer, message and hint of every diagnostic.
func problems(r *read.Reader) string {
	var lines []string
	for _, d := range r.Finish() {
		lines = append(lines, strings.Join([]string{d.Code, d.Pointer, d.Message, d.Hint}, "|"))
	}
	return strings.Join(lines, "\n")
}

func TestGetters(t *testing.T) {
	name := func(o *read.Object) any {
		s, ok := o.Text("name", read.Required)
		return fmt.Sprintf("%q %t", s, ok)
	}
	tests := []struct {
		name, in string
		read     func(*read.Object) any
		want     any
		problems string
	}{
		{"text", `{"name": "a"}`, name, `"a" true`, ""},
		{"text of the wrong type", `{"name": 1}`, name, `"" false`, `AM101|/name|"name" must be a string, not a number|put the value in double quotes`},
		{"empty text", `{"name": ""}`, name, `"" false`, `AM105|/name|"name" must not be empty|`},
		{"nothing", `{}`, name, `"" false`, `AM102|/name|"name" is required|add "name"`},
		{
			"misspelled", `{"nmae": "a"}`, name, `"" false`,
			`AM102|/name|"name" is required|is "nmae" meant to be "name"?` + "\n" +
				`AM103|/nmae|unknown field "nmae"|did you mean "name"?`,
		},
		{
			"a field of another format", `{"title": "a"}`, name, `"" false`,
			`AM102|/name|"name" is required|is "title" meant to be "name"?` + "\n" +
				`AM103|/title|unknown field "title"|in this dialect, the field is named "name"`,
		},
		{"unknown", `{"name": "a", "zzz": 1}`, name, `"a" true`, `AM103|/zzz|unknown field "zzz"|nothing is close`},
		{"unknown field with a special hint", `{"name": "a", "legacy": 1}`, name, `"a" true`, `AM103|/legacy|unknown field "legacy"|this was dropped`},
		{"a duplicate key is not an unknown field", `{"name": "a", "name": "b"}`, name, `"a" true`, `AM009|/name|the key "name" already appears on line 1|keep one of the two keys`},
		{"not an object", `[]`, name, `"" false`, `AM101||this must be an object, not a list|write an object: { … }`},
		{
			"enum", `{"kind": "b"}`,
			func(o *read.Object) any {
				s, ok := o.Enum("kind", read.Optional, []string{"a", "b"})
				return fmt.Sprintf("%q %t", s, ok)
			},
			`"b" true`, "",
		},
		{
			"enum by a part of the word", `{"kind": "local"}`,
			func(o *read.Object) any {
				s, ok := o.Enum("kind", read.Optional, []string{"user-local", "hosted"})
				return fmt.Sprintf("%q %t", s, ok)
			},
			`"" false`, `AM104|/kind|"local" is not allowed for "kind"; use user-local or hosted|did you mean "user-local"?`,
		},
		{
			"number", `{"n": 5, "m": 1.5, "k": 11}`,
			func(o *read.Object) any {
				n, ok := o.Int("n", read.Optional, 0, 10)
				_, whole := o.Int("m", read.Optional, 0, 10)
				_, within := o.Int("k", read.Optional, 0, 10)
				return fmt.Sprint(n, ok, whole, within)
			},
			"5 true false false", `AM106|/m|"m" must be a whole number|` + "\n" + `AM106|/k|"k" must be from 0 to 10|`,
		},
		{
			"true", `{"b": true}`,
			func(o *read.Object) any {
				b, ok := o.Bool("b", read.Optional)
				return b && ok
			},
			true, "",
		},
		{
			"texts", `{"l": ["a", "", 1, "b"]}`,
			func(o *read.Object) any { return fmt.Sprintf("%q", o.Texts("l", read.Optional)) },
			`["a" "b"]`, `AM105|/l/1|an entry of "l" is empty|` + "\n" + `AM101|/l/2|this must be a string, not a number|put the value in double quotes`,
		},
		{
			"texts that may be empty", `{"l": ["a", ""]}`,
			func(o *read.Object) any { return fmt.Sprintf("%q", o.AnyTexts("l", read.Optional)) },
			`["a" ""]`, "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, root := open(t, tt.in)
			o := r.Object(root)
			if got := tt.read(o); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			o.Done()
			if got := problems(r); got != tt.problems {
				t.Errorf("reported\n%s\nwant\n%s", got, tt.problems)
			}
		})
	}
}

// An Object tracks its first 64 members in a bit set and stores the first 12 names in an array. It must also read
// objects with more members correctly.
func TestManyMembers(t *testing.T) {
	for _, n := range []int{11, 12, 13, 16, 17, 63, 64, 65, 200} {
		var text []string
		for i := range n {
			text = append(text, fmt.Sprintf(`"key%d": "%d"`, i, i))
		}
		r, root := open(t, "{"+strings.Join(text, ",")+"}")
		o := r.Object(root)
		for i := n - 2; i >= 0; i-- { // request the members in reverse order, except the last one
			if s, _ := o.String(fmt.Sprintf("key%d", i), read.Required); s != fmt.Sprint(i) {
				t.Fatalf("in an object with %d members, key%d is %q", n, i, s)
			}
		}
		if _, ok := o.String("absent", read.Optional); ok {
			t.Errorf("in an object with %d members, the getter finds an absent member", n)
		}
		o.Done()
		want := fmt.Sprintf("unknown field %q", fmt.Sprintf("key%d", n-1))
		if found := r.Finish(); len(found) != 1 || found[0].Message != want {
			t.Errorf("an object with %d members: got %v, want %s", n, found, want)
		}
	}
}

func TestMakeStringsDoesNotOverlap(t *testing.T) {
	r, _ := open(t, `{}`)
	var lists [][]string
	for i := range 40 {
		list := r.MakeStrings(i % 5)
		if list == nil || len(list) != 0 {
			t.Fatalf("list %d contains %v", i, list)
		}
		for range i % 7 { // sometimes append more items than the capacity
			list = append(list, fmt.Sprint(i))
		}
		lists = append(lists, list)
	}
	for i, list := range lists {
		if len(list) != i%7 || slices.ContainsFunc(list, func(s string) bool { return s != fmt.Sprint(i) }) {
			t.Errorf("list %d contains %v", i, list)
		}
	}
}

func TestSeen(t *testing.T) {
	var s read.Seen
	for i := range 100 {
		name := fmt.Sprint(i)
		if s.Has(name) || !s.Add(name) || s.Add(name) || !s.Has(name) {
			t.Fatalf("with %d names in the set, Has or Add returns a wrong result", i)
		}
	}
	for i := range 100 {
		if s.Add(fmt.Sprint(i)) {
			t.Errorf("Add(%d) = true, but the name was added before", i)
		}
	}
}

// Reading an object must not allocate memory, because a manifest has many objects.
func TestObjectAllocatesNothing(t *testing.T) {
	r, root := open(t, `{"name": "a", "kind": "b"}`)
	allocs := testing.AllocsPerRun(100, func() {
		o := r.Object(root)
		o.Text("name", read.Required)
		o.Text("kind", read.Required)
		o.Text("more", read.Optional)
		o.Done()
	})
	if allocs > 0 {
		t.Errorf("got %v allocations, want none", allocs)
	}
}
