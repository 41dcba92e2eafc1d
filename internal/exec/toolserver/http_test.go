//go:build unix

package toolserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/tooluri"
)

// sdkServer returns a server that has these tools and uses the Go MCP SDK.
func sdkServer(tools ...string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	for _, name := range tools {
		s.AddTool(&mcp.Tool{Name: name, Description: "It does " + name + ".", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
			})
	}
	return s
}

func handler(s *mcp.Server, stateless bool) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless})
}

// endpoint is a network address. The test can replace the server that answers there.
type endpoint struct {
	url    string
	answer atomic.Pointer[http.Handler]
	header atomic.Pointer[http.Header] // the header of the last request that the server received
}

func (h *endpoint) set(now http.Handler) { h.answer.Store(&now) }

// down makes the server abort every request.
func (h *endpoint) down() {
	h.set(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
}

// at declares a remote server. It must be called before the agent is started. The server is closed after the
// agent.
func (r *rig) at(alias string, tools []string, answer http.Handler, headers ...agent.Setting) *endpoint {
	r.t.Helper()
	h := &endpoint{}
	h.set(answer)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		header := req.Header.Clone()
		h.header.Store(&header)
		(*h.answer.Load()).ServeHTTP(w, req)
	}))
	r.t.Cleanup(func() {
		server.CloseClientConnections() // a client may still have a stream for notifications open
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	h.url = server.URL
	r.agent.Servers = append(r.agent.Servers, agent.Server{Alias: alias, Transport: agent.StreamableHTTP, Endpoint: server.URL, Headers: headers})
	for _, name := range tools {
		r.agent.Tools = append(r.agent.Tools, agent.Tool{Name: name, SideEffect: agent.Read, Binding: agent.OnServer{Alias: alias}})
	}
	return h
}

func TestRemoteServers(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprintf("stateless %t", stateless), func(t *testing.T) {
			r := newRig(t)
			web := r.at("web", []string{"echo"}, handler(sdkServer("echo"), stateless),
				agent.Setting{Name: "Authorization", Value: "Bearer $env:CANARY", Refs: []string{"CANARY"}})
			r.fake("local", []string{"echo"})
			r.o.Lookup = lookup(map[string]string{"CANARY": canary})
			m := r.proven()
			r.works(m, "web")
			r.works(m, "local")
			if got := web.header.Load().Get("Authorization"); got != "Bearer "+canary {
				t.Errorf("the server got the Authorization header %q", got)
			}
			if p := m.Proofs()[0]; p.Package.Status != Unverifiable || p.Protocol == "" {
				t.Errorf("proof %+v", p)
			}
			if all := r.reported(m); strings.Contains(all, canary) {
				t.Errorf("a credential was leaked:\n%s", all)
			}
		})
	}
}

// A digest cannot be compared with the program of a remote server, and the proof contains a note about it.
func TestRemoteServerWithDigest(t *testing.T) {
	for _, tt := range []struct {
		name, digest string
		placeholder  bool
		want         int
	}{
		{"digest", "sha256:" + strings.Repeat("ab", 32), false, 1},
		{"placeholder", tooluri.ZeroDigest, true, 0},
		{"no digest", "", false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.at("web", []string{"echo"}, handler(sdkServer("echo"), true))
			r.agent.Servers[0].Digest, r.agent.Servers[0].Placeholder = tt.digest, tt.placeholder
			p := r.proven().Proofs()[0]
			got := 0
			for _, w := range p.Warnings {
				if strings.Contains(w, "package_digest has no effect") {
					got++
				}
			}
			if got != tt.want || p.Package.Status != Unverifiable {
				t.Errorf("got the warnings %q and the status %s", p.Warnings, p.Package.Status)
			}
		})
	}
}

