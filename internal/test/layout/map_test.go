package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// groupRow matches a row of the table of groups in ARCHITECTURE.md: | `gateway` | what it does | packages |
var groupRow = regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| .+ \\| (.+) \\|$")

// groups returns the groups under internal/ in the order of ARCHITECTURE.md, highest group first. It also
// returns the packages that the page lists for each group.
func groups(page string) (order []string, packages map[string][]string) {
	packages = map[string][]string{}
	for _, m := range groupRow.FindAllStringSubmatch(page, -1) {
		order = append(order, m[1])
		for _, name := range regexp.MustCompile("`([a-z0-9/]+)`").FindAllStringSubmatch(m[2], -1) {
			packages[m[1]] = append(packages[m[1]], name[1])
		}
	}
	return order, packages
}

func architecture(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// group splits the directory of a package under internal/ into its group and the rest of the path.
func group(dir string) (name, below string) {
	name, below, _ = strings.Cut(strings.TrimPrefix(dir, "internal/"), "/")
	return name, below
}

// TestGroups compares the packages that ARCHITECTURE.md lists with the directories under internal/.
func TestGroups(t *testing.T) {
	order, listed := groups(architecture(t))
	if len(order) != 7 {
		t.Fatalf("ARCHITECTURE.md lists the groups %q, want seven groups", order)
	}
	exist := map[string]bool{}
	for _, f := range source(t) {
		if g, below := group(f.dir()); strings.HasPrefix(f.dir(), "internal/") && g != "test" {
			exist[g+"/"+below] = true
			if below != "" && !slices.Contains(listed[g], below) {
				t.Errorf("ARCHITECTURE.md does not list %s in the row of %s", below, g)
			}
		}
	}
	for g, names := range listed {
		for _, below := range names {
			if !exist[g+"/"+below] {
				t.Errorf("ARCHITECTURE.md lists %s in the row of %s, but internal/%s/%s has no Go files", below, g, g, below)
			}
		}
	}
}

// upward returns the imports that violate the order of the groups. A package may import its own group, the groups
// below it, and the three public packages. The group manifest may not import the public package manifest, which is
// its facade.
func upward(order []string, imports map[[2]string]string) []string {
	var wrong []string
	for pair, file := range imports {
		from, to := pair[0], pair[1]
		fromGroup, _ := group(from)
		toGroup, _ := group(to)
		switch {
		case !strings.HasPrefix(from, "internal/") && strings.HasPrefix(to, "internal/"):
			if toGroup != "manifest" && from != "cmd/ambit" {
				wrong = append(wrong, fmt.Sprintf("%s: the public package %s imports %s", file, from, to))
			}
		case !strings.HasPrefix(from, "internal/"):
		case fromGroup == "manifest" && to == "manifest":
			wrong = append(wrong, fmt.Sprintf("%s: %s imports its facade %s", file, from, to))
		case strings.HasPrefix(to, "internal/") && slices.Index(order, toGroup) < slices.Index(order, fromGroup):
			wrong = append(wrong, fmt.Sprintf("%s: %s imports %s, and %s is above %s", file, from, to, toGroup, fromGroup))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// TestImportsRunDownward checks that no package imports a group above its own.
func TestImportsRunDownward(t *testing.T) {
	order, _ := groups(architecture(t))
	imports := map[[2]string]string{}
	for _, f := range source(t) {
		if g, _ := group(f.dir()); f.isTest() || g == "test" {
			continue // tests may import every package, and no package imports tests
		}
		for _, to := range f.imports(t) {
			imports[[2]string{f.dir(), to}] = f.path
		}
	}
	for _, problem := range upward(order, imports) {
		t.Error(problem)
	}
}

// TestUpward checks that a wrong import is reported.
func TestUpward(t *testing.T) {
	order := []string{"cli", "gateway", "manifest"}
	for _, tt := range []struct{ from, to, want string }{
		{"internal/cli", "internal/gateway/call", ""},
		{"internal/gateway/gate", "internal/gateway/call", ""},
		{"internal/gateway", "manifest", ""},
		{"manifest", "internal/manifest/diag", ""},
		{"cmd/ambit", "internal/cli", ""},
		{"internal/gateway", "internal/cli", "f.go: internal/gateway imports internal/cli, and cli is above gateway"},
		{"internal/manifest/diag", "manifest", "f.go: internal/manifest/diag imports its facade manifest"},
		{"agent", "internal/gateway/call", "f.go: the public package agent imports internal/gateway/call"},
	} {
		var want []string
		if tt.want != "" {
			want = []string{tt.want}
		}
		if got := upward(order, map[[2]string]string{{tt.from, tt.to}: "f.go"}); !slices.Equal(got, want) {
			t.Errorf("%s -> %s: got %q, want %q", tt.from, tt.to, got, want)
		}
	}
}
