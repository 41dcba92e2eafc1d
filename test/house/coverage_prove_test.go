//go:build prove && linux

package house

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is measured into docs/threat-model.md")

// trusted are the packages that everything rests on, each with those below it.
var trusted = []string{"internal/gate", "internal/guard", "internal/credential", "internal/egress", "internal/journal"}

// leastCovered is how much of each package has to be executed by its tests.
const leastCovered = 95.0

// notShipped are commands for whoever works on ambit, and in no binary.
var notShipped = []string{"internal/guard/gen"}

// measured is what the tests of some packages execute.
type measured struct {
	all, run map[string]int             // statements, by package
	missing  map[string]map[string]bool // functions with statements that are not run, by package: "key.go newKey"
}

// Of what is trusted most, nearly everything is tested, and the document names
// every function with a statement that is not. Lines would change with every
// edit above them, and so functions are named.
func TestCoverage(t *testing.T) {
	page := filepath.Join(root, "docs", "threat-model.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	told := string(text)
	for _, family := range trusted {
		t.Run(path.Base(family), func(t *testing.T) {
			m := measure(t, family)
			if *update {
				told = m.tell(t, told, family)
				return
			}
			m.hold(t, told, family)
		})
	}
	if *update {
		if err := os.WriteFile(page, []byte(told), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// measure runs the tests of a package and of those below it.
func measure(t *testing.T, family string) *measured {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	below := "./" + family + "/..."
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout", "30m", "-coverpkg="+below, "-coverprofile="+profile, below)
	cmd.Dir = root
	// With the corpora, which not everybody has, a little more would be executed.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CORPORA=") || strings.HasPrefix(v, "CI=") })
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	blocks, err := readProfile(profile)
	if err != nil {
		t.Fatal(err)
	}
	m := &measured{map[string]int{}, map[string]int{}, map[string]map[string]bool{}}
	functions := map[string]func(line int) string{}
	for b, run := range blocks {
		dir := path.Dir(b.file)
		m.all[dir] += b.statements
		if run {
			m.run[dir] += b.statements
			continue
		}
		if b.statements == 0 {
			continue
		}
		if functions[b.file] == nil {
			functions[b.file] = functionsOf(t, b.file)
		}
		if m.missing[dir] == nil {
			m.missing[dir] = map[string]bool{}
		}
		m.missing[dir][path.Base(b.file)+" "+functions[b.file](b.line)] = true
	}
	return m
}

// covered is how much of a package is run, in percent, or of all that were measured.
func (m *measured) covered(dirs ...string) float64 {
	run, all := 0, 0
	for _, dir := range dirs {
		run, all = run+m.run[dir], all+m.all[dir]
	}
	return 100 * float64(run) / float64(all)
}

// hold compares what was measured with what the document tells.
func (m *measured) hold(t *testing.T, text, family string) {
	t.Helper()
	if len(m.all) == 0 {
		t.Fatalf("nothing of %s was measured", family)
	}
	dirs := slices.Sorted(maps.Keys(m.all))
	for _, dir := range dirs {
		if got := m.covered(dir); got < leastCovered && !slices.Contains(notShipped, dir) {
			t.Errorf("of %s %.1f %% are covered", dir, got)
		}
	}
	said := toldCover(text, family)
	switch got := m.covered(dirs...); {
	case got < leastCovered:
		t.Errorf("of %s and what is below %.1f %% are covered", family, got)
	case math.Abs(said-got) > 0.5:
		t.Errorf("of %s and what is below %.1f %% are covered, and the document says %.1f %%", family, got, said)
	}
	named := toldMissing(text, family)
	for _, dir := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(dirs, slices.Collect(maps.Keys(named)))))) {
		for name := range m.missing[dir] {
			if _, ok := named[dir][name]; !ok {
				t.Errorf("%s/%s is not all run by tests, and the document does not name it", dir, name)
			}
		}
		for name, sometimes := range named[dir] {
			if !sometimes && !m.missing[dir][name] {
				t.Errorf("%s/%s is all run by tests, or is not there, and the document names it", dir, name)
			}
		}
	}
}

var (
	// "| `internal/guard/…` | 95.1 % |"
	coverCell = "(?m)^(\\| `%s(?:/…)?` \\| )([0-9.]+)( %% \\|)"
	// "| `internal/gate` | gate.go Decide, check*; rule.go (*Rule).match |", where * stands for not in every run
	missingRow = "(?m)^\\| `(%s(?:/[a-z0-9/]+)?)` \\| ([a-z0-9_]+\\.go .*) \\|$\n?"
)

func toldCover(text, family string) float64 {
	m := regexp.MustCompile(fmt.Sprintf(coverCell, family)).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	said, _ := strconv.ParseFloat(m[2], 64) // or 0, which is none
	return said
}

// toldMissing are the functions that the document names, by package; true stands
// for those that are missing in some runs only.
func toldMissing(text, family string) map[string]map[string]bool {
	named := map[string]map[string]bool{}
	for _, m := range regexp.MustCompile(fmt.Sprintf(missingRow, family)).FindAllStringSubmatch(text, -1) {
		named[m[1]] = map[string]bool{}
		for file := range strings.SplitSeq(m[2], "; ") {
			name, list, _ := strings.Cut(file, " ")
			for f := range strings.SplitSeq(list, ", ") {
				f, sometimes := strings.CutSuffix(f, "*")
				named[m[1]][name+" "+f] = sometimes
			}
		}
	}
	return named
}

// tell writes what was measured into the document's text.
func (m *measured) tell(t *testing.T, text, family string) string {
	t.Helper()
	cell, row := regexp.MustCompile(fmt.Sprintf(coverCell, family)), regexp.MustCompile(fmt.Sprintf(missingRow, family))
	dirs := slices.Sorted(maps.Keys(m.all))
	text = cell.ReplaceAllString(text, fmt.Sprintf("${1}%.1f${3}", m.covered(dirs...)))
	sometimes := toldMissing(text, family)
	var rows strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(m.missing)) {
		files := map[string][]string{}
		for name := range m.missing[dir] {
			file, f, _ := strings.Cut(name, " ")
			if sometimes[dir][name] {
				f += "*"
			}
			files[file] = append(files[file], f)
		}
		var cells []string
		for _, file := range slices.Sorted(maps.Keys(files)) {
			slices.Sort(files[file])
			cells = append(cells, file+" "+strings.Join(files[file], ", "))
		}
		fmt.Fprintf(&rows, "| `%s` | %s |\n", dir, strings.Join(cells, "; "))
	}
	at := row.FindStringIndex(text)
	if at == nil && rows.Len() > 0 {
		t.Fatalf("the document has no row for the functions of %s", family)
	}
	if at == nil {
		return text
	}
	return text[:at[0]] + rows.String() + row.ReplaceAllString(text[at[0]:], "")
}

