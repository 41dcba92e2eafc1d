//go:build prove && linux

package layout

import (
	"bufio"
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

// trusted lists the packages whose coverage is checked, because all other packages rely on them. The list
// includes all packages in their subfolders.
var trusted = []string{
	"internal/gateway/gate", "internal/gateway/guard", "internal/exec/credential", "internal/gateway/egress",
	"internal/store/journal",
}

// testedBy contains the packages with further tests of a package. The tests of actions exchange service-account keys.
var testedBy = map[string]string{"internal/exec/credential": "internal/exec/action"}

// minCoverage is the share of statements, in percent, that the tests of each package must execute.
const minCoverage = 95.0

func TestCoverage(t *testing.T) {
	for _, pkg := range trusted {
		t.Run(path.Base(pkg), func(t *testing.T) {
			executed, all := map[string]int{}, map[string]int{}
			for b, ran := range measure(t, pkg) {
				dir := path.Dir(b.file)
				all[dir] += b.statements
				if ran {
					executed[dir] += b.statements
				}
			}
			if all[pkg] == 0 {
				t.Fatalf("the profile contains no statements of %s", pkg)
			}
			for dir, n := range all {
				got := 100 * float64(executed[dir]) / float64(n)
				t.Logf("%s: %.1f %%", dir, got)
				if got < minCoverage {
					t.Errorf("the tests execute %.1f %% of %s, want at least %.0f %%", got, dir, minCoverage)
				}
			}
		})
	}
}

// block is a sequence of statements that run together.
type block struct {
	file       string // the path relative to the root of the repository
	position   string
	statements int
}

var profileLine = regexp.MustCompile(`^github\.com/ambit-run/ambit/(.+):([\d.,]+) (\d+) (\d+)$`)

// measure runs the tests of a package, of the packages below it, and of the package in testedBy. For each block, it reports whether a test
// executed the block. Several test binaries can contain the same block.
func measure(t *testing.T, pkg string) map[block]bool {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	below := "./" + pkg + "/..."
	args := []string{"test", "-vet=off", "-count=1", "-timeout", "30m", "-coverpkg=" + below, "-coverprofile=" + profile, below}
	if other := testedBy[pkg]; other != "" {
		args = append(args, "./"+other)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	// Without the optional corpora, the result is the same on every machine.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CORPORA=") || strings.HasPrefix(v, "CI=")
	})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test: %v\n%s", err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	blocks := map[block]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "mode:") {
			continue
		}
		// github.com/ambit-run/ambit/internal/gateway/gate/gate.go:12.34,15.2 3 1
		m := profileLine.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("cannot read the profile's line %q", lines.Text())
		}
		n, err := strconv.Atoi(m[3])
		if err != nil {
			t.Fatal(err)
		}
		b := block{m[1], m[2], n}
		blocks[b] = blocks[b] || m[4] != "0"
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return blocks
}
