package gpars

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
)

func TestConstraint(t *testing.T) {
	const (
		no     = "no"
		yes    = "yes"
		notNPM = "yes, but npm cannot parse it"
	)
	tests := []struct{ constraint, want string }{
		{"1.2.3", yes},
		{">=1.2.3", yes},
		{"^1.2.3", yes},
		{"~1.2.3", yes},
		{"~>1.2", yes},
		{"=1.2.3", yes},
		{"v1.2.3", yes},
		{">= 1.2.3 < 2.0.0", yes},
		{"\t>1 <=  2 ", yes},
		{"*", yes},
		{"x", yes},
		{"1.x", yes},
		{"1.2.*", yes},
		{"1", yes},
		{"1.0.0 - 2.0.0", yes},
		{"1.0.0 - 2.0.0 || 3.x", yes},
		{"^1.0.0||^2.0.0", yes},
		{"1.2.3-beta.1+build.05", yes},
		{"2026.8.31", yes},
		{"999999999999999.0.0", yes},

		{">=1.0.0, <2.0.0", notNPM},
		{">=1.0.0,<2.0.0", notNPM},
		{"!=1.2.3", notNPM},
		{"=>1.2.3", notNPM},
		{"=<1.2.3", notNPM},

		{"", no},
		{" ", no},
		{"latest", no},
		{"next", no},
		{"not a version", no},
		{"1.2.3.4", no},
		{"01.2.3", no},
		{"1.2.3-01", no},
		{"1.2.3-", no},
		{"1.2.3+", no},
		{"1.2.3-a..b", no},
		{"1.2-beta", no},
		{"1..3", no},
		{"1.", no},
		{"-1.0.0", no},
		{"!1.0.0", no},
		{">", no},
		{">>1.0.0", no},
		{">=1.0.0<2.0.0", no},
		{">=1.0.0 - 2.0.0", no},
		{"1.0.0 -2.0.0", no},
		{"1.0.0 - 2.0.0 3.0.0", no},
		{"1.0.0,", no},
		{"1.0.0 ||", no},
		{"|| 1.0.0", no},
		{"1.0.0 | 2.0.0", no},
		{"1.x2", no},
		{"9999999999999999.0.0", no},
		{"1.0.0\n", no},
		{"1.0.0\x00", no},
		{"sha256:0123", no},
		{"https://example.com/x.tgz", no},
		{strings.Repeat("1 || ", 31) + "1", yes},
		{strings.Repeat("1 || ", 32) + "1", no},
		{"1.2.3-" + strings.Repeat("a", 250), yes},
		{"1.2.3-" + strings.Repeat("a", 251), no},
	}
	for _, test := range tests {
		got := no
		if ok, npm := isConstraint(test.constraint); ok && npm {
			got = yes
		} else if ok {
			got = notNPM
		}
		if got != test.want {
			t.Errorf("is %q a constraint: got %s, want %s", test.constraint, got, test.want)
		}
		checkConstraint(t, test.constraint)
	}
}

// checkConstraint compares isConstraint with the library that resolves constraints and with the JSON Schema.
func checkConstraint(t *testing.T, s string) {
	t.Helper()
	ok, npm := isConstraint(s)
	if npm && !ok {
		t.Errorf("isConstraint(%q) reports that npm accepts the constraint, but rejects it itself", s)
	}
	if _, err := semver.NewConstraint(addSpaces(s)); ok && err != nil {
		t.Errorf("isConstraint accepts %q, but the library returns an error: %v", s, err)
	}
	if bySchema := len(s) <= maxConstraint && constraintPattern.MatchString(s); ok != bySchema {
		t.Errorf("constraint %q: accepted by the rules = %v, accepted by the schema = %v, want the same",
			s, ok, bySchema)
	}
}

func TestResolvable(t *testing.T) {
	c, err := semver.NewConstraint(addSpaces("1||2 - 3"))
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]bool{"1.9.0": true, "2.0.0": true, "3.9.0": true, "4.0.0": false, "0.9.0": false} {
		if c.Check(semver.MustParse(version)) != want {
			t.Errorf("the constraint matches %s: got %v, want %v", version, !want, want)
		}
	}
}

var (
	constraintPattern = schemaPattern("$defs", "constraint")
	serverIDPattern   = schemaPattern("$defs", "server_id")
	versionPattern    = schemaPattern("properties", "version")
)

// schemaPattern returns a pattern from the dialect's JSON Schema.
func schemaPattern(section, name string) *regexp.Regexp {
	b, err := os.ReadFile("../schema/gpars.json")
	if err != nil {
		panic(err)
	}
	var schema map[string]json.RawMessage
	var entries map[string]struct{ Pattern string }
	if err := json.Unmarshal(b, &schema); err != nil {
		panic(err)
	}
	if err := json.Unmarshal(schema[section], &entries); err != nil {
		panic(err)
	}
	return regexp.MustCompile(entries[name].Pattern)
}

func FuzzConstraint(f *testing.F) {
	for _, s := range []string{
		"1.2.3", ">=1.2.3", "^1.2.3 || ~2.x", "1.0.0 - 2.0.0", ">= 1, < 2 !=1.5", "v1.2.3-beta.1+b", "*", "=>1", "latest",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		checkConstraint(t, s)
		if isServerID(s) != serverIDPattern.MatchString(s) {
			t.Errorf("server id %q: the rules and the schema disagree", s)
		}
		if isVersion(s) != versionPattern.MatchString(s) {
			t.Errorf("version %q: the rules and the schema disagree", s)
		}
	})
}

func BenchmarkConstraint(b *testing.B) {
	for _, s := range []string{"1.2.3", ">=1.0.0", "^1.2.3 || ^2.0.0"} {
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				isConstraint(s)
			}
		})
	}
}
