// Package conformance runs the official MCP conformance suite. A gateway has no tools of its own, so the test
// runs the suite twice. The first run uses the suite's own server. The second run uses the same server behind
// ambit. Then the test compares the results.
package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/serve/front"
)

func total(results map[string]counts) (sum counts) {
	for _, c := range results {
		sum.passed += c.passed
		sum.failed += c.failed
	}
	return sum
}

func TestConformance(t *testing.T) {
	nodeFor(t)
	program := build(t, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	tests := []struct {
		revision  string
		args      []string
		stateless bool
		least     int // the minimum number of passed checks, so that the test does not compare empty results
		// hidden lists the scenarios that differ if nothing is exposed: they are about resources, prompts, completion,
		// sampling and roots.
		hidden []string
	}{
		{
			revision: "2025-11-25", args: []string{"--spec-version", "2025-11-25"}, least: 70,
			hidden: []string{
				"completion-complete", "tools-call-sampling",
				"prompts-list", "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
				"resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read", "resources-subscribe", "resources-unsubscribe",
			},
		},
		{
			revision: "2026-07-28", args: []string{"--requirements", "2026-07-28"}, stateless: true, least: 160,
			hidden: []string{
				"completion-complete",
				"prompts-list", "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
				"resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read", "sep-2164-resource-not-found",
				"input-required-result-basic-sampling", "input-required-result-basic-list-roots",
				"input-required-result-multiple-input-requests", // this scenario includes sampling and roots
				"input-required-result-capability-check",        // this scenario checks whether sampling is declared
				"input-required-result-non-tool-request",        // uses prompts/get
				"caching",                                       // this scenario uses lists of prompts and resources
				"server-stateless",                              // this scenario expects a notification about changed prompts
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.revision, func(t *testing.T) {
			url := fixture(t, program, tt.stateless)
			// The direct run also makes the fixture add its extra tool. ambit would rightly report this tool as
			// drift.
			direct := suite(t, url, tt.args...)
			if got := total(direct); got.passed < tt.least {
				t.Errorf("direct: %d checks passed, want at least %d", got.passed, tt.least)
			}
			// Some scenarios require a notification within 1.5 seconds, and fail on a busy machine. A real
			// difference makes every attempt fail.
			same := func(t *testing.T, differ []string, expose ...string) {
				t.Helper()
				address := serve(t, url, expose...)
				for try := 1; ; try++ {
					through := suite(t, address, tt.args...)
					problems := compare(direct, through, differ)
					t.Logf("direct %+v, through ambit %+v", total(direct), total(through))
					if len(problems) == 0 {
						return
					}
					if try == 3 {
						t.Fatal(strings.Join(problems, "\n"))
					}
					t.Log("retrying after:", strings.Join(problems, "; "))
					direct = suite(t, url, tt.args...)
				}
			}
			t.Run("everything exposed", func(t *testing.T) { same(t, nil, front.Exposable...) })
			t.Run("defaults", func(t *testing.T) { same(t, tt.hidden) })
		})
	}
}

// compare returns a problem for each scenario with an unexpected result. The parameter differ lists the
// scenarios whose results must differ. The results of all other scenarios must be the same.
func compare(direct, through map[string]counts, differ []string) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		got, ran := through[name]
		switch same := ran && got == direct[name]; {
		case !same && !slices.Contains(differ, name):
			add("%s: direct %+v, through ambit %+v", name, direct[name], got)
		case same && slices.Contains(differ, name):
			add("%s: the results are the same, but should differ", name)
		}
	}
	if len(through) != len(direct) {
		add("%d scenarios ran directly, but %d through ambit", len(direct), len(through))
	}
	return problems
}
