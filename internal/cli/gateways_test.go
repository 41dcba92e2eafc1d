//go:build linux

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// keyHolder sends a key with every request.
type keyHolder string

func (k keyHolder) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// client connects to an agent of the daemon with the given protocol version.
func (p *process) client(t *testing.T, agent, key, version string) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: p.url + "/mcp/" + agent, HTTPClient: &http.Client{Transport: keyHolder(key)}, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// callText calls a tool and returns the text of its answer.
func callText(ctx context.Context, s *mcp.ClientSession, tool, text string) string {
	result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": text}})
	if err != nil {
		return "error: " + err.Error()
	}
	if len(result.Content) != 1 {
		return fmt.Sprintf("%d contents", len(result.Content))
	}
	content, _ := result.Content[0].(*mcp.TextContent)
	if content == nil {
		return "no text"
	}
	return content.Text
}

// TestGateways runs two daemons on one store. Clients reach the same agents through both daemons. A rate limit counts
// the calls of both daemons, and one journal records all calls. At shutdown, a daemon finishes its running call.
func TestGateways(t *testing.T) {
	began, release := make(chan struct{}, 1), make(chan struct{})
	upstream := mcp.NewServer(&mcp.Implementation{Name: "post", Version: "1.0.0"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	answer := func(text string) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sent " + text}}}, nil, nil
	}
	mcp.AddTool(upstream, &mcp.Tool{Name: "send"}, func(_ context.Context, _ *mcp.CallToolRequest, i in) (*mcp.CallToolResult, any, error) {
		return answer(i.Text)
	})
	mcp.AddTool(upstream, &mcp.Tool{Name: "ponder"}, func(ctx context.Context, _ *mcp.CallToolRequest, i in) (*mcp.CallToolResult, any, error) {
		began <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return answer(i.Text)
	})
	world := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return upstream }, nil))
	defer world.Close()
	agents := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(agents, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("post.json", `{"schema_version": 1, "agent": "matrix://agent/post", "allowed_side_effects": ["write"], "servers": [
  {"alias": "post", "transport": "http", "endpoint": "`+world.URL+`", "version": "1.0.0",
   "tools": [{"name": "send", "side_effect_class": "write"}, {"name": "ponder", "side_effect_class": "write"}]}]}`)
	put("few/findagent.json", `{"name": "Few", "description": "Writes a few prompts.", "kind": "mcp-tool",
  "system_prompt": "You write prompts, and no more of them than you may in an hour.", "example_prompts": ["Write about bees."],
  "tools": [{"name": "write", "description": "Write a prompt.", "action": {"type": "prompt-template", "template": "Write about {text}."},
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false}}],
  "guardrails": {"output": {"secret_leak_scan": true}, "actions": {"write": {"rate_limit": "3/hour"}}},
  "delivery": "mcp.stdio", "exec": "user-local", "targets": ["cli"]}`)

	statetest.Places(t, func(t *testing.T, place string) {
		t.Setenv("AMBIT_HOME", filepath.Join(t.TempDir(), "home"))
		var store []string // the --store flag; empty for SQLite, which uses the store of the home
		if strings.HasPrefix(place, "postgres://") {
			store = []string{"--store", place}
		}
		ambit := func(args ...string) []byte {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "ambit", append(args, store...)...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %v %s %s", args, err, out, stderr.String())
			}
			return out
		}
		first, second := startDaemon(t, append(store, "--agents", agents)...), startDaemon(t, append(store, "--agents", agents)...)
		key := strings.TrimSpace(string(ambit("key", "new", "--all", "--principal", "ci@example.com")))
		a, b := first.client(t, "post", key, "2025-11-25"), second.client(t, "post", key, "2026-07-28")
		for i := range 3 {
			text := fmt.Sprint("letter ", i)
			for name, s := range map[string]*mcp.ClientSession{"first": a, "second": b} {
				if got := callText(t.Context(), s, "send", text); got != "sent "+text {
					t.Errorf("through the %s daemon: %s", name, got)
				}
			}
		}
		few := []*mcp.ClientSession{first.client(t, "few", key, "2026-07-28"), second.client(t, "few", key, "2025-11-25")}
		for i := range 6 {
			got, want := callText(t.Context(), few[i%2], "write", "bees"), "Write about bees."
			if i >= 3 {
				want = "rate_limited: "
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("call %d of a tool with the limit 3/hour: got %s, want %s", i+1, got, want)
			}
		}

		// Stop the first daemon during a call.
		pondered := make(chan string, 1)
		go func() { pondered <- callText(context.Background(), a, "ponder", "this") }()
		<-began
		first.signal(syscall.SIGTERM)
		deadline := time.Now().Add(30 * time.Second)
		for {
			resp, err := http.Get(first.url + "/healthz")
			if err != nil {
				break // the daemon accepts no more requests
			}
			resp.Body.Close()
			if time.Now().After(deadline) {
				t.Fatal("the stopped daemon still accepts requests")
			}
			time.Sleep(time.Millisecond) // a poll: there is no event to wait for
		}
		select {
		case got := <-pondered:
			t.Fatalf("the call ended before the server answered: %s", got)
		case <-first.ended:
			t.Fatalf("the daemon exited before its call ended: %v", first.err)
		default:
		}
		release <- struct{}{}
		if got := <-pondered; got != "sent this" {
			t.Errorf("the call that was running at shutdown returned %s, want its answer", got)
		}
		first.waitForExit()
		if got := callText(t.Context(), b, "send", "one more"); got != "sent one more" {
			t.Errorf("a call through the second daemon returned %s, want its answer", got)
		}
		second.stop()

		var shown struct {
			Records []struct{ Agent, Tool, Principal, Decision, Code string }
		}
		if err := json.Unmarshal(ambit("journal", "show", "--json"), &shown); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, r := range shown.Records {
			count[strings.Join([]string{r.Agent, r.Tool, r.Principal, r.Decision, r.Code}, " ")]++
		}
		want := map[string]int{
			fmt.Sprintf(" key new %s allow ", identity.LocalName()): 1,
			"post send ci@example.com allow ":                       7, "post ponder ci@example.com allow ": 1,
			"few write ci@example.com allow ": 3, "few write ci@example.com deny rate_limited": 3,
		}
		if fmt.Sprint(count) != fmt.Sprint(want) {
			t.Errorf("the journal has %v, want %v", count, want)
		}
		var report struct {
			OK      bool
			Records int
		}
		if err := json.Unmarshal(ambit("journal", "verify", "--json"), &report); err != nil || !report.OK || report.Records < 14 {
			t.Errorf("journal verify: got %+v, %v", report, err)
		}
	})
}
