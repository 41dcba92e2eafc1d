package credential

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzField checks that field returns only the text of a scalar inside a JSON object.
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
			t.Errorf("%q is not a JSON object, but has a field %q", object, name)
		}
		found := false
		eachScalar(v, "", func(_, _, leaf string) { found = found || leaf == text })
		if !found {
			t.Errorf("field %q of %q is %q, which is not a scalar of the object", name, object, text)
		}
	})
}
