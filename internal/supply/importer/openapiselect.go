package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// operation is one operation of an OpenAPI description.
type operation struct {
	path, method string
	item, op     map[string]any // the path item, and the operation in it
}

func (o operation) String() string { return strings.ToUpper(o.method) + " " + o.path }

// is reports whether the user's choice selects the operation. A choice is a tag, an operation id, a path with
// everything below it, or a method and a path.
func (o operation) is(choice string) bool {
	below := strings.TrimSuffix(choice, "/") + "/"
	return choice == text(o.op["operationId"]) || strings.EqualFold(choice, o.String()) ||
		choice == o.path || strings.HasPrefix(choice, "/") && strings.HasPrefix(o.path, below) ||
		slices.ContainsFunc(texts(o.op["tags"]), func(tag string) bool { return strings.EqualFold(tag, choice) })
}

var methods = []string{"get", "head", "post", "put", "patch", "delete"}

// operations returns the operations that the user chose, or all operations if the user chose none.
func (a *api) operations() ([]operation, error) {
	var all, chosen []operation
	paths := object(a.root["paths"])
	for _, path := range sorted(paths) {
		item := a.resolve(paths[path])
		for _, method := range methods {
			if op := object(item[method]); op != nil {
				all = append(all, operation{path, method, item, op})
			}
		}
	}
	if len(a.only) == 0 {
		return all, nil
	}
	for _, choice := range a.only {
		if !slices.ContainsFunc(all, func(o operation) bool { return o.is(choice) }) {
			return nil, fail("choose a tag, a path or an operation: "+a.choices(all),
				"the description has no tag, path or operation %q", choice)
		}
	}
	for _, o := range all {
		if slices.ContainsFunc(a.only, o.is) {
			chosen = append(chosen, o)
		}
	}
	return chosen, nil
}

// addTools converts the chosen operations to tools.
func (a *api) addTools(chosen []operation) error {
	for _, o := range chosen {
		t, ok := a.tool(o)
		if !ok {
			continue
		}
		if len(a.m.Tools) == maxTools {
			return fail("choose the operations that the agent needs, with --only for each tag, path or operation: "+
				a.choices(chosen), "the description has %d operations, and an agent can have at most %d tools",
				len(chosen), maxTools)
		}
		a.m.Tools = append(a.m.Tools, t)
	}
	return nil
}

// choices lists the tags of the operations, with the number of operations for each tag. If the operations have no tags,
// it lists the first segments of their paths.
func (a *api) choices(all []operation) string {
	const most = 30
	count := map[string]int{}
	for _, o := range all {
		for _, tag := range texts(o.op["tags"]) {
			count[tag]++
		}
	}
	if len(count) == 0 {
		for _, o := range all {
			first, _, _ := strings.Cut(strings.TrimPrefix(o.path, "/"), "/")
			count["/"+first]++
		}
	}
	names := sorted(count)
	slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(count[y], count[x]) })
	var out []string
	for i, name := range names {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		out = append(out, fmt.Sprintf("%s (%d)", cut(a.scrub(name), 60), count[name]))
	}
	return strings.Join(out, ", ")
}