// functionsOf tells for the lines of a file in which function they are.
func functionsOf(t *testing.T, file string) func(line int) string {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(root, filepath.FromSlash(file)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func(line int) string {
		for _, d := range parsed.Decls {
			if line < set.Position(d.Pos()).Line || line > set.Position(d.End()).Line {
				continue
			}
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				return "variables"
			}
			if f.Recv == nil {
				return f.Name.Name
			}
			of := f.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if generic, ok := of.(*ast.IndexExpr); ok {
				of = generic.X
			}
			return fmt.Sprintf("%v.%s", of, f.Name.Name)
		}
		t.Fatalf("line %d of %s is in no declaration", line, file)
		return ""
	}
}

// part is a row of statements that are run together.
type part struct {
	file       string // from the root
	line       int
	to         string
	statements int
}

// readProfile reads what go test -coverprofile writes. A part that several test
// binaries hold is run if it is in one of them.
func readProfile(file string) (map[part]bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	parts := map[part]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "mode:") {
			continue
		}
		// github.com/ambit-run/ambit/internal/gate/gate.go:12.34,15.2 3 1
		m := profileLine.FindStringSubmatch(lines.Text())
		if m == nil {
			return nil, fmt.Errorf("cannot read %q", lines.Text())
		}
		line, err1 := strconv.Atoi(m[2])
		statements, err2 := strconv.Atoi(m[4])
		if err := cmp.Or(err1, err2); err != nil {
			return nil, err
		}
		p := part{m[1], line, m[3], statements}
		parts[p] = parts[p] || m[5] != "0"
	}
	return parts, lines.Err()
}

var profileLine = regexp.MustCompile(`^github\.com/ambit-run/ambit/(.+):(\d+)(\.\d+,\d+\.\d+) (\d+) (\d+)$`)