func TestRemoteServersRefused(t *testing.T) {
	says := func(status int, contentType, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if contentType == "text/event-stream" && req.Method != http.MethodGet {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			fmt.Fprint(w, strings.ReplaceAll(body, "HEADER", req.Header.Get("Authorization")))
		})
	}
	tests := []struct {
		name   string
		answer http.Handler
		code   call.Code
		words  []string
	}{
		{"echoes the credential", says(401, "text/plain", "bad token HEADER"), call.ServerUnavailable, []string{"401", "Bearer $env:CANARY"}},
		{"is not an MCP server", says(200, "text/html", "<h1>HEADER</h1>"), call.ServerUnavailable, []string{"text/html"}},
		{"supports only the old transport", says(200, "text/event-stream", "event: endpoint\ndata: /messages\n\n"), call.ServerUnavailable, []string{"HTTP+SSE"}},
		{"redirects", http.RedirectHandler("https://evil.example/", http.StatusTemporaryRedirect), call.ServerUnavailable, []string{"redirects are not followed"}},
		{"has other tools", handler(sdkServer("echo", "exec"), false), call.ServerDrifted, []string{`advertises "exec"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.at("web", []string{"echo"}, tt.answer, agent.Setting{Name: "Authorization", Value: "Bearer $env:CANARY", Refs: []string{"CANARY"}})
			r.fake("local", []string{"echo"})
			r.o.Lookup = lookup(map[string]string{"CANARY": canary})
			m := r.start()
			refused(t, m.Proofs()[0], tt.code, tt.words...)
			if all := r.reported(m); strings.Contains(all, canary) {
				t.Errorf("a credential was leaked:\n%s", all)
			}
			r.works(m, "local")
		})
	}
}

func TestRemoteCredentialMissing(t *testing.T) {
	r := newRig(t)
	web := r.at("web", []string{"echo"}, handler(sdkServer("echo"), true), agent.Setting{Name: "X-Key", Value: "$env:WEB_KEY", Refs: []string{"WEB_KEY"}})
	key := new(atomic.Bool)
	r.o.Lookup = func(string) (string, bool) { return canary, key.Load() }
	m := r.start()
	refused(t, m.Proofs()[0], call.CredentialMissing, "server web needs WEB_KEY")
	if web.header.Load() != nil {
		t.Error("a request was sent without the credential")
	}
	m.Close()

	// The credential may also disappear later.
	key.Store(true)
	m = r.proven()
	r.works(m, "web")
	key.Store(false)
	_, refusal := r.call(m, "web", "echo", `{}`)
	is(t, refusal, call.CredentialMissing, call.NoEffect, false)
}

// A remote server that was unreachable is verified again before it is used.
func TestRemoteServerComesBack(t *testing.T) {
	t.Run("the same", func(t *testing.T) {
		r := newRig(t)
		server := handler(sdkServer("echo"), true)
		web := r.at("web", []string{"echo"}, server)
		m := r.proven()
		web.down()
		_, refusal := r.call(m, "web", "echo", `{}`)
		is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
		web.set(server)
		r.works(m, "web")
	})
	t.Run("a different server", func(t *testing.T) {
		r := newRig(t)
		web := r.at("web", []string{"echo"}, handler(sdkServer("echo"), true))
		m := r.proven()
		web.down()
		r.call(m, "web", "echo", `{}`)
		web.set(handler(sdkServer("echo", "exec"), true))
		_, refusal := r.call(m, "web", "echo", `{}`)
		is(t, refusal, call.ServerDrifted, call.NoEffect, false)
	})
	t.Run("after many attempts", func(t *testing.T) {
		r := newRig(t)
		hand := r.byHand()
		server := handler(sdkServer("echo"), true)
		web := r.at("web", []string{"echo"}, server)
		m := r.proven()
		web.down()
		r.call(m, "web", "echo", `{}`)
		for range 2 * quickRestarts {
			hand.pass()
		}
		hand.waits()
		_, refusal := r.call(m, "web", "echo", `{}`)
		is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
		web.set(server)
		hand.pass()
		r.until("the server is proven", m.Proven)
		r.works(m, "web")
	})
	t.Run("an HTTP error does not cause a restart", func(t *testing.T) {
		r := newRig(t)
		server := handler(sdkServer("echo"), true)
		web := r.at("web", []string{"echo"}, server)
		m := r.proven()
		web.set(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "slow down", http.StatusTooManyRequests) }))
		_, refusal := r.call(m, "web", "echo", `{}`)
		is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
		web.set(server)
		r.works(m, "web")
		if strings.Contains(r.log(), "the server stopped") {
			t.Errorf("the server was restarted; log:\n%s", r.log())
		}
	})
}
