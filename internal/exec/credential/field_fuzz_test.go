package credential

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// Field returns only texts of scalars inside an object.
func FuzzField(f *testing.F) {
	f.Add(`{"a":{"b":"c"},"a.b":"d","n":1e3}`, "a.b")
	f.Add(`{"a":{"b":{"c":true}}}`, "a.b.c")
	f.Add(`{"":{"":"x"}}`, ".")
	f.Add(`{"a":null,"b":["x",{"y":"z"}]}`, "b.y")
	f.Add(`{"a":1,"a":2}`, "a")
	f.Add("[", "")
	f.Fuzz(func(t *testing.T, object, name string) {
		v := jsontext.Value(object)
		text, ok := field(v, name)
		if !ok {
			return
		}
		if v.Kind() != '{' || !v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Errorf("%q has a field %q", object, name)
		}
		there := false
		leaves(v, "", func(_, _, leaf string) { there = there || leaf == text })
		if !there {
			t.Errorf("%q of %q is %q, which is no scalar of the object", name, object, text)
		}
	})
}
