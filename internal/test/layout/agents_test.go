package layout

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agents"
	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// A command runs ambit with a shipped agent. In args, PATH stands for the path of the agent, and ME stands for the
// principal of the test.
type command struct {
	args string // the arguments, separated by |
	code int
	want string // a part of the expected output
}

// commands lists the commands to run with each agent. These commands need no downloads. The tool servers of
// the Matrix and GPARS agents come from npm. Only tests with the build tag prove start these servers.
var commands = map[string][]command{
	"default": {
		{"verify|--offline|PATH", 0, "ok: matrix://agent/default"},
		{`why|PATH|read_file|--input|{"path":"x"}`, 0, "the call would be allowed"},
		{`why|PATH|fetch_youtube_transcript|--input|{"url":"https://example.com"}`, 1, "side_effect_denied"},
	},
	"neo": {
		{"verify|--offline|PATH", 0, "ok: matrix://agent/neo"},
		{"why|PATH|read_graph", 0, "the call would be allowed"},
		{`why|PATH|read_file|--input|{"path":"x"}`, 1, "unknown_tool"},
	},
	"forge": {
		{"verify|--offline|PATH", 0, "ok: matrix://agent/forge"},
		{`why|PATH|fetch_youtube_transcript|--input|{"url":"https://example.com"}`, 0, "the call would be allowed"},
	},
	"gpars-researcher": {
		{`why|PATH|read_file|--input|{"path":"x"}`, 1, "scope_not_granted"},
		{"grant|gpars-researcher|--server|registry.openmcp.org/filesystem|--scope|read", 0, "granted: read"},
		{`why|PATH|read_file|--input|{"path":"x"}`, 0, "the call would be allowed"},
		{`why|PATH|write_file|--input|{"path":"x","content":"y"}`, 1, "scope_not_granted"},
	},
	"research": {
		{"dispatch|PATH|What is an audit log for?", 1, "capability_missing"},
		{"grant|ME|tool.corpus_search", 0, "granted: tool.corpus_search"},
		{"dispatch|PATH|What is an audit log for?", 0, "Tamper-evident logs"},
	},
	"wordcount": {
		{"dispatch|PATH|One two. Three four five.", 0, "5 words, 2 sentences"},
	},
	"static-recipe": {
		{"export|PATH|--as|recipe", 0, "# Plain-Language Editor"},
	},
	"mcp-tool": {
		{`call|PATH|report_outline|--input|{"range":"last-7-days","audience":"us"}`, 0, "Its readers are us."},
		{`call|PATH|measure_text|--input|{"text":"one two"}`, 0, "2 words"},
		{`call|PATH|get_traffic_summary|--input|{"range":"last-7-days"}`, 3, "credential_missing"},
		{`why|PATH|increase_campaign_budget|--input|{"campaign":"a","amount":101,"currency":"EUR","reason":"it sold out twice"}`, 1, "amount_exceeded"},
	},
	"autonomous-agent": {
		{`call|PATH|draft_reply|--input|{"kind":"wish","summary":"shorter words"}`, 0, "which is a wish: shorter words"},
		{`call|PATH|draft_reply|--input|{"kind":"order","summary":"x"}`, 1, "input_invalid"},
	},
	"skills-bundle": {
		{"export|PATH|--as|recipe", 0, "commit-message"},
	},
	"code-bundle": {
		{`call|PATH|repository_digest|--input|{"commits":[{"message":"feat: one","author":"a"}]}`, 0, "One commit."},
	},
	"code-bundle-python": {
		{`call|PATH|profile_table|--input|{"csv":"a,b\n1,x\n3,\n"}`, 0, `"rows": 2`},
	},
	"code-bundle-native": {
		{`call|PATH|convert_unit|--input|{"value":1,"from":"mi","to":"km"}`, 0, "1 mi = 1.609344 km"},
	},
}

// TestShippedAgents runs the commands of every agent that ships.
func TestShippedAgents(t *testing.T) {
	if names := slices.Sorted(maps.Keys(commands)); !slices.Equal(names, agents.Names()) {
		t.Fatalf("the test has commands for %q, want %q", names, agents.Names())
	}
	sandboxtest.Need(t)
	for name, list := range commands {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AMBIT_HOME", t.TempDir())
			t.Setenv("ANALYTICS_TOKEN", "")
			file, _ := agents.Find(name)
			path := filepath.Join(root, "agents", filepath.FromSlash(file))
			fill := strings.NewReplacer("PATH", path, "ME", identity.LocalName())
			list = append([]command{{"validate|PATH", 0, ", valid"}, {"inspect|PATH", 0, "digest"}}, list...)
			for _, c := range list {
				var out bytes.Buffer
				args := strings.Split(c.args, "|")
				for i := range args {
					args[i] = fill.Replace(args[i])
				}
				code := cli.Run(t.Context(), args, strings.NewReader(""), &out, &out)
				if code != c.code || !strings.Contains(out.String(), c.want) {
					t.Fatalf("ambit %s: got exit code %d:\n%s", strings.Join(args, " "), code, out.String())
				}
			}
		})
	}
}

// TestStarters checks that the starters of ambit init are valid.
func TestStarters(t *testing.T) {
	t.Setenv("AMBIT_HOME", t.TempDir())
	for _, dialect := range []string{"matrix", "gpars", "covenant", "findagent"} {
		var out bytes.Buffer
		file := filepath.Join(root, "agents", filepath.FromSlash(agents.Starter(dialect)))
		if code := cli.Run(t.Context(), []string{"validate", "--dialect", dialect, file}, strings.NewReader(""), &out, &out); code != 0 {
			t.Errorf("validating %s: got exit code %d: %s", file, code, out.String())
		}
	}
}
