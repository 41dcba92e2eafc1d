package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// server returns a tool server whose tool asks the client for a name.
func server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who are you?"})
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("hello ", answer.Content["name"])}}}, nil
	})
	return s
}

// serve serves a tool server over HTTP and returns its URL. Requests wait until the channel begin is
// closed.
func serve(t *testing.T, s *mcp.Server, begin <-chan struct{}) string {
	t.Helper()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-begin:
		case <-r.Context().Done():
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		far.CloseClientConnections()
		far.Close()
	})
	return far.URL
}

// on returns the declaration of a server in the form that a manifest contains.
func on(alias, url string, tools ...string) map[string]any {
	var list []any
	for _, name := range tools {
		list = append(list, map[string]any{"name": name, "side_effect_class": "read"})
	}
	return map[string]any{"alias": alias, "transport": "http", "endpoint": url, "version": "1.0.0", "tools": list}
}

func declare(t *testing.T, servers ...map[string]any) *manifest.Manifest {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/near", "description": "Near.", "allowed_side_effects": []string{"read"}, "servers": servers,
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "near.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Load(file, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func begin(t *testing.T, m *manifest.Manifest, change func(*Options)) *Agent {
	t.Helper()
	h := home.At(t.TempDir())
	o := Options{Home: h, Store: open(t, h)}
	if change != nil {
		change(&o)
	}
	a := Start(t.Context(), m, o)
	t.Cleanup(a.Close)
	return a
}

