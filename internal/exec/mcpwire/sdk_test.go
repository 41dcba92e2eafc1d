package mcpwire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkServer returns a server of the Go SDK. Its tool "hang" blocks until its call is cancelled or the given channel
// is closed.
func sdkServer(end <-chan struct{}) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		//lint:ignore SA1019 servers still support logging
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}, Logging: &mcp.LoggingCapabilities{}},
		PageSize:     2,
	})
	object := json.RawMessage(`{"type":"object"}`)
	for _, name := range []string{"one", "two", "three"} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	}
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "work", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			// NotifyProgress fails if the answer is not a stream.
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Message: "step",
			})
		}
		return &mcp.CallToolResult{}, nil
	})
	s.AddTool(&mcp.Tool{Name: "hang", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case <-ctx.Done():
		case <-end:
		}
		return nil, errors.New("hung up")
	})
	return s
}

// TestSDK connects to servers of the Go SDK over both transports and with both protocol generations.
func TestSDK(t *testing.T) {
	pipe := func(t *testing.T, s *mcp.Server) Transport {
		clientIn, serverOut := io.Pipe()
		serverIn, clientOut := io.Pipe()
		session, err := s.Connect(t.Context(), &mcp.IOTransport{Reader: serverIn, Writer: serverOut}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close() })
		return Stdio(clientIn, clientOut)
	}
	over := func(o mcp.StreamableHTTPOptions) func(*testing.T, *mcp.Server) Transport {
		return func(t *testing.T, s *mcp.Server) Transport {
			o.PropagateRequestCancellation = true
			h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &o)
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			transport, err := HTTP(server.URL, HTTPOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return transport
		}
	}
	for _, tc := range []struct {
		name      string
		transport func(*testing.T, *mcp.Server) Transport
		options   Options
		version   string
		noChanges bool // the server cannot report changes of its tools
	}{
		{"stdio modern", pipe, Options{}, "2026-07-28", false},
		{"stdio legacy", pipe, Options{Legacy: true}, "2025-11-25", false},
		{"HTTP stateful", over(mcp.StreamableHTTPOptions{}), Options{}, "2025-11-25", false},
		{"HTTP stateful, JSON", over(mcp.StreamableHTTPOptions{JSONResponse: true}), Options{}, "2025-11-25", false},
		{"HTTP stateless", over(mcp.StreamableHTTPOptions{Stateless: true}), Options{}, "2026-07-28", false},
		{"HTTP stateless, JSON", over(mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}), Options{Modern: true}, "2026-07-28", false},
		{"HTTP stateless, legacy", over(mcp.StreamableHTTPOptions{Stateless: true}), Options{Legacy: true}, "2025-11-25", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			noLeaks(t)
			end := make(chan struct{})
			server := sdkServer(end)
			changed := make(chan struct{}, 10)
			tc.options.OnNotification = func(n Notification) {
				if n.Method == MethodToolsChanged {
					changed <- struct{}{}
				}
			}
			c := New(tc.transport(t, server), tc.options)
			t.Cleanup(func() { close(end); c.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			began := time.Now()
			s, err := c.Negotiate(ctx)
			if err != nil || s.Version != tc.version {
				t.Fatalf("Negotiate = %+v, %v; want %s", s, err, tc.version)
			}
			if !strings.Contains(string(s.Result), `"sdk"`) || len(s.Capabilities()) == 0 {
				t.Errorf("result %s, capabilities %s", s.Result, s.Capabilities())
			}
			t.Logf("negotiated in %v", time.Since(began))

			tools, err := c.ListTools(ctx)
			if err != nil || len(tools) != 6 {
				t.Errorf("ListTools = %s, %v", tools, err)
			}
			result, err := c.CallTool(ctx, ToolCall{Name: "echo", Arguments: []byte(`{"n":1.0, "big":12345678901234567890}`)})
			if err != nil || !strings.Contains(string(result), `{\"n\":1.0, \"big\":12345678901234567890}`) {
				t.Errorf("echo = %s, %v", result, err)
			}
			if _, err := c.CallTool(ctx, ToolCall{Name: "none"}); err == nil {
				t.Error("calling an unknown tool succeeded")
			} else if e, ok := errors.AsType[*RPCError](err); !ok || e.Code != -32602 {
				t.Errorf("error = %v, want code -32602", err)
			}

			var steps []string
			_, err = c.CallTool(ctx, ToolCall{
				Name: "work", Arguments: []byte(`{}`), Meta: []byte(`{"progressToken":42}`),
				OnNotification: func(n Notification) { steps = append(steps, n.Method) },
			})
			if err != nil || len(steps) != 3 && !strings.Contains(tc.name, "JSON") {
				t.Errorf("work = %v, with progress %v", err, steps)
			}

			hanging, giveUp := context.WithTimeout(ctx, 20*time.Millisecond)
			_, err = c.CallTool(hanging, ToolCall{Name: "hang", Arguments: []byte(`{}`)})
			giveUp()
			wantError(t, err, context.DeadlineExceeded)

			if !tc.noChanges {
				server.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)},
					func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
				select {
				case <-changed:
				case <-ctx.Done():
					t.Error("the client received no notification of the changed tools")
				}
			}
		})
	}
}
