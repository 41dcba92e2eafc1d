package daemon

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// TestReplicas runs two daemons with the same store and the same root key, as behind a load balancer. A
// session continues at the other daemon. A key is valid at both daemons until it is revoked. One
// journal contains all calls.
func TestReplicas(t *testing.T) {
	upstream := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1.0.0"}, nil)
	mcp.AddTool(upstream, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Text string `json:"text"`
	},
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	world := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return upstream }, nil))
	defer world.Close()
	folder := t.TempDir()
	manifest, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/echo", "allowed_side_effects": []string{"read", "write"},
		"servers": []any{map[string]any{
			"alias": "echo", "transport": "http", "endpoint": world.URL, "version": "1.0.0",
			"tools": []any{map[string]any{"name": "echo", "side_effect_class": "write"}},
		}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "echo.json"), manifest, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}

	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		h := home.At(t.TempDir())
		keys, err := identity.OpenKeys(h.Root())
		if err != nil {
			t.Fatal(err)
		}
		var kept []*store.Store
		var urls []string
		for range 2 {
			db := connect()
			b := store.New(db, keys, nil)
			hosting := &Hosting{Host: host.Options{Home: h, Store: b, Version: "test"}, HTTP: front.HTTPOptions{Keys: keys}, Metrics: NewMetrics(), Log: func(_, alias, line string) { t.Log(alias, line) }}
			d, err := New(Options{
				Folders: []string{folder}, Start: hosting.Start, APIKeys: identity.NewAPIKeys(b.Authority), Journal: b.Journal, Approvals: ApprovalsOf(b),
				Metrics: hosting.Metrics, Listen: "127.0.0.1:0", Log: t.Logf,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			d.Prove(t.Context())
			kept, urls = append(kept, b), append(urls, newServer(t, d.Handler()).URL)
		}
		key, secret, err := identity.NewAPIKeys(kept[0].Authority).New(t.Context(), identity.KeySpec{Name: "fleet"})
		if err != nil {
			t.Fatal(err)
		}
		session := ""
		post := func(replica int, body string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, urls[replica]+"/mcp/echo", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			if session != "" {
				req.Header.Set("Mcp-Session-Id", session)
				req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
				session = id
			}
			said, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(said)
		}
		post(0, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		for i := range 4 {
			if status, said := post(i%2, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`); status != http.StatusOK || !strings.Contains(said, `"hello"`) {
				t.Errorf("replica %d answered %d: %s", i%2, status, said)
			}
		}
		if ok, err := identity.NewAPIKeys(kept[1].Authority).Revoke(t.Context(), key.ID); err != nil || !ok {
			t.Fatal(ok, err)
		}
		for i := range urls {
			if status, _ := post(i, `{"jsonrpc":"2.0","id":3,"method":"ping"}`); status != http.StatusUnauthorized {
				t.Errorf("replica %d accepts a revoked key: %d", i, status)
			}
		}
		entries, err := kept[0].Journal.Show(t.Context(), journal.Filter{Agent: "echo"})
		if err != nil || len(entries) != 4 {
			t.Errorf("the journal contains %d of 4 calls: %v", len(entries), err)
		}
		if report, err := kept[1].Journal.Verify(t.Context(), journal.Check{}); err != nil || !report.OK {
			t.Errorf("%+v, %v", report, err)
		}
	})
}
