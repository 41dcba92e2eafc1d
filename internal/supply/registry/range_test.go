package registry_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/supply/registry"
)

// pairs are constraints with versions that try them. The expected result is what
// npm's own semver says.
var pairs = []struct {
	constraint string
	versions   []string
}{
	{"*", []string{"0.0.0", "1.2.3", "2026.8.31", "1.0.0-beta"}},
	{"x", []string{"1.2.3", "0.0.1-a"}},
	{"X.x.*", []string{"1.2.3"}},
	{"1.2.3", []string{"1.2.3", "1.2.4", "1.2.3-beta", "1.2.3+build"}},
	{"=1.2.3", []string{"1.2.3", "1.2.2"}},
	{"v1.2.3", []string{"1.2.3"}},
	{"1.2.3-beta.1+build.05", []string{"1.2.3-beta.1", "1.2.3", "1.2.3-beta.2"}},
	{">=1.0.0", []string{"1.0.0", "0.9.9", "2.0.0", "1.0.0-rc.1", "2.0.0-rc.1", "2026.8.31"}},
	{">1.2.3", []string{"1.2.3", "1.2.4", "2.0.0"}},
	{"<2.0.0", []string{"1.9.9", "2.0.0", "2.0.0-alpha"}},
	{"<=2.0.0", []string{"2.0.0", "2.0.1", "2.0.0-alpha"}},
	{">= 1.2.3 < 2.0.0", []string{"1.2.3", "1.9.0", "2.0.0", "1.2.2"}},
	{"\t>1 <=  2 ", []string{"1.9.9", "2.0.0", "2.9.9", "3.0.0", "1.0.0"}},
	{">1", []string{"1.9.9", "2.0.0", "2.0.0-a"}},
	{">1.2", []string{"1.2.9", "1.3.0"}},
	{">=1.2", []string{"1.2.0", "1.1.9", "1.2.0-a"}},
	{"<1.2", []string{"1.1.9", "1.2.0", "1.2.0-a", "1.1.0-a"}},
	{"<=1.2", []string{"1.2.9", "1.3.0", "1.3.0-a"}},
	{">x", []string{"0.0.0", "1.0.0"}},
	{"<x", []string{"0.0.0", "1.0.0"}},
	{">=x", []string{"0.0.0", "9.0.0"}},
	{"<=*", []string{"0.0.0"}},
	{"1", []string{"1.0.0", "1.9.9", "2.0.0", "0.9.9", "1.0.0-a"}},
	{"1.x", []string{"1.5.0", "2.0.0", "2.0.0-0"}},
	{"1.2", []string{"1.2.9", "1.3.0"}},
	{"1.2.*", []string{"1.2.0", "1.3.0", "1.3.0-0"}},
	{"1.x.3", []string{"1.9.0", "2.0.0"}},
	{"x.1.2", []string{"1.1.2", "0.1.2"}},
	{"~1.x.3", []string{"1.9.0", "2.0.0"}},
	{"^1.x.3", []string{"1.9.0", "2.0.0"}},
	{"1.x.3 - 2.x.1", []string{"1.0.0", "2.9.0", "3.0.0"}},
	{">1.x.3", []string{"1.9.0", "2.0.0"}},
	{"=1.x", []string{"1.9.0", "2.0.0"}},
	{"~1.2.3", []string{"1.2.3", "1.2.9", "1.3.0", "1.2.2", "1.3.0-a"}},
	{"~1.2", []string{"1.2.0", "1.3.0"}},
	{"~1", []string{"1.9.9", "2.0.0"}},
	{"~>1.2", []string{"1.2.5", "1.3.0"}},
	{"~ 1.2.3", []string{"1.2.4"}},
	{"~0.2.3", []string{"0.2.9", "0.3.0"}},
	{"~1.2.3-beta.2", []string{"1.2.3-beta.4", "1.2.4-beta.2", "1.2.4", "1.2.3-alpha"}},
	{"~x", []string{"3.2.1"}},
	{"^1.2.3", []string{"1.2.3", "1.9.9", "2.0.0", "1.2.2", "2.0.0-a"}},
	{"^0.2.3", []string{"0.2.3", "0.2.9", "0.3.0"}},
	{"^0.0.3", []string{"0.0.3", "0.0.4"}},
	{"^0.0", []string{"0.0.9", "0.1.0"}},
	{"^0.x", []string{"0.9.9", "1.0.0"}},
	{"^0", []string{"0.9.9", "1.0.0"}},
	{"^0.0.x", []string{"0.0.9", "0.1.0"}},
	{"^1.2.x", []string{"1.2.0", "1.9.0", "2.0.0"}},
	{"^1.x", []string{"1.0.0", "2.0.0"}},
	{"^1.2.3-beta.2", []string{"1.2.3-beta.2", "1.2.3-beta.10", "1.2.3", "1.2.4-beta.2", "1.9.0"}},
	{"^0.0.3-beta", []string{"0.0.3-pr.2", "0.0.3", "0.0.4"}},
	{"^x", []string{"1.0.0", "1.0.0-a"}},
	{"1.0.0 - 2.0.0", []string{"1.0.0", "2.0.0", "2.0.1", "0.9.9"}},
	{"1.2 - 2.3", []string{"1.2.0", "2.3.9", "2.4.0", "1.1.9"}},
	{"1 - 2", []string{"2.9.9", "3.0.0", "1.0.0"}},
	{"x - 2.0.0", []string{"0.0.1", "2.0.1"}},
	{"1.0.0 - x", []string{"9.0.0", "0.9.0"}},
	{"1.0.0 - 2.0.0 || 3.x", []string{"1.5.0", "2.5.0", "3.1.0", "4.0.0"}},
	{"^1.0.0||^2.0.0", []string{"1.1.0", "2.1.0", "3.0.0"}},
	{"1||2 - 3", []string{"1.9.0", "2.0.0", "3.9.0", "4.0.0"}},
	{"<1.0.0 || >=2.3.1 <2.4.5 || >=2.5.2 <3.0.0", []string{"0.9.0", "1.0.0", "2.3.1", "2.4.5", "2.6.0", "3.0.0"}},
	{"1.2.7 || >=1.2.9 <2.0.0", []string{"1.2.7", "1.2.8", "1.2.9", "1.4.6", "2.0.0"}},
	{">1.2.3-alpha.3", []string{"1.2.3-alpha.7", "3.4.5-alpha.9", "1.2.3", "1.2.3-alpha.2", "3.4.5"}},
	{">=1.0.0-rc.1 <1.0.0", []string{"1.0.0-rc.1", "1.0.0-rc.2", "1.0.0-beta", "1.0.0"}},
	{">=1.0.0-alpha <2.0.0-alpha", []string{"1.0.0-beta", "2.0.0-a", "1.5.0-beta", "1.5.0"}},
	{"1.0.0-alpha || 1.0.0-beta", []string{"1.0.0-alpha", "1.0.0-beta", "1.0.0"}},
	{">1.0.0-a.10", []string{"1.0.0-a.9", "1.0.0-a.11", "1.0.0-a.b", "1.0.0-a.10.0"}},
	{"=1.0.0-1", []string{"1.0.0-1", "1.0.0-01", "1.0.0-2"}},
	{"999999999999999.0.0", []string{"999999999999999.0.0"}},
	{"1.2.3 1.2.4", []string{"1.2.3", "1.2.4"}},
	{">=2 <1", []string{"1.5.0"}},
	{">=2.0.0 <=1.x", []string{"1.5.0", "2.0.0"}},
	// Versions that are none.
	{"*", []string{"1.2", "latest", "2024-11-05", "1.2.3.4", "01.2.3", "v2.0.0", "", "1.0.0-a..b", "9007199254740992.0.0"}},
	// Constraints that are none.
	{"latest", []string{"1.0.0"}},
	{"1.2.3.4", []string{"1.2.3"}},
	{"01.2.3", []string{"1.2.3"}},
	{"1.2-beta", []string{"1.2.0"}},
	{">>1.0.0", []string{"2.0.0"}},
	{"1.0.0 | 2.0.0", []string{"1.0.0"}},
	{"1..3", []string{"1.0.3"}},
	{"> ", []string{"1.0.0"}},
	{"1.0.0 -2.0.0", []string{"1.0.0"}},
}

