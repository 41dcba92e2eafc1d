//go:build prove && linux

package layout

import (
	"bufio"
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
var trusted = []string{"internal/gateway/gate", "internal/gateway/guard", "internal/exec/credential", "internal/gateway/egress", "internal/store/journal"}

// leastCovered is how much of each package has to be executed by its tests.
const leastCovered = 95.0

// notShipped are commands for whoever works on ambit, and in no binary.
var notShipped = []string{"internal/gateway/guard/gen"}

// measured is what the tests of some packages execute.
type measured struct {
	all, run map[string]int // statements, by package
	missing  missing
}

// missing are the lines with statements that are not run, by package and
// function: "key.go newKey".
type missing map[string]map[string][]int

// Of what is trusted most, nearly everything is tested, and the document names
// every line that is not, with the function it is in: an edit moves lines, and
// then -update is due.
func TestCoverage(t *testing.T) {
	page := filepath.Join(root, "docs", "threat-model.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for _, family := range trusted {
		t.Run(path.Base(family), func(t *testing.T) {
			m := measure(t, family)
			if *update {
				doc = m.tell(t, doc, family)
				return
			}
			m.hold(t, doc, family)
		})
	}
	if *update {
		if err := os.WriteFile(page, []byte(doc), 0o644); err != nil {
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
	m := &measured{map[string]int{}, map[string]int{}, missing{}}
	sources := map[string]*parsed{}
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
		if sources[b.file] == nil {
			sources[b.file] = readSource(t, b.file)
		}
		if m.missing[dir] == nil {
			m.missing[dir] = map[string][]int{}
		}
		name := path.Base(b.file) + " " + sources[b.file].function(t, b.from.line)
		m.missing[dir][name] = append(m.missing[dir][name], sources[b.file].statements(b)...)
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
		for name, lines := range m.missing[dir] {
			switch said, ok := named[dir][name]; {
			case !ok:
				t.Errorf("lines %s of %s/%s are not run by tests, and the document does not name them", ranges(lines), dir, name)
			case !said.sometimes && said.lines != ranges(lines):
				t.Errorf("lines %s of %s/%s are not run by tests, and the document names %s", ranges(lines), dir, name, said.lines)
			}
		}
		for name, said := range named[dir] {
			if _, ok := m.missing[dir][name]; !ok && !said.sometimes {
				t.Errorf("%s/%s is all run by tests, or is not there, and the document names it", dir, name)
			}
		}
	}
}

var (
	// "| `internal/gateway/guard/…` | 95.1 % |"
	coverCell = "(?m)^(\\| `%s(?:/…)?` \\| )([0-9.]+)( %% \\|)"
	// "| `internal/gateway/gate` | gate.go Decide (12 15-17), check* (40); rule.go (*Rule).match (9) |", where * stands for
	// not in every run
	missingRow = "(?m)^\\| `(%s(?:/[a-z0-9/]+)?)` \\| ([a-z0-9_]+\\.go .*) \\|$\n?"
	function   = regexp.MustCompile(`^([^ *]+)(\*?) \(([0-9 -]+)\)$`)
)

func toldCover(text, family string) float64 {
	m := regexp.MustCompile(fmt.Sprintf(coverCell, family)).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	said, _ := strconv.ParseFloat(m[2], 64) // or 0, which is none
	return said
}

// told is what the document says of a function: its lines that are not run, and
// whether some runs miss others.
type told struct {
	lines     string
	sometimes bool
}

// toldMissing are the functions that the document names, by package.
func toldMissing(text, family string) map[string]map[string]told {
	named := map[string]map[string]told{}
	for _, m := range regexp.MustCompile(fmt.Sprintf(missingRow, family)).FindAllStringSubmatch(text, -1) {
		named[m[1]] = map[string]told{}
		for file := range strings.SplitSeq(m[2], "; ") {
			name, list, _ := strings.Cut(file, " ")
			for said := range strings.SplitSeq(list, ", ") {
				if f := function.FindStringSubmatch(said); f != nil {
					named[m[1]][name+" "+f[1]] = told{f[3], f[2] != ""}
				}
			}
		}
	}
	return named
}

// tell writes what was measured into the document's text.
func (m *measured) tell(t *testing.T, text, family string) string {
	t.Helper()
	cell, row := regexp.MustCompile(fmt.Sprintf(coverCell, family)), regexp.MustCompile(fmt.Sprintf(missingRow, family))
	text = cell.ReplaceAllString(text, fmt.Sprintf("${1}%.1f${3}", m.covered(slices.Collect(maps.Keys(m.all))...)))
	named := toldMissing(text, family)
	var rows strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(m.all)) {
		files := map[string][]string{}
		add := func(name, mark, lines string) {
			file, f, _ := strings.Cut(name, " ")
			files[file] = append(files[file], fmt.Sprintf("%s%s (%s)", f, mark, lines))
		}
		for name, lines := range m.missing[dir] {
			mark := ""
			if named[dir][name].sometimes {
				mark = "*"
			}
			add(name, mark, ranges(lines))
		}
		for name, said := range named[dir] {
			if _, ok := m.missing[dir][name]; !ok && said.sometimes {
				add(name, "*", said.lines)
			}
		}
		var cells []string
		for _, file := range slices.Sorted(maps.Keys(files)) {
			slices.Sort(files[file])
			cells = append(cells, file+" "+strings.Join(files[file], ", "))
		}
		if len(cells) > 0 {
			fmt.Fprintf(&rows, "| `%s` | %s |\n", dir, strings.Join(cells, "; "))
		}
	}
	at := row.FindStringIndex(text)
	if at == nil && rows.Len() > 0 {
		t.Fatalf("the document has no row for the lines of %s", family)
	}
	if at == nil {
		return text
	}
	return text[:at[0]] + rows.String() + row.ReplaceAllString(text[at[0]:], "")
}

// ranges writes lines as "12 15-17".
func ranges(lines []int) string {
	lines = slices.Compact(slices.Sorted(slices.Values(lines)))
	var words []string
	for from := 0; from < len(lines); {
		to := from
		for to+1 < len(lines) && lines[to+1] == lines[to]+1 {
			to++
		}
		word := strconv.Itoa(lines[from])
		if to > from {
			word += "-" + strconv.Itoa(lines[to])
		}
		words, from = append(words, word), to+1
	}
	return strings.Join(words, " ")
}

// parsed is a file of Go that was parsed.
type parsed struct {
	file string
	set  *token.FileSet
	tree *ast.File
}

func readSource(t *testing.T, file string) *parsed {
	t.Helper()
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, filepath.Join(root, filepath.FromSlash(file)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &parsed{file, set, tree}
}

// function is the name of the function that a line is in.
func (s *parsed) function(t *testing.T, line int) string {
	t.Helper()
	for _, d := range s.tree.Decls {
		if line < s.set.Position(d.Pos()).Line || line > s.set.Position(d.End()).Line {
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
	t.Fatalf("line %d of %s is in no declaration", line, s.file)
	return ""
}

// statements are the lines on which the statements of a part begin.
func (s *parsed) statements(p part) []int {
	var lines []int
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if stmt, ok := n.(ast.Stmt); ok {
			at := s.set.Position(stmt.Pos())
			if _, block := n.(*ast.BlockStmt); !block && !p.from.after(at) && p.to.after(at) {
				lines = append(lines, at.Line)
			}
		}
		return true
	})
	return lines
}

// part is a row of statements that are run together.
type part struct {
	file       string // from the root
	from, to   place
	statements int
}

type place struct{ line, column int }

// after reports whether a place comes after a position.
func (p place) after(q token.Position) bool {
	return p.line > q.Line || p.line == q.Line && p.column > q.Column
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
		// github.com/ambit-run/ambit/internal/gateway/gate/gate.go:12.34,15.2 3 1
		m := profileLine.FindStringSubmatch(lines.Text())
		if m == nil {
			return nil, fmt.Errorf("cannot read %q", lines.Text())
		}
		var n [5]int
		for i := range n {
			if n[i], err = strconv.Atoi(m[2+i]); err != nil {
				return nil, err
			}
		}
		p := part{m[1], place{n[0], n[1]}, place{n[2], n[3]}, n[4]}
		parts[p] = parts[p] || m[7] != "0"
	}
	return parts, lines.Err()
}

var profileLine = regexp.MustCompile(`^github\.com/ambit-run/ambit/(.+):(\d+)\.(\d+),(\d+)\.(\d+) (\d+) (\d+)$`)
