package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
)

// world is a remote server with an authorization server, both on this machine. Tests change its answers.
type world struct {
	t *testing.T
	// server is the remote server, and issuer is its authorization server.
	server, issuer *httptest.Server

	mu    sync.Mutex
	needs string // the scope that the server requires, or ""
	// elsewhere is set if the server names an address of its own for its metadata.
	elsewhere bool
	claims    map[string]string   // changes to the server's metadata; the key "resource" is the resource
	metadata  map[string]any      // changes to the authorization server's metadata
	answer    map[string]string   // changes to the answer of the sign-in page
	life      int                 // lifetime of a token in seconds; 0 means that the answer does not contain it
	codes     map[string]askedFor // by code
	tokens    map[string]askedFor // valid access tokens
	refresh   map[string]askedFor // valid refresh tokens
	pages     []url.Values        // the requests to the sign-in page
	forms     []url.Values        // the requests to the token endpoint
	clients   int                 // registered clients
	revoked   []string
	dpop      dpopWorld
}

// askedFor is what a code or token was issued for.
type askedFor struct{ client, challenge, redirect, resource, scope string }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, claims: map[string]string{}, metadata: map[string]any{}, answer: map[string]string{}, life: 3600,
		codes: map[string]askedFor{}, tokens: map[string]askedFor{}, refresh: map[string]askedFor{},
	}
	w.issuer = httptest.NewServer(w.authorizationServer())
	w.server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.issuer.Close)
	t.Cleanup(w.server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return w
}

func (w *world) endpoint() string { return w.server.URL + "/mcp" }

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	meta := w.server.URL + "/.well-known/oauth-protected-resource/mcp"
	if w.elsewhere {
		meta = w.server.URL + "/mcp/meta"
	}
	if w.server.URL+r.URL.Path == meta {
		resource := w.endpoint()
		if c := w.claims["resource"]; c != "" {
			resource = c
		}
		reply(rw, 200, map[string]any{
			"resource": resource, "authorization_servers": []string{w.issuer.URL},
		})
		return
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	of, ok := w.tokens[token]
	switch {
	case ok && w.dpop.unknown:
		w.dpop.schemes = append(w.dpop.schemes, scheme)
		if scheme != "Bearer" {
			rw.Header().Set("WWW-Authenticate", "Bearer")
			rw.WriteHeader(http.StatusUnauthorized)
		}
	case ok && w.dpop.refuses(rw, r, w.server.URL, token):
	case !ok || of.resource != w.endpoint():
		rw.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+meta+`", scope="read"`)
		rw.WriteHeader(http.StatusUnauthorized)
	case w.needs != "" && !slices.Contains(strings.Fields(of.scope), w.needs):
		rw.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+w.needs+`"`)
		rw.WriteHeader(http.StatusForbidden)
	}
}

func (w *world) authorizationServer() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(rw http.ResponseWriter, _ *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		at := w.issuer.URL
		doc := map[string]any{
			"issuer": at, "authorization_endpoint": at + "/page", "token_endpoint": at + "/token",
			"registration_endpoint": at + "/register", "revocation_endpoint": at + "/revoke",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
			"authorization_response_iss_parameter_supported": true, "scopes_supported": []string{"offline_access"},
			"token_endpoint_auth_methods_supported": []string{"none"},
		}
		for name, value := range w.metadata {
			doc[name] = value
		}
		reply(rw, 200, doc)
	})
	mux.HandleFunc("POST /register", func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		w.clients++
		asked["client_id"] = "client-" + rand.Text()
		reply(rw, http.StatusCreated, asked)
	})
	mux.HandleFunc("GET /page", w.page)
	mux.HandleFunc("POST /token", w.token)
	mux.HandleFunc("POST /revoke", func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.revoked = append(w.revoked, r.FormValue("token"))
	})
	return mux
}

