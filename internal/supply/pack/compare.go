package pack

import (
	"maps"
	"slices"
)

// Difference is one difference between a server and its lock.
type Difference struct {
	Server string `json:"server"`
	// Tool is empty if the difference is in the server itself.
	Tool string `json:"tool,omitempty"`
	// What is Added, Removed or Changed.
	What string `json:"what"`
	// Changes lists the fields that changed.
	Changes []Change `json:"changes,omitempty"`
}

// The values of Difference.What.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Compare lists how now differs from was, server by server and tool by tool. Builds
// are compared on the platforms that both have, and on this machine's platform. A
// build that only now has is not a difference.
func Compare(was, now *LockedAgent) []Difference {
	var out []Difference
	for _, alias := range bothKeys(was.Servers, now.Servers) {
		a, b := was.Servers[alias], now.Servers[alias]
		switch {
		case a == nil:
			out = append(out, Difference{Server: alias, What: Added})
			continue
		case b == nil:
			out = append(out, Difference{Server: alias, What: Removed})
			continue
		}
		changes := comparePackages(a.Package, b.Package)
		changes = compareText(changes, "protocol", a.Protocol, b.Protocol)
		if len(changes) > 0 {
			out = append(out, Difference{Server: alias, What: Changed, Changes: changes})
		}
		out = append(out, CompareTools(alias, a.Tools, b.Tools)...)
	}
	return out
}

// CompareTools lists how the tools of one server differ from the locked tools.
func CompareTools(alias string, was, now map[string]LockedTool) []Difference {
	var out []Difference
	for _, name := range bothKeys(was, now) {
		a, inA := was[name]
		b, inB := now[name]
		d := Difference{Server: alias, Tool: name, What: Changed}
		switch {
		case !inA:
			d.What = Added
		case !inB:
			d.What = Removed
		case a.Hash == b.Hash:
			continue
		default:
			d.Changes = DiffTool(a.Definition, b.Definition)
		}
		out = append(out, d)
	}
	return out
}

// Repinned returns the difference of a server that is pinned to another digest.
func Repinned(alias, was, is string) Difference {
	return Difference{Server: alias, What: Changed, Changes: compareText(nil, "package_digest", was, is)}
}

func comparePackages(a, b LockedPackage) []Change {
	var c []Change
	c = compareText(c, "kind", string(a.Kind), string(b.Kind))
	c = compareText(c, "name", a.Name, b.Name)
	c = compareText(c, "version", a.Version, b.Version)
	c = compareText(c, "digest", a.Digest, b.Digest)
	for _, key := range sorted(append(bothKeys(a.Builds, b.Builds), platform())) {
		x, y := a.Builds[key], b.Builds[key]
		if key == platform() {
			x, y = a.Here(), b.Here()
		} else if y == (Build{}) {
			continue
		}
		if x.Tree != "" {
			c = compareText(c, "builds."+key+".tree", x.Tree, y.Tree)
		}
		if x.Lockfile != "" {
			c = compareText(c, "builds."+key+".lockfile", x.Lockfile, y.Lockfile)
		}
	}
	if !slices.Equal(a.Scripts, b.Scripts) {
		c = append(c, Change{Field: "scripts", Old: text(a.Scripts, len(a.Scripts) > 0), New: text(b.Scripts, len(b.Scripts) > 0)})
	}
	return c
}

func compareText(c []Change, field, a, b string) []Change {
	if a == b {
		return c
	}
	return append(c, Change{Field: field, Old: text(a, a != ""), New: text(b, b != "")})
}

func bothKeys[V any](a, b map[string]V) []string {
	return sorted(slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))))
}

// Excerpt returns both texts without most of what they begin and end with alike, so
// that their difference is seen. An absent text is "(nothing)".
func (c Change) Excerpt() (was, is string) {
	const context = 60
	x, y := []rune(c.Old), []rune(c.New)
	begin := 0
	for begin < len(x) && begin < len(y) && x[begin] == y[begin] {
		begin++
	}
	end := 0
	for end < len(x)-begin && end < len(y)-begin && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	cut := func(r []rune) string {
		if len(r) == 0 {
			return "(nothing)"
		}
		from, to, before, after := 0, len(r), "", ""
		if begin > 2*context {
			from, before = begin-context, "…"
		}
		if end > 2*context {
			to, after = len(r)-end+context, "…"
		}
		return before + string(r[from:to]) + after
	}
	return cut(x), cut(y)
}
