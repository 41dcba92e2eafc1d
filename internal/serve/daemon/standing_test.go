package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// shortToken is a provider whose tokens expire immediately, so they are invalid at the next check.
type shortToken struct{ noTokens }

func (shortToken) Check(context.Context, string) (*identity.Principal, error) {
	return &identity.Principal{Name: "ada@example.com", Kind: identity.ByToken, Everywhere: true, Until: time.Now()}, nil
}

// The streams of a key end when the key becomes invalid. Streams of other keys continue.
func TestStreamsEndWithTheirKey(t *testing.T) {
	expire := func(r *rig, id string) error {
		return r.db.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE api_keys SET expires = 1 WHERE id = $1`, id)
			return err
		})
	}
	revoke := func(r *rig, id string) error {
		_, err := identity.NewAPIKeys(r.store.Authority).Revoke(t.Context(), id) // revoke the key as another process would
		return err
	}
	tests := []struct {
		name   string
		listen bool // open the stream with subscriptions/listen, as in the newer generation
		token  bool
		end    func(*rig, string) error
	}{
		{"revoked", false, false, revoke},
		{"revoked, in the newer generation", true, false, revoke},
		{"expired", false, false, expire},
		{"a token that expires", false, true, func(*rig, string) error { return nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(_ *rig, o *Options) { o.recheckEvery, o.OIDC = time.Millisecond, shortToken{} })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			open := func(key string) *http.Response {
				t.Helper()
				method := http.MethodGet
				if tt.listen {
					method = http.MethodPost
				}
				req, err := http.NewRequestWithContext(ctx, method, r.server.URL+"/mcp/alpha", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+key)
				if tt.listen {
					req.Header.Set("Mcp-Method", "subscriptions/listen")
				}
				resp, err := r.server.Client().Do(req)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("the stream was not opened: %v, %v", resp, err)
				}
				t.Cleanup(func() { resp.Body.Close() })
				return resp
			}
			other := open(r.key(identity.KeySpec{}))
			k, key, err := r.keys.New(t.Context(), identity.KeySpec{})
			if err != nil {
				t.Fatal(err)
			}
			if tt.token {
				key = "eyShort"
			}
			stream := open(key)
			if err := tt.end(r, k.ID); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(stream.Body); err != nil || len(rest) != 0 {
				t.Errorf("the stream ended with %q, %v", rest, err)
			}
			r.streams.mu.Lock()
			left := len(r.streams.keys)
			r.streams.mu.Unlock()
			if left != 1 {
				t.Errorf("%d keys have open streams, want 1", left)
			}
			other.Body.Close()
		})
	}
}

// carefully is the manifest of an agent with one tool. Calls of this tool need approval.
const carefully = `{
  "name": "Carefully", "description": "Writes prompts after approval.", "system_prompt": "You write prompts, one at a time, and only what you were asked for.", "kind": "mcp-tool", "example_prompts": ["Write about bees."],
  "tools": [{"name": "write", "description": "Write a prompt.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false},
    "action": {"type": "prompt-template", "template": "Write about {text}."}}],
  "guardrails": {"output": {"secret_leak_scan": true}, "actions": {"write": {"approval": "human"}}},
  "delivery": "mcp.stdio", "exec": "user-local", "targets": ["cli"]
}`

// If the key of a call is revoked while the call waits for approval, the call is refused.
func TestRevokedWhileApprovalPending(t *testing.T) {
	r := realRig(t, map[string]string{"carefully/findagent.json": carefully}, nil)
	r.Prove(t.Context())
	k, key, err := r.keys.New(t.Context(), identity.KeySpec{Principal: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	call := func(text string) <-chan *answer {
		ended := make(chan *answer, 1)
		go func() {
			ended <- r.ask(key, "POST", "/api/v1/agents/carefully/call", `{"tool":"write","arguments":{"text":"`+text+`"}}`)
		}()
		return ended
	}
	// waiting waits for the only pending approval and returns its id.
	waiting := func(ended <-chan *answer) string {
		t.Helper()
		deadline := time.Now().Add(30 * time.Second)
		for {
			a := r.ask(r.admin, "GET", "/api/v1/approvals", "")
			if list, _ := a.doc["approvals"].([]any); len(list) == 1 {
				return list[0].(map[string]any)["id"].(string)
			}
			select {
			case early := <-ended:
				t.Fatalf("the call did not wait for approval: %d %s", early.status, early.body)
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("there is no pending approval: %s", a.body)
			}
			time.Sleep(time.Millisecond)
		}
	}
	approve := func(id string) {
		t.Helper()
		if a := r.ask(r.admin, "POST", "/api/v1/approvals/"+id, `{"decision":"approve"}`); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	ended := call("bees")
	approve(waiting(ended))
	if a := <-ended; a.status != 200 || !strings.Contains(a.body, "Write about bees.") {
		t.Fatalf("with a valid key: %d %s", a.status, a.body)
	}
	ended = call("wasps")
	waiting(ended)
	if _, err := r.keys.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	// The call ends although it was neither approved nor denied.
	select {
	case a := <-ended:
		if a.status != 403 || a.code() != "approval_denied" || !strings.Contains(a.body, "the key has been revoked") {
			t.Errorf("with a revoked key: %d %s", a.status, a.body)
		}
	case <-time.After(30 * time.Second):
		t.Error("a call with a revoked key is still waiting")
	}
}

// A session from a daemon's temporary key is invalid at the next daemon. The next daemon can still
// decrypt the cookie.
func TestConsoleEndsWithTheDaemon(t *testing.T) {
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	start := func() *rig {
		r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
		b := store.New(r.db, keys, nil)
		if err := r.OpenConsole(t.Context(), &ConsoleOptions{Store: b, Credentials: &credential.Source{}}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r, next := start(), start()
	p, unused := r.person(), r.link(r.admin)
	if got := p.signIn(r.link(r.admin)); got != 200 {
		t.Fatalf("signing in: %d", got)
	}
	if got := p.status("GET", "/journal", ""); got != 200 {
		t.Errorf("a page of the same daemon returned %d", got)
	}
	p.r = next // the browser sends its cookie to the next daemon too
	if got := p.status("GET", "/journal", ""); got != 401 {
		t.Errorf("a page of the next daemon returned %d", got)
	}
	if got := p.signIn(unused); got != 403 {
		t.Errorf("an unused link at the next daemon returned %d", got)
	}
	if got := p.signIn(next.link(next.admin)); got != 200 {
		t.Errorf("a link from the next daemon returned %d", got)
	}
}

// A request that cannot be authenticated is answered before its body has arrived.
func TestUnauthenticatedBodyIsNotRead(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	for name, head := range map[string]string{
		"no key":      "",
		"a wrong key": "Authorization: Bearer ambit_wrong\r\n",
		"chunks":      "Transfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if name != "chunks" {
				head += "Content-Length: 1000\r\n"
			}
			if _, err := fmt.Fprintf(conn, "POST /mcp/alpha HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%s\r\n", head); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), httptest.NewRequest("POST", "/", nil))
			if err != nil {
				t.Fatalf("the daemon did not answer before the body arrived: %v (timeout: %t)", err, os.IsTimeout(err))
			}
			resp.Body.Close()
			if resp.StatusCode != 401 || !resp.Close {
				t.Errorf("got the status %d with the connection closed: %t; want 401 and a closed connection", resp.StatusCode, resp.Close)
			}
		})
	}
}