// page agrees at once and sends the browser back.
func (w *world) page(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := r.URL.Query()
	w.pages = append(w.pages, q)
	code := rand.Text()
	w.codes[code] = askedFor{
		q.Get("client_id"), q.Get("code_challenge"), q.Get("redirect_uri"), q.Get("resource"), q.Get("scope"),
	}
	back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {w.issuer.URL}}
	for name, value := range w.answer {
		if back.Set(name, value); value == "" {
			back.Del(name)
		}
	}
	http.Redirect(rw, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (w *world) token(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = r.ParseForm()
	w.forms = append(w.forms, r.PostForm)
	if w.dpop.refuses(rw, r, w.issuer.URL, r.PostForm.Get("refresh_token")) {
		return
	}
	var of askedFor
	var ok bool
	switch r.PostForm.Get("grant_type") {
	case "authorization_code":
		of, ok = w.codes[r.PostForm.Get("code")]
		delete(w.codes, r.PostForm.Get("code"))
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		ok = ok && base64.RawURLEncoding.EncodeToString(sum[:]) == of.challenge &&
			of.redirect == r.PostForm.Get("redirect_uri")
	case "client_credentials", jwtBearer:
		id, secret, basic := r.BasicAuth()
		if !basic {
			id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
		}
		right := r.PostForm.Get("grant_type") == jwtBearer && r.PostForm.Get("assertion") == "workload-canary" ||
			id == "machine" && (secret == "canary-secret" || strings.Count(r.PostForm.Get("client_assertion"), ".") == 2)
		of, ok = askedFor{client: r.PostForm.Get("client_id"), resource: r.PostForm.Get("resource")}, right
	case "refresh_token":
		of, ok = w.refresh[r.PostForm.Get("refresh_token")]
		delete(w.refresh, r.PostForm.Get("refresh_token")) // each refresh token works only once
	}
	if !ok || of.client != r.PostForm.Get("client_id") || of.resource != r.PostForm.Get("resource") {
		reply(rw, 400, map[string]any{"error": "invalid_grant", "error_description": "canary " + r.PostForm.Encode()})
		return
	}
	access, refresh := "canary-access-"+rand.Text(), "canary-refresh-"+rand.Text()
	w.tokens[access], w.refresh[refresh] = of, of
	answer := map[string]any{"access_token": access, "refresh_token": refresh, "token_type": w.dpop.bind(access, refresh)}
	if w.life > 0 {
		answer["expires_in"] = w.life
	}
	reply(rw, 200, answer)
}

func reply(rw http.ResponseWriter, status int, doc any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(doc)
}

// set changes the world.
func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// newKeeper returns a keeper with development switches, which allow authorization servers on this machine.
func newKeeper(t *testing.T) *Keeper {
	t.Helper()
	h := home.At(t.TempDir())
	t.Setenv("AMBIT_HOME", h.Dir()) // with AMBIT_HOME set, the vault's key is stored in the folder
	c := egress.New(egress.Switches{LoopbackHTTP: true})
	t.Cleanup(c.Close)
	return New(h, credential.Open(h), c)
}

func (w *world) target() Target {
	return Target{Agent: "notes", ID: "notes-id", Server: "remote", Endpoint: w.endpoint(), Principal: "ada@local"}
}

// request sends a request as mcpwire does, and returns the last status.
func request(ctx context.Context, s *Session, endpoint string) (status int, err error) {
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, nil)
		if err != nil {
			return 0, err
		}
		if _, err := s.Header(ctx, req.Header); err != nil {
			return 0, err
		}
		if err := s.Prove(req); err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		refused := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
		if !refused || try == 10 {
			return resp.StatusCode, nil
		}
		if again, err := s.Refused(ctx, req, resp, try); err != nil || !again {
			return resp.StatusCode, err
		}
	}
}

// person is a browser with a person who agrees to everything.
func person() *Loopback {
	return &Loopback{Show: func(ctx context.Context, page string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
		if err != nil {
			return err
		}
		go func() {
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		return nil
	}}
}

// signIn signs in to the world's server.
func (w *world) signIn(k *Keeper) {
	w.t.Helper()
	if status, err := request(w.t.Context(), k.Session(w.target(), person()), w.endpoint()); err != nil || status != 200 {
		w.t.Fatalf("signing in: status %d, %v", status, err)
	}
}

// bounded returns a context that ends a test that would otherwise hang.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
