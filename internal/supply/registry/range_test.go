package registry_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/supply/registry"
)

// pairs lists constraints and the versions that the test checks against each constraint. The expected
// results come from npm's own semver library.
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
	{"~0.0.0", []string{"0.0.5", "0.1.0", "5.0.0"}},
	{"^0.0.0", []string{"0.0.0", "0.0.1"}},
	{"<=x", []string{"0.0.0", "5.0.0"}},
	{"=v1.2.3", []string{"1.2.3"}},
	{"^v1.2", []string{"1.3.0", "2.0.0"}},
	// A prerelease matches only a group that names a prerelease with the same three numbers.
	{"1.2.3-alpha || >=1.0.0-0", []string{"1.2.3-beta", "1.2.3-alpha", "1.0.0-1", "1.2.3"}},
	{"11.2.3-a || >=0.0.1-0", []string{"1.2.3-b", "0.0.1-1"}},
	{">=1.0.0-1.2.3-b", []string{"1.2.3-c", "1.0.0-1.2.3-c", "1.2.3"}},
	{">=1.0.0-a+1.2.3-b", []string{"1.2.3-c", "1.0.0-b"}},
	{">1.2 <=1.3.0-beta", []string{"1.3.0-alpha"}},
	{"<1.2 >=1.2.0-a", []string{"1.2.0-b"}},
	{">=1.2.0-a <2", []string{"1.2.0-b", "1.9.0"}},
	{"9007199254740991.0.0", []string{"9007199254740991.0.0"}},
	// Invalid versions.
	{"*", []string{"1.2", "latest", "2024-11-05", "1.2.3.4", "01.2.3", "v2.0.0", "", "1.0.0-a..b", "9007199254740992.0.0"}},
	// Invalid constraints.
	{"latest", []string{"1.0.0"}},
	{"1.2.3.4", []string{"1.2.3"}},
	{"01.2.3", []string{"1.2.3"}},
	{"1.2-beta", []string{"1.2.0"}},
	{"9007199254740992.0.0", []string{"9007199254740992.0.0"}},
	{"!=1.x", []string{"2.0.0", "1.0.0"}},
	{"1.2.x.x", []string{"1.2.0"}},
	{"1.2.3+a..b", []string{"1.2.3"}},
	{"1.0.0 - 2.0.0 3.0.0", []string{"1.5.0"}},
	{">>1.0.0", []string{"2.0.0"}},
	{"1.0.0 | 2.0.0", []string{"1.0.0"}},
	{"1..3", []string{"1.0.3"}},
	{"> ", []string{"1.0.0"}},
	{"1.0.0 -2.0.0", []string{"1.0.0"}},
}

// The list refused contains constraints with a rare spelling. npm accepts these constraints, but
// ambit refuses them. The semver library would interpret them differently than npm.
var refused = []string{
	">x", "<x", ">=x", "<=x", "<=*", "~x", "^x", "x - 2.0.0", "1.0.0 - x", "~1.x.3", "^1.x.3", "1.x.3 - 2.x.1", "~0.0.0",
	">1.2 <=1.3.0-beta", "<1.2 >=1.2.0-a", ">=1.2.0-a <2", "9007199254740991.0.0",
}

// ambit and npm's own semver library give the same result for every pair, except for refused
// constraints.
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
		t.Fatalf("the table has %d pairs, want at least 60", len(list))
	}
	input, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "-e", `
const semver = require(process.argv[1]);
const list = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(list.map(p => ({
  Valid: semver.validRange(p.Constraint) !== null, In: semver.satisfies(p.Version, p.Constraint)}))));`, module)
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []struct{ Valid, In bool }
	if err := json.Unmarshal(out, &want); err != nil || len(want) != len(list) {
		t.Fatalf("npm gave %d answers, want %d: %v", len(want), len(list), err)
	}
	yes := 0
	for i, p := range list {
		r, err := registry.ParseRange(p.Constraint)
		v, ok := registry.ParseVersion(p.Version)
		if want[i].In {
			yes++
		}
		if rare := slices.Contains(refused, p.Constraint); (err == nil) != (want[i].Valid && !rare) || rare && !want[i].Valid {
			t.Errorf("ParseRange(%q) returned the error %v; npm accepts the constraint: %v", p.Constraint, err, want[i].Valid)
			continue
		}
		if got := ok && r.Contains(v); err == nil && got != want[i].In {
			t.Errorf("the range %q contains the version %q: got %v, but npm's result is %v",
				p.Constraint, p.Version, got, want[i].In)
		}
	}
	t.Logf("the version is in the range for %d of %d pairs", yes, len(list))
	if yes < 30 || yes > len(list)-30 {
		t.Errorf("the version is in the range for %d of %d pairs; the table needs at least 30 pairs of each result", yes, len(list))
	}
}

// npmSemver returns the folder of the semver library that npm itself uses. It skips the test if there is
// none, except in CI.
func npmSemver(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("npm", "root", "-g").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "npm", "node_modules", "semver")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "package.json"))
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("npm's own semver is not installed: %v", err)
		}
		t.Skipf("npm's own semver is not installed: %v", err)
	}
	return dir
}

// ParseRange also understands operators from other tools, which npm does not know.
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
	} {
		r, err := registry.ParseRange(tt.constraint)
		v, ok := registry.ParseVersion(tt.version)
		if err != nil || !ok || r.Contains(v) != tt.want {
			t.Errorf("%q contains %q: got %v, %v; want %v", tt.constraint, tt.version, !tt.want, err, tt.want)
		}
	}
}

// ParseRange refuses != with a partial version: npm has no operator !=, and excluding 1.x would
// result in two ranges.
func TestRangeRefusesUnequalPartial(t *testing.T) {
	for _, s := range []string{"!=1.x", "!=1", "!=x"} {
		if _, err := registry.ParseRange(s); err == nil {
			t.Errorf("ParseRange accepted %q", s)
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
				t.Errorf("%q is parsed as %q, but parsing %q gives another version", version, v, v)
			}
		}
		if err != nil || !ok {
			return
		}
		if exact, err := registry.ParseRange(v.String()); err != nil || !exact.Contains(v) {
			t.Errorf("the version %q is not in the range %q: %v", version, v, err)
		}
		either, err := registry.ParseRange(constraint + " || " + v.String())
		if err == nil && !either.Contains(v) {
			t.Errorf("the range %q || %q does not contain %q", constraint, v, version)
		}
	})
}
