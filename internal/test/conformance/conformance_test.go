// Package conformance runs the official MCP conformance suite. A gateway has no tools of its own, so the test compares the
// suite's results for its own server with the results for the same server through ambit.
package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/serve/front"
)

func total(of map[string]counts) (sum counts) {
	for _, c := range of {
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
		least     int // minimum of passed checks, so that the comparison is not empty
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
				"input-required-result-multiple-input-requests", // sampling and roots among them
				"input-required-result-capability-check",        // whether sampling is declared
				"input-required-result-non-tool-request",        // prompts/get
				"caching",                                       // lists of prompts and resources
				"server-stateless",                              // announces a change of prompts
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.revision, func(t *testing.T) {
			url := fixture(t, program, tt.stateless)
			// The direct run also makes the fixture add its extra tool, which ambit would rightly report as drift.
			direct := suite(t, url, tt.args...)
			if got := total(direct); got.passed < tt.least {
				t.Errorf("direct: %d passed, fewer than %d", got.passed, tt.least)
			}
			// Some scenarios require a notification within a second and a half, and fail on a busy machine. A real
			// difference fails in every try.
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
					t.Log("again:", strings.Join(problems, "; "))
					direct = suite(t, url, tt.args...)
				}
			}
			t.Run("everything exposed", func(t *testing.T) { same(t, nil, front.Exposable...) })
			t.Run("defaults", func(t *testing.T) { same(t, tt.hidden) })
		})
	}
}

// compare checks that exactly the scenarios in differ have different counts.
func compare(direct, through map[string]counts, differ []string) (problems []string) {
	tell := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		got, ran := through[name]
		switch same := ran && got == direct[name]; {
		case !same && !slices.Contains(differ, name):
			tell("%s: direct %+v, through ambit %+v", name, direct[name], got)
		case same && slices.Contains(differ, name):
			tell("%s: it is to differ, and does not", name)
		}
	}
	if len(through) != len(direct) {
		tell("%d scenarios direct, %d through ambit", len(direct), len(through))
	}
	return problems
}