// TestRangeAgreesWithNPM asks npm's own semver about every pair.
func TestRangeAgreesWithNPM(t *testing.T) {
	module := npmSemver(t)
	type asked struct{ Constraint, Version string }
	var list []asked
	for _, p := range pairs {
		for _, v := range p.versions {
			list = append(list, asked{p.constraint, v})
		}
	}
	if len(list) < 60 {
		t.Fatalf("there are %d pairs", len(list))
	}
	input, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "-e", `
const semver = require(process.argv[1]);
const list = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(list.map(p => semver.validRange(p.Constraint) !== null && semver.satisfies(p.Version, p.Constraint))));`, module)
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []bool
	if err := json.Unmarshal(out, &want); err != nil || len(want) != len(list) {
		t.Fatalf("npm gave %d answers: %v", len(want), err)
	}
	yes := 0
	for i, p := range list {
		r, err := registry.ParseRange(p.Constraint)
		v, ok := registry.ParseVersion(p.Version)
		got := err == nil && ok && r.Contains(v)
		if got != want[i] {
			t.Errorf("%q takes %q: %v, and npm says %v", p.Constraint, p.Version, got, want[i])
		}
		if want[i] {
			yes++
		}
	}
	t.Logf("%d pairs, of which npm takes %d", len(list), yes)
	if yes < 30 || yes > len(list)-30 {
		t.Errorf("npm takes %d of %d pairs: the table tries only one side", yes, len(list))
	}
}

