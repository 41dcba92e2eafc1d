//go:build linux

package faults

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// canary is a part of every token, code and MCP session of a provider.
const canary = "canary-7f3a9"

// provider is a remote tool server with an authorization server. It checks that each request contains a token of the
// person who makes the call.
type provider struct {
	t    *testing.T
	http *httptest.Server
	life int // of an access token, in seconds

	mu      sync.Mutex
	person  map[string]string // by code, token and MCP session
	right   map[string]int    // calls with the caller's own token, by person
	wrong   []string
	renewed int
	reused  int // refresh tokens that were used twice
}

func newProvider(t *testing.T, life int) *provider {
	p := &provider{t: t, life: life, person: map[string]string{}, right: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", p.serve)
	mux.HandleFunc("DELETE /mcp", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		p.reply(w, 200, map[string]any{"resource": p.endpoint(), "authorization_servers": []string{p.http.URL}})
	})
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		at := p.http.URL
		p.reply(w, 200, map[string]any{
			"issuer": at, "authorization_endpoint": at + "/page", "token_endpoint": at + "/token",
			"registration_endpoint": at + "/register", "code_challenge_methods_supported": []string{"S256"},
			"response_types_supported": []string{"code"}, "token_endpoint_auth_methods_supported": []string{"none"},
		})
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		asked["client_id"] = rand.Text()
		p.reply(w, http.StatusCreated, asked)
	})
	mux.HandleFunc("GET /page", p.page)
	mux.HandleFunc("POST /token", p.token)
	p.http = httptest.NewServer(mux)
	t.Cleanup(p.http.Close)
	return p
}

func (p *provider) endpoint() string { return p.http.URL + "/mcp" }

func (p *provider) reply(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // the client may be gone
}

// issue returns a new secret of a person.
func (p *provider) issue(kind, person string) string {
	secret := canary + kind + rand.Text()
	p.person[kind+secret] = person
	return secret
}

// page signs in the person in the header, who agrees to everything.
func (p *provider) page(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	back := url.Values{"state": {q.Get("state")}, "code": {p.issue("code", r.Header.Get("Person"))}}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind, secret := "code", r.PostFormValue("code")
	if r.PostFormValue("grant_type") == "refresh_token" {
		kind, secret = "refresh", r.PostFormValue("refresh_token")
	}
	person, ok := p.person[kind+secret]
	delete(p.person, kind+secret) // each works once
	if !ok {
		p.reused++
		p.reply(w, 400, map[string]any{"error": "invalid_grant"})
		return
	}
	p.renewed++
	p.reply(w, 200, map[string]any{
		"access_token": p.issue("token", person), "refresh_token": p.issue("refresh", person), "token_type": "Bearer",
		"expires_in": p.life,
	})
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	person, ok := p.person["token"+token]
	if !ok {
		if token != "" {
			p.wrong = append(p.wrong, "a token that the provider never issued")
		}
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if of, known := p.person["session"+r.Header.Get("Mcp-Session-Id")]; known && of != person {
		p.wrong = append(p.wrong, person+" uses the MCP session of "+of)
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Arguments struct{ Me string }
		}
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	switch m.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", p.issue("session", person))
		introduce(m.Method, answer)
	case "tools/call":
		if m.Params.Arguments.Me == person {
			p.right[person]++
		} else {
			p.wrong = append(p.wrong, m.Params.Arguments.Me+" calls with the token of "+person)
		}
		fallthrough
	default:
		introduce(m.Method, answer)
	}
	p.reply(w, 200, answer)
}

// faults returns what was wrong, and the number of right calls.
func (p *provider) faults() (wrong []string, right int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.right {
		right += n
	}
	return p.wrong, right
}
