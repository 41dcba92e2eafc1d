package front

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// signInGateway refuses calls until the caller has signed in.
type signInGateway struct {
	Gateway
	mu    sync.Mutex
	id    string // of the present sign-in
	valid string // the id of the sign-in that the server accepts
}

func (g *signInGateway) Call(context.Context, *call.Call) (call.Result, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.id != g.valid {
		r := call.Refuse("act", call.CredentialMissing, "server fs needs a sign-in (ambit login x fs)")
		r.SignIn = "fs"
		return call.Result{}, r
	}
	return call.Result{Raw: []byte(`{"content":[{"type":"text","text":"done"}]}`)}, nil
}

func (g *signInGateway) page(principal, server string) (page, id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return "https://ambit.example.com/login/server?of=" + principal + "&server=" + server, g.id
}

func (g *signInGateway) signIn(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id = id
}

// A client that opens pages is asked to open the page for a sign-in, and learns when it is complete. Other clients get
// the refusal.
func TestSignInPage(t *testing.T) {
	for name, tt := range map[string]struct {
		version, action string
		can             *mcp.ElicitationCapabilities
	}{
		"2025-11-25":           {"2025-11-25", "accept", &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
		"2025-11-25, no pages": {"2025-11-25", "accept", &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}},
		"2026-07-28":           {"2026-07-28", "accept", &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
		"2026-07-28, declined": {"2026-07-28", "decline", &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
		"2026-07-28, no pages": {"2026-07-28", "accept", &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			a := testAgent(t, &stage{})
			g := &signInGateway{Gateway: a.Gateway, id: "old", valid: "new"}
			a.Gateway, a.SignInPage, a.Keys, a.recheckLists = g, g.page, testKeys, time.Millisecond
			in, toIn := io.Pipe()
			fromOut, out := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- ServeStdio(ctx, a, "me@local", in, out)
				out.Close()
			}()
			opened, complete := make(chan *mcp.ElicitParams, 1), make(chan string, 1)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				Capabilities: &mcp.ClientCapabilities{Elicitation: tt.can},
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					opened <- r.Params
					if tt.action == "accept" {
						g.signIn("new")
					}
					return &mcp.ElicitResult{Action: tt.action}, nil
				},
				ElicitationCompleteHandler: func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
					complete <- r.Params.ElicitationID
				},
			})
			session, err := client.Connect(ctx, &mcp.IOTransport{Reader: fromOut, Writer: toIn}, &mcp.ClientSessionOptions{ProtocolVersion: tt.version})
			if err != nil {
				t.Fatal(err)
			}
			work := func() (*mcp.CallToolResult, error) {
				return session.CallTool(ctx, &mcp.CallToolParams{Name: "work", Arguments: map[string]any{}})
			}
			result, err := work()
			switch {
			case tt.can.URL == nil || tt.action != "accept":
				if err != nil || !result.IsError || !strings.Contains(result.Content[0].(*mcp.TextContent).Text, "ambit login x fs") {
					t.Errorf("the refusal: %+v, %v", result, err)
				}
				if asked := len(opened) > 0; asked != (tt.can.URL != nil) {
					t.Errorf("the client was asked: %v", asked)
				}
			case tt.version == newerRevision:
				if err != nil || result.IsError {
					t.Fatalf("the repeated call: %+v, %v", result, err)
				}
				if p := <-opened; p.Mode != "url" || !strings.HasPrefix(p.URL, "https://ambit.example.com/") || !strings.Contains(p.Message, "fs") {
					t.Errorf("the question: %+v", p)
				}
			default:
				e, ok := errors.AsType[*jsonrpc.Error](err)
				if !ok || e.Code != mcp.CodeURLElicitationRequired || !strings.Contains(string(e.Data), `"mode":"url"`) ||
					!strings.Contains(string(e.Data), `"url":"https://ambit.example.com/login/server?of=me@local&server=fs"`) {
					t.Fatalf("the error: %+v, %v", result, err)
				}
				_, again := work()
				if again == nil || again.Error() != err.Error() {
					t.Errorf("a second call: %v", again)
				}
				g.signIn("new")
				if id := <-complete; !strings.Contains(string(e.Data), `"elicitationId":"`+id+`"`) {
					t.Errorf("the notification names %s, the error %s", id, e.Data)
				}
				if result, err := work(); err != nil || result.IsError {
					t.Errorf("the call after the sign-in: %+v, %v", result, err)
				}
			}
			if err := session.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
