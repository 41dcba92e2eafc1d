// Package conformance holds ambit to the official conformance suite of MCP. A
// gateway has no tools of its own, so what can be told is whether the suite
// finds the same in front of ambit as in front of the server that it was
// written for.
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
		least     int // that pass, so that nobody compares nothing with nothing
		// hidden are the scenarios that differ where nothing is exposed: they are
		// about resources, prompts, completion, sampling and roots.
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
			// It also makes the fixture add the tool that it adds when it is asked to
			// change its tools; ambit would rightly take that for drift.
			direct := suite(t, url, tt.args...)
			if got := total(direct); got.passed < tt.least {
				t.Errorf("direct: %d passed, fewer than %d", got.passed, tt.least)
			}
			// Several times: some scenarios want an announcement within a second
			// and a half, and count one that is late as none. What really differs does
			// so again.
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

// compare wants the same counts for every scenario, except that those which
// differ are exactly the ones named.
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