// npmSemver finds the semver that npm itself uses.
func npmSemver(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("npm", "root", "-g").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "npm", "node_modules", "semver")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "package.json"))
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("npm's own semver is not here: %v", err)
		}
		t.Skipf("npm's own semver is not here: %v", err)
	}
	return dir
}

// What other tools write means what it says.
func TestRangeOfOtherTools(t *testing.T) {
	for _, tt := range []struct {
		constraint, version string
		want                bool
	}{
		{">=1.0.0, <2.0.0", "1.5.0", true},
		{">=1.0.0,<2.0.0", "2.0.0", false},
		{"!=1.2.3", "1.2.3", false},
		{"!=1.2.3", "1.2.4", true},
		{"=>1.2.3", "1.2.4", true},
		{"=<1.2.3", "1.2.4", false},
		{"!=1.x", "2.0.0", false},
	} {
		r, err := registry.ParseRange(tt.constraint)
		v, ok := registry.ParseVersion(tt.version)
		if err != nil || !ok || r.Contains(v) != tt.want {
			t.Errorf("%q takes %q: %v, %v; want %v", tt.constraint, tt.version, !tt.want, err, tt.want)
		}
	}
}

func FuzzRange(f *testing.F) {
	for _, p := range pairs {
		f.Add(p.constraint, p.versions[0])
	}
	f.Fuzz(func(t *testing.T, constraint, version string) {
		_, err := registry.ParseRange(constraint)
		v, ok := registry.ParseVersion(version)
		if ok {
			if again, ok := registry.ParseVersion(v.String()); !ok || again.Compare(v) != 0 {
				t.Errorf("%q is read as %q, which is another", version, v)
			}
		}
		if err != nil || !ok {
			return
		}
		if exact, err := registry.ParseRange(v.String()); err != nil || !exact.Contains(v) {
			t.Errorf("%q is not in the range of itself: %v", version, err)
		}
		either, err := registry.ParseRange(constraint + " || " + v.String())
		if err == nil && !either.Contains(v) {
			t.Errorf("%q or %q leaves out %q", constraint, version, version)
		}
	})
}
