package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/store/identity"
)

// maxFunctions is the maximum number of ambit's functions between the HTTP handler of a call and the
// write to a tool server.
const maxFunctions = 15

// TestCallPath reads the stacks of all goroutines while a tool server handles a call. The functions
// between the HTTP handler and the transport's send must be those that ARCHITECTURE.md lists.
func TestCallPath(t *testing.T) {
	stacks := make(chan string, 1)
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	for _, name := range []string{"look", "change"} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				buf := make([]byte, 4<<20)
				stacks <- string(buf[:runtime.Stack(buf, true)])
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
			})
	}
	far := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() {
		far.CloseClientConnections()
		far.Close()
	})
	r := hostedRig(t, map[string]string{"near.json": `{
  "schema_version": 1, "agent": "matrix://agent/near", "allowed_side_effects": ["read", "write"],
  "servers": [{"alias": "far", "transport": "http", "endpoint": "` + far.URL + `", "version": "1.0.0", "tools": [
    {"name": "look", "side_effect_class": "read"}, {"name": "change", "side_effect_class": "write"}]}]}`}, nil)
	r.Prove(t.Context())
	key := r.key(identity.KeySpec{Agents: []string{"near"}, Principal: "ci@example.com"})
	documented := documentedPath(t)
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		for _, tool := range []string{"look", "change"} {
			t.Run(tool+" in "+version, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
				session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
					Endpoint: r.server.URL + "/mcp/near", HTTPClient: &http.Client{Transport: keyed{key}},
				}, &mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
				if err != nil || result.IsError {
					t.Fatalf("the call ended with %+v, %v", result, err)
				}
				path := pathOf(t, <-stacks)
				if len(path) > maxFunctions {
					t.Errorf("the call passed %d functions; at most %d are allowed:\n%s",
						len(path), maxFunctions, strings.Join(path, "\n"))
				}
				if named := slices.Compact(withoutClosures(path)); !slices.Equal(named, documented) {
					t.Errorf("the call passed\n%s\nARCHITECTURE.md lists\n%s",
						strings.Join(named, "\n"), strings.Join(documented, "\n"))
				}
			})
		}
	}
}

var (
	ours    = regexp.MustCompile(`(?m)^github\.com/ambit-run/ambit/(?:[\w/]+/)?(\w+\.\S+)\(.*\)$`)
	created = regexp.MustCompile(`(?m)^created by .* in goroutine (\d+)$`)
	closure = regexp.MustCompile(`(\.func\d+)+$`)
)

// pathOf returns ambit's functions in the stacks between the handler and the transport's send. The path
// of a goroutine continues in the goroutine that created it.
func pathOf(t *testing.T, stacks string) []string {
	t.Helper()
	goroutines := map[string]string{}
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		id, rest, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		goroutines[id] = rest
	}
	for id, stack := range goroutines {
		if !strings.Contains(stack, "Transport).send(") {
			continue
		}
		var path []string // the innermost first
		for goroutines[id] != "" {
			stack, id = goroutines[id], ""
			for _, frame := range ours.FindAllStringSubmatch(stack, -1) {
				path = append(path, strings.NewReplacer("(*", "", ")", "").Replace(frame[1]))
			}
			if parent := created.FindStringSubmatch(stack); parent != nil {
				id = parent[1]
			}
		}
		first := slices.IndexFunc(path, func(f string) bool { return strings.HasSuffix(f, ".handler.ServeHTTP") })
		last := slices.IndexFunc(path, func(f string) bool { return strings.HasSuffix(f, "Transport.send") })
		if first > last {
			path = path[last : first+1]
			slices.Reverse(path)
			return path
		}
	}
	t.Fatalf("no stack leads from the handler to a transport:\n%s", stacks)
	return nil
}

// withoutClosures replaces each closure with its enclosing function. It also gives all transports the
// same name, because the list contains only one of them.
func withoutClosures(path []string) []string {
	named := make([]string, len(path))
	for i, f := range path {
		named[i] = closure.ReplaceAllString(f, "")
	}
	named[len(named)-1] = "mcpwire.Transport.send"
	return named
}

// documentedPath returns the list of functions in ARCHITECTURE.md.
func documentedPath(t *testing.T) []string {
	t.Helper()
	dir, text := "..", []byte(nil)
	for text == nil {
		var err error
		if text, err = os.ReadFile(filepath.Join(dir, "ARCHITECTURE.md")); err != nil {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				t.Fatal("ARCHITECTURE.md is missing")
			}
			dir, text = filepath.Join(dir, ".."), nil
		}
	}
	_, rest, _ := strings.Cut(string(text), "## The path of a call")
	_, rest, _ = strings.Cut(rest, "\n```text\n")
	list, _, ok := strings.Cut(rest, "\n```\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md lists no functions under \"The path of a call\"")
	}
	var functions []string
	for line := range strings.Lines(list) {
		functions = append(functions, strings.Fields(line)[0])
	}
	return functions
}
