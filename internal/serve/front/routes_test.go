package front

import (
	"fmt"
	"testing"
)

// A caller's lists neither fill the table of other callers nor decide where their requests go. A new list replaces the
// earlier one, and the caller who has waited longest is forgotten first.
func TestRoutesOfEachCaller(t *testing.T) {
	r := routes{most: 15_500}
	list := func(prefix, alias string, n int) map[string]string {
		to := map[string]string{}
		for i := range n {
			to[fmt.Sprintf("uri %s%d", prefix, i)] = alias
		}
		return to
	}
	check := func(principal, uri, want string) {
		t.Helper()
		if alias, found := r.resource(principal, uri); alias != want || found != (want != "") {
			t.Errorf("%s to %s: %q, %v; want %q", uri, principal, alias, found, want)
		}
	}
	r.keep("ada", "resources", list("a", "one", 10))
	r.keep("bob", "resources", list("a", "two", 10))
	check("ada", "a1", "one")
	check("bob", "a1", "two")
	check("eve", "a1", "")
	for i := range 20 {
		r.keep("eve", "resources", list(fmt.Sprint("e", i, "-"), "one", 100))
	}
	check("eve", "e19-1", "one")
	check("eve", "e0-1", "")
	check("bob", "a1", "two")
	r.keep("mel", "resources", list("m", "one", 100)) // more than fits; ada has waited longest
	check("ada", "a1", "")
	check("mel", "m1", "one")
	if r.bytes > r.most || r.bytes != r.of["bob"].bytes+r.of["eve"].bytes+r.of["mel"].bytes {
		t.Errorf("%d bytes in %d tables", r.bytes, len(r.of))
	}
	r.keep("bob", "resources", list("b", "two", 1000)) // the present caller's own list is kept in any case
	check("bob", "b999", "two")
	if len(r.of) != 1 {
		t.Errorf("%d tables beside a large one", len(r.of))
	}
}
