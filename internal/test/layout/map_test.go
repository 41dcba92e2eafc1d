package layout

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is the first fenced block below a line of ARCHITECTURE.md.
func block(t *testing.T, below string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+below)
	if ok {
		_, rest, ok = strings.Cut(rest, "\n```\n")
	}
	rest, _, closed := strings.Cut(rest, "\n```\n")
	if !ok || !closed {
		t.Fatalf("ARCHITECTURE.md has no block below %q", below)
	}
	return strings.Split(rest, "\n")
}

var roomLine = regexp.MustCompile(`^( *)((?:[a-z0-9/]+/ ?)+)(?: {2,}(\S.*))?$`)

// rooms reads the list: two spaces of indent lead one folder down, and what a
// line says holds for every folder that it names.
func rooms(lines []string) (map[string]string, error) {
	listed := map[string]string{}
	var above []string
	for _, line := range lines {
		m := roomLine.FindStringSubmatch(line)
		if m == nil || len(m[1])%2 != 0 || len(m[1])/2 > len(above) {
			return nil, fmt.Errorf("cannot read %q", line)
		}
		above = above[:len(m[1])/2]
		names := strings.Fields(m[2])
		for _, name := range names {
			full := path.Join(path.Join(above...), name)
			if _, twice := listed[full]; twice {
				return nil, fmt.Errorf("%s is listed twice", full)
			}
			listed[full] = m[3]
		}
		above = append(above, names[len(names)-1])
	}
	return listed, nil
}

// TestRooms compares the list of rooms with the packages that exist.
func TestRooms(t *testing.T) {
	listed, err := rooms(block(t, "## The rooms"))
	if err != nil {
		t.Fatal(err)
	}
	exist := map[string]bool{}
	for _, f := range source(t) {
		exist[f.dir()] = true
	}
	for dir := range exist {
		if listed[dir] == "" {
			t.Errorf("ARCHITECTURE.md does not say what %s is", dir)
		}
	}
	for dir := range listed {
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || !info.IsDir() {
			t.Errorf("ARCHITECTURE.md lists %s, which does not exist", dir)
		}
	}
}

// An edge is a room and one that it imports.
type edge struct{ from, to string }

// importMap reads the map. Its lines run from the top of the house to the
// ground, so that an arrow that leads up, or round, cannot be written.
func importMap(lines []string) ([]edge, map[string]int, error) {
	place := map[string]int{}
	var edges []edge
	for i, line := range lines {
		if line == "" {
			continue
		}
		left, right, ok := strings.Cut(line, "→")
		if !ok || strings.TrimSpace(left) == "" {
			return nil, nil, fmt.Errorf("cannot read %q", line)
		}
		for _, from := range strings.Fields(left) {
			if _, twice := place[from]; twice {
				return nil, nil, fmt.Errorf("%s stands twice on the left", from)
			}
			place[from] = i
			for _, to := range strings.Fields(right) {
				edges = append(edges, edge{from, to})
			}
		}
	}
	for _, e := range edges {
		if at, ok := place[e.to]; !ok || at <= place[e.from] {
			return nil, nil, fmt.Errorf("%s → %s does not lead to a line further down", e.from, e.to)
		}
	}
	return edges, place, nil
}

// reach follows arrows from a room.
func reach(edges []edge, from string, into map[string]bool) map[string]bool {
	for _, e := range edges {
		if e.from == from && !into[e.to] {
			into[e.to] = true
			reach(edges, e.to, into)
		}
	}
	return into
}

// misfits says where the map and the real imports differ. A room has on its
// right what it imports, without what that imports too.
func misfits(lines []string, actual map[edge]string, exist []string) []string {
	edges, place, err := importMap(lines)
	if err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, name := range exist {
		if _, ok := place[name]; !ok {
			say("%s is not in the map", name)
		}
	}
	for name := range place {
		if !slices.Contains(exist, name) {
			say("%s is in the map and does not exist", name)
		}
	}
	reached := map[string]map[string]bool{}
	for name := range place {
		reached[name] = reach(edges, name, map[string]bool{})
	}
	for e, file := range actual {
		if _, ok := place[e.from]; ok && !reached[e.from][e.to] {
			say("%s imports %s, which the map does not let %s reach", file, e.to, e.from)
		}
	}
	for _, e := range edges {
		if _, ok := actual[e]; !ok {
			say("the map has %s → %s, which is no import", e.from, e.to)
		}
		for _, other := range edges {
			if other.from == e.from && other.to != e.to && reached[other.to][e.to] {
				say("%s → %s goes without saying: %s → %s", e.from, e.to, e.from, other.to)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// TestMap compares the map of imports with the imports.
func TestMap(t *testing.T) {
	short := func(dir string) string { return strings.TrimPrefix(dir, "internal/") }
	actual := map[edge]string{}
	exist := map[string]bool{}
	for _, f := range source(t) {
		if f.isTest() || strings.HasPrefix(f.path, "internal/test/") {
			continue // they may import everything, and nothing else imports them
		}
		exist[short(f.dir())] = true
		for _, to := range f.imports(t) {
			actual[edge{short(f.dir()), short(to)}] = f.path
		}
	}
	for _, wrong := range misfits(block(t, "Imports run downward only"), actual, slices.Collect(maps.Keys(exist))) {
		t.Errorf("ARCHITECTURE.md: %s", wrong)
	}
}

// TestMisfits shows that a map that is wrong is found out.
func TestMisfits(t *testing.T) {
	exist := []string{"roof", "room", "ground"}
	actual := map[edge]string{
		{"roof", "room"}:   "roof/a.go",
		{"roof", "ground"}: "roof/b.go",
		{"room", "ground"}: "room/a.go",
	}
	for _, tt := range []struct{ name, lines, want string }{
		{"as it is", "roof → room\n\nroom → ground\nground →", ""},
		{"an arrow up", "room → ground\nground → room\nroof → room", "ground → room does not lead to a line further down"},
		{"an arrow to nowhere", "roof → room\nroom → cellar", "room → cellar does not lead to a line further down"},
		{"a room is missing", "roof → ground\nground →", "room is not in the map"},
		{"a room that is gone", "roof → room\nroom → ground\nground shed →", "shed is in the map and does not exist"},
		{"an import is missing", "roof → room\nroom →\nground →", "room/a.go imports ground, which the map does not let room reach"},
		{"an arrow without import", "roof → room shed\nroom → ground\nshed → ground\nground →", "the map has roof → shed, which is no import"},
		{"a longer way than needed", "roof → room ground\nroom → ground\nground →", "roof → ground goes without saying: roof → room"},
		{"a line twice", "roof → room\nroof → ground\nroom → ground\nground →", "roof stands twice on the left"},
		{"no arrow", "roof room", `cannot read "roof room"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrong := misfits(strings.Split(tt.lines, "\n"), actual, exist)
			if tt.want == "" && len(wrong) > 0 || tt.want != "" && !slices.Contains(wrong, tt.want) {
				t.Errorf("%q", wrong)
			}
		})
	}
}

// TestRoomLines shows how the list is read.
func TestRoomLines(t *testing.T) {
	got, err := rooms([]string{"a/        the first", "  b/ c/   two below", "    d/    below c", "e/"})
	want := map[string]string{"a": "the first", "a/b": "two below", "a/c": "two below", "a/c/d": "below c", "e": ""}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v %q", err, got)
	}
	for _, bad := range []string{"a", "  a/  too deep", "a/\na/", "a/  x\n   b/  odd"} {
		if got, err := rooms(strings.Split(bad, "\n")); err == nil {
			t.Errorf("%q was read as %q", bad, got)
		}
	}
}