func open(t *testing.T, h home.Home) *store.Store {
	t.Helper()
	b, err := store.Open(t.Context(), h, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

var now = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// client is a test client on stdio.
type client struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func connect(t *testing.T, a *Agent) *client {
	t.Helper()
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- front.ServeStdio(t.Context(), a.Front(), "me@local", in, out)
		out.Close()
	}()
	t.Cleanup(func() {
		toIn.Close()
		go func() { _, _ = io.Copy(io.Discard, fromOut) }()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return &client{t: t, in: toIn, out: bufio.NewScanner(fromOut)}
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the output of the agent has ended: %v", c.out.Err())
	}
	return c.out.Text()
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"x","version":"1"}}}`

func TestStartDoesNotWait(t *testing.T) {
	open := make(chan struct{})
	a := begin(t, declare(t, on("far", serve(t, server(), open), "ask")), nil)
	if a.State() != Starting || a.Name() != "near" || a.Proofs() != nil {
		t.Errorf("the agent is %s: %s, %v", a.Name(), a.State(), a.Proofs())
	}
	c := connect(t, a)
	c.say(hello)
	if got := c.hear(); !strings.Contains(got, `"instructions":"Near."`) {
		t.Error(got)
	}
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	close(open)
	if got := c.hear(); !strings.Contains(got, `"id":2,"result":{"tools":[{"`) {
		t.Error(got)
	}
	if err := a.Ready(t.Context()); err != nil || a.State() != Ready || len(a.Proofs()) != 1 || a.Gateway() == nil {
		t.Errorf("%v, %s", err, a.State())
	}
}

// One server that cannot be used does not stop the others, unless the manifest requires it.
func TestOneServerDown(t *testing.T) {
	drifted := func(t *testing.T) map[string]any { return on("far", serve(t, server(), now), "ask", "tell") }
	nowhere := func(*testing.T) map[string]any { return on("far", "http://127.0.0.1:1/mcp", "ask") }
	lacking := func(t *testing.T) map[string]any {
		s := on("far", serve(t, server(), now), "ask")
		s["headers"] = map[string]string{"Authorization": "Bearer $env:AMBIT_TEST_NOT_SET"}
		return s
	}
	for name, test := range map[string]struct {
		far func(*testing.T) map[string]any
		why call.Code
	}{
		"drifted": {drifted, call.ServerDrifted}, "nowhere": {nowhere, call.ServerUnavailable},
		"no credential": {lacking, call.CredentialMissing},
	} {
		t.Run(name, func(t *testing.T) {
			a := begin(t, declare(t, on("good", serve(t, server(), now), "ask"), test.far(t)), nil)
			if err := a.Ready(t.Context()); err != nil || a.State() != Quarantined {
				t.Fatalf("%v, %s", err, a.State())
			}
			c := connect(t, a)
			c.say(hello)
			if got := c.hear(); !strings.Contains(got, `"instructions":"Some tools are unavailable: `+string(test.why)) ||
				strings.Contains(got, "server far") != (test.why == call.CredentialMissing) {
				t.Error(got)
			}
			c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
			got := c.hear()
			if !strings.Contains(got, `"good_ask"`) || strings.Contains(got, `"far_ask"`) ||
				!strings.Contains(got, `"ambit/unavailable":[{"code":"`+string(test.why)+`"`) {
				t.Error(got)
			}
			_, err := a.Gateway().Call(t.Context(), &call.Call{Tool: "good_ask", Principal: "me@local"})
			if r, ok := errors.AsType[*call.Refusal](err); ok {
				t.Errorf("a call to the other server got %v", r)
			}
			_, err = a.Gateway().Call(t.Context(), &call.Call{Tool: "far_ask", Principal: "me@local"})
			if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Code != test.why {
				t.Errorf("a call got %v", err)
			}
		})
		t.Run(name+" and required", func(t *testing.T) {
			far := test.far(t)
			far["x-ambit"] = map[string]any{"required": true}
			a := begin(t, declare(t, on("good", serve(t, server(), now), "ask"), far), nil)
			f, ok := errors.AsType[*Failure](a.Ready(t.Context()))
			if !ok || f.Refusal.Code != test.why || f.Server != "far" {
				t.Fatalf("%v, %s", f, a.State())
			}
			_, err := a.Gateway().Call(t.Context(), &call.Call{Tool: "good_ask", Principal: "me@local"})
			if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Code != test.why {
				t.Errorf("a call got %v", err)
			}
		})
	}
}

// If no server can be used, the agent as a whole is unavailable.
func TestNotAsDeclared(t *testing.T) {
	a := begin(t, declare(t, on("far", serve(t, server(), now), "ask", "tell")), nil)
	err := a.Ready(t.Context())
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Refusal.Code != call.ServerDrifted || f.Lacking || a.State() != Quarantined {
		t.Fatalf("%v, %s", err, a.State())
	}
	// Every call is refused with the reason, through the gateway.
	_, err = a.Gateway().Call(t.Context(), &call.Call{Tool: "ask", Principal: "me@local"})
	if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Code != call.ServerDrifted {
		t.Errorf("a call got %v", err)
	}
	c := connect(t, a)
	c.say(hello)
	if got := c.hear(); !strings.Contains(got, `"instructions":"This agent is unavailable: server_drifted; to see the reason, call a tool`) {
		t.Error(got)
	}
}

func TestNowhere(t *testing.T) {
	a := begin(t, declare(t, on("far", "http://127.0.0.1:1/mcp", "ask")), nil)
	if f, ok := errors.AsType[*Failure](a.Ready(t.Context())); !ok || f.Refusal.Code != call.ServerUnavailable || a.State() != Failed {
		t.Errorf("%v, %s", f, a.State())
	}
}

func TestNoStore(t *testing.T) {
	a := begin(t, declare(t, on("far", serve(t, server(), now), "ask")), func(o *Options) {
		o.Store, o.StoreErr = nil, errors.New("the disk is gone")
	})
	if f, ok := errors.AsType[*Failure](a.Ready(t.Context())); !ok || f.Refusal.Code != call.StoreUnavailable || !f.Lacking {
		t.Errorf("%v", f)
	}
	c := connect(t, a)
	c.say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"ask"}}`)
	if got := c.hear(); !strings.Contains(got, `"code":"store_unavailable"`) {
		t.Error(got)
	}
}

// A question from a server reaches the only client on stdio.
func TestSoleClientIsAsked(t *testing.T) {
	a := begin(t, declare(t, on("far", serve(t, server(), now), "ask")), func(o *Options) { o.Sole = true })
	c := connect(t, a)
	c.say(hello)
	c.hear()
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
	if got := c.hear(); !strings.Contains(got, `"method":"elicitation/create"`) || !strings.Contains(got, `The server \"far\" of the agent \"near\" asks: who are you?`) {
		t.Fatal(got)
	}
	c.say(`{"jsonrpc":"2.0","id":"ambit-1","result":{"action":"accept","content":{"name":"Ann"}}}`)
	if got := c.hear(); !strings.Contains(got, `"text":"hello Ann"`) {
		t.Error(got)
	}
}

