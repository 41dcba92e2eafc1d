package pack

import (
	"maps"
	"slices"
)

// Difference is one difference between a server and its entry in the lock file.
type Difference struct {
	Server string `json:"server"`
	// Tool is empty if the difference is in the server itself.
	Tool string `json:"tool,omitempty"`
	// The field What contains Added, Removed or Changed.
	What string `json:"what"`
	// Changes lists the changed fields.
	Changes []Change `json:"changes,omitempty"`
}

// The values of Difference.What.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Compare lists the differences between two entries of an agent, server by server and tool by tool. For this machine,
// it compares the builds that [LockedPackage.Here] returns. For another platform, it compares the builds only if both
// entries contain a build. A server that was quarantined before is not reported as added.
func Compare(before, after *LockedAgent) []Difference {
	var out []Difference
	for _, alias := range bothKeys(before.Servers, after.Servers) {
		a, b := before.Servers[alias], after.Servers[alias]
		switch {
		case a == nil && slices.Contains(before.Quarantined, alias):
			continue // the server is in use for the first time, so nothing has changed
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

// CompareTools lists the differences between the locked tools and the current tools of a server.
func CompareTools(alias string, locked, current map[string]LockedTool) []Difference {
	var out []Difference
	for _, name := range bothKeys(locked, current) {
		a, inA := locked[name]
		b, inB := current[name]
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

// Repinned compares the local file and the project of a server with their pinned digests. The parameter before is the
// pinned digest of the file, and folder is the pinned digest of the project. An empty digest is not compared. The
// second result is false if nothing differs.
func Repinned(alias, before, folder string, p *Package) (Difference, bool) {
	d := Difference{Server: alias, What: Changed}
	if before != "" {
		d.Changes = compareText(d.Changes, "package_digest", before, p.Digest)
	}
	if folder != "" {
		d.Changes = compareText(d.Changes, "folder", folder, p.Tree)
	}
	return d, len(d.Changes) > 0
}

func comparePackages(a, b LockedPackage) []Change {
	var c []Change
	c = compareText(c, "kind", string(a.Kind), string(b.Kind))
	c = compareText(c, "name", a.Name, b.Name)
	c = compareText(c, "version", a.Version, b.Version)
	c = compareText(c, "digest", a.Digest, b.Digest)
	if a.Folder != "" {
		c = compareText(c, "folder", a.Folder, b.Folder)
	}
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
		c = append(c,
			Change{Field: "scripts", Old: jsonText(a.Scripts, len(a.Scripts) > 0), New: jsonText(b.Scripts, len(b.Scripts) > 0)})
	}
	return c
}

func compareText(c []Change, field, a, b string) []Change {
	if a == b {
		return c
	}
	return append(c, Change{Field: field, Old: jsonText(a, a != ""), New: jsonText(b, b != "")})
}

func bothKeys[V any](a, b map[string]V) []string {
	return sorted(slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))))
}

// Excerpt returns the old and the new value in a form that shows the difference. If the values begin or end with the
// same long text, that text is shortened. A missing value is returned as "(nothing)".
func (c Change) Excerpt() (before, after string) {
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
		from, to, prefix, suffix := 0, len(r), "", ""
		if begin > 2*context {
			from, prefix = begin-context, "…"
		}
		if end > 2*context {
			to, suffix = len(r)-end+context, "…"
		}
		return prefix + string(r[from:to]) + suffix
	}
	return cut(x), cut(y)
}
