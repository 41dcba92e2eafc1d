package host

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

const firstKey, secondKey = "first-value-7421", "second-value-8532"

// parrot starts a tool server and returns its URL. The server's tool "tell" always returns the first secret that was
// sent to the server.
func parrot(t *testing.T) string {
	t.Helper()
	var once sync.Once
	var first string
	s := mcp.NewServer(&mcp.Implementation{Name: "parrot", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "tell", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "it is " + first}}}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { first = r.Header.Get("X-Key") })
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		far.CloseClientConnections()
		far.Close()
	})
	return far.URL
}

// rotating is a credential that changes while an agent runs.
type rotating struct{ atomic.Value }

func newRotating() *rotating {
	r := &rotating{}
	r.Store(firstKey)
	return r
}

func (r *rotating) source() *credential.Source {
	return &credential.Source{Environ: func(name string) (string, bool) { return r.Load().(string), name == "KEY" }}
}

const redacted = `"text":"it is [secret:credential]"`

// A credential that a server received when it started is redacted in results, even if the credential
// was replaced before the first result was scanned.
func TestFormerCredentialIsFound(t *testing.T) {
	key := newRotating()
	far := on("far", parrot(t), "tell")
	far["headers"] = map[string]any{"X-Key": "$env:KEY"}
	a := begin(t, declare(t, far), func(o *Options) { o.Credentials = key.source() })
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	key.Store(secondKey)
	result, err := a.Gateway().Call(t.Context(), &call.Call{Tool: "tell", Principal: "me@local"})
	if err != nil || !strings.Contains(string(result.Raw), redacted) {
		t.Errorf("%s, %v", result.Raw, err)
	}
}

// A replaced credential is redacted even if the agent has learned more tools since.
func TestLazyFormerCredentialIsFound(t *testing.T) {
	key := newRotating()
	r := newRig(t)
	r.credentials = key.source()
	r.needs("required_mcp_servers", "old", "*", &far{url: parrot(t)}, "tell")
	r.needs("required_mcp_servers", "new", "*", newFar(t, "one")) // the tools of the second server are not known yet
	if err := os.WriteFile(r.home.Config(), []byte("[server.\"registry.example.com/old\"]\nenv = { X-Key = \"$env:KEY\" }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.trust("old")
	a := r.start()
	d := dial(t, a)
	if m := d.call("tell"); !strings.Contains(string(m.Result), redacted) {
		t.Fatalf("%s %+v", m.Result, m.Error)
	}
	before := len(a.who().Tools)
	key.Store(secondKey)
	d.tools() // starts every server
	works(t, d.call("one"), "one")
	if len(a.who().Tools) == before {
		t.Fatal("the agent has not learned the tools of the second server")
	}
	if m := d.call("tell"); !strings.Contains(string(m.Result), redacted) {
		t.Errorf("%s %+v", m.Result, m.Error)
	}
}