// Clients are notified when the tools of a server have changed, and these tools cannot be called.
func TestClientIsNotifiedOfDrift(t *testing.T) {
	far := server()
	a := begin(t, declare(t, on("far", serve(t, far, now), "ask")), nil)
	c := connect(t, a)
	c.say(hello)
	c.hear()
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	far.AddTool(&mcp.Tool{Name: "more", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
	if got := c.hear(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}` {
		t.Error(got)
	}
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`)
	if got := c.hear(); !strings.Contains(got, `"code":"server_drifted"`) {
		t.Error(got)
	}
	if a.State() != Quarantined {
		t.Errorf("the agent is %s, want %s", a.State(), Quarantined)
	}
}

// The reason for a failed start can quote the server, so the secrets in the reason are redacted.
func TestFailureIsRedacted(t *testing.T) {
	secret := "ghp" + "_b3Nf81TqWz6HsLc0Xv5Rk9Jd2Pm7Ey4GaUiO"
	begun := make(chan struct{})
	far := server()
	far.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				return nil, errors.New("bad token " + secret + " or " + firstKey)
			}
			return next(ctx, method, r)
		}
	})
	other := on("other", "http://127.0.0.1:1", "tell")
	other["headers"] = map[string]any{"X-Key": "$env:KEY"} // the failed server repeats a credential that is not its own
	m := declare(t, on("far", serve(t, far, begun), "ask"), other)
	a := begin(t, m, func(o *Options) { o.Credentials = newRotating().source() })
	c := connect(t, a)
	c.say(hello)
	c.hear()
	close(begun)
	shown := map[string]string{"message": c.hear(), "reason": fmt.Sprint(a.Ready(t.Context())), "proof": fmt.Sprint(a.Proofs()[0].Refusal)}
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	shown["list"] = c.hear()
	c = connect(t, a)
	c.say(hello)
	if got := c.hear(); strings.Contains(got, "bad token") {
		t.Errorf("the instructions quote the server: %s", got)
	}
	for what, got := range shown {
		if strings.Contains(got, secret) || strings.Contains(got, firstKey) || !strings.Contains(got, "bad token [secret:") {
			t.Errorf("%s: %s", what, got)
		}
	}
	// Without a store, the reason for a failed start cannot be searched for secrets, so it is withheld.
	a = begin(t, m, func(o *Options) {
		o.Store, o.StoreErr = nil, errors.New("the disk is gone")
	})
	if err := a.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("the error is %v", err)
	}
	if got := fmt.Sprint(a.Proofs()[0].Refusal); strings.Contains(got, secret) || !strings.Contains(got, "the reason is withheld") {
		t.Error(got)
	}
}

// Notifications that servers send to all clients are scanned like notifications to a single client.
func TestAnnouncementsAreScanned(t *testing.T) {
	a := begin(t, declare(t, on("far", serve(t, server(), now), "ask")), nil)
	c := connect(t, a)
	c.say(hello)
	c.hear()
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret := "ghp" + "_b3Nf81TqWz6HsLc0Xv5Rk9Jd2Pm7Ey4GaUiO"
	a.passNotification("far", "notifications/elicitation/complete", []byte(`{"elicitationId":"`+secret+`"}`))
	if got := c.hear(); strings.Contains(got, secret) || !strings.Contains(got, `"elicitationId":"[secret:`) {
		t.Error(got)
	}
}
