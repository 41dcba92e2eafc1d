package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// noTokens is a fake OpenID provider that accepts two tokens.
type noTokens struct{}

func (noTokens) Issuers() []string { return []string{"https://login.example.com"} }

func (noTokens) Check(_ context.Context, text string) (*identity.Principal, error) {
	switch text {
	case "eyGood":
		return &identity.Principal{Name: "ada@example.com", Kind: identity.ByToken, Agents: []string{"alpha"}}, nil
	case "eyGroups":
		return &identity.Principal{
			Name: "eve@example.com", Kind: identity.ByToken, Admin: true, Issuer: "https://login.example.com", ACR: "gold", AMR: []string{"mfa"},
			Groups: slices.Repeat([]string{"a group with a rather long name"}, 200),
		}, nil
	case "eyStranger":
		return &identity.Principal{Name: "bob@example.com", Kind: identity.ByToken}, nil
	case "eyDown":
		return nil, identity.ErrProvider
	}
	return nil, identity.ErrToken
}

func TestPermissions(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha"), "beta.json": matrix("beta")}, func(_ *rig, o *Options) { o.OIDC = noTokens{} })
	r.Prove(t.Context())
	gone := r.key(identity.KeySpec{})
	list, err := r.keys.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.keys.Revoke(t.Context(), list[0].ID); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{
		"none":     "",
		"nonsense": "x",
		"made up":  "ambit_" + strings.ToLower(rand.Text()),
		"revoked":  gone,
		"expired":  r.key(identity.KeySpec{Expires: time.Now().Add(-time.Second)}),
		"alpha's":  r.key(identity.KeySpec{Agents: []string{"alpha"}}),
		"plain":    r.key(identity.KeySpec{}),
		"admin":    r.key(identity.KeySpec{Admin: true}),
		"daemon's": r.admin,
		"token":    "eyGood", "stranger's token": "eyStranger", "bad token": "eyBad", "token while the provider is away": "eyDown",
	}
	type want struct{ status [8]int }
	// agents, alpha, beta, call alpha, mcp beta, reload, metrics, checkpoint
	paths := [8]struct{ method, path, body string }{
		{"GET", "/api/v1/agents", ""},
		{"GET", "/api/v1/agents/alpha", ""},
		{"GET", "/api/v1/agents/beta", ""},
		{"POST", "/api/v1/agents/alpha/call", `{"tool":"echo"}`},
		{"POST", "/mcp/beta", `{}`},
		{"POST", "/api/v1/reload", ""},
		{"GET", "/metrics", ""},
		{"GET", "/api/v1/journal/checkpoint", ""},
	}
	shut := [8]int{401, 401, 401, 401, 401, 401, 401, 401}
	for name, want := range map[string]want{
		"none": {shut}, "nonsense": {shut}, "made up": {shut}, "revoked": {shut}, "expired": {shut}, "bad token": {shut},
		"alpha's":          {[8]int{200, 200, 403, 200, 403, 403, 403, 403}},
		"token":            {[8]int{200, 200, 403, 200, 403, 403, 403, 403}},
		"stranger's token": {[8]int{200, 403, 403, 403, 403, 403, 403, 403}},
		"plain":            {[8]int{200, 200, 200, 200, 200, 403, 200, 200}},
		"admin":            {[8]int{200, 200, 200, 200, 200, 200, 200, 200}},
		"daemon's":         {[8]int{200, 200, 200, 200, 200, 200, 200, 200}},
		// Requests that cannot be authenticated are rejected.
		"token while the provider is away": {[8]int{503, 503, 503, 503, 503, 503, 503, 503}},
	} {
		for i, p := range paths {
			a := r.ask(keys[name], p.method, p.path, p.body)
			if a.status != want.status[i] {
				t.Errorf("%s: %s %s answered %d, want %d: %s", name, p.method, p.path, a.status, want.status[i], a.body)
			}
			if a.status == 401 && !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer ") {
				t.Errorf("%s: %s has no challenge", name, p.path)
			}
		}
	}
	// The answer for an agent outside the key's scope is the same as for an agent that does not exist.
	hidden, none := r.ask(keys["alpha's"], "GET", "/api/v1/agents/beta", ""), r.ask(keys["alpha's"], "GET", "/api/v1/agents/unknown", "")
	if hidden.status != none.status || hidden.body != none.body {
		t.Errorf("the answer for an agent outside the scope is %s, for an unknown agent %s; want equal answers", hidden.body, none.body)
	}
	if a := r.ask(keys["alpha's"], "GET", "/api/v1/agents", ""); strings.Contains(a.body, "beta") || !strings.Contains(a.body, "alpha") {
		t.Errorf("a key for one agent sees %s", a.body)
	}
	if a := r.ask(keys["token"], "GET", "/api/v1/whoami", ""); a.doc["principal"] != "ada@example.com" || a.doc["kind"] != "oidc" || len(a.doc["agents"].([]any)) != 1 {
		t.Errorf("whoami of a token: %s", a.body)
	}
	if a := r.ask(r.admin, "GET", "/api/v1/whoami", ""); a.doc["principal"] != identity.LocalName() || a.doc["admin"] != true {
		t.Errorf("whoami with the daemon's own key returned %s", a.body)
	}
}

// An agent whose manifest requires a sign-in accepts tokens and the user of this machine, but no API key.
func TestSignInRequired(t *testing.T) {
	files := map[string]string{}
	for name, auth := range map[string]string{"alpha": "oauth-device", "beta": "api-key"} {
		files[name+"/findagent.json"] = `{"name": "` + name + ` agent", "kind": "mcp-tool", "auth": "` + auth + `", "example_prompts": ["Go."],
			"system_prompt": "You repeat the text that you get, and nothing else at all, ever.",
			"tools": [{"name": "say", "description": "Says it.", "action": {"type": "prompt-template", "template": "it"}}]}`
	}
	r := newRig(t, files, func(_ *rig, o *Options) { o.OIDC = noTokens{} })
	r.Prove(t.Context())
	for _, tt := range []struct {
		key, path, body string
		status          int
	}{
		{r.key(identity.KeySpec{Agents: []string{"alpha"}}), "/api/v1/agents/alpha/call", `{"tool":"echo"}`, 401},
		{r.key(identity.KeySpec{Admin: true}), "/api/v1/agents/alpha/call", `{"tool":"echo"}`, 401},
		{r.key(identity.KeySpec{}), "/mcp/alpha", `{}`, 401},
		{r.key(identity.KeySpec{}), "/mcp/beta", `{}`, 200},
		{"eyGood", "/api/v1/agents/alpha/call", `{"tool":"echo"}`, 200},
		{"eyGood", "/mcp/alpha", `{}`, 200},
		{r.admin, "/mcp/alpha", `{}`, 200},
	} {
		a := r.ask(tt.key, "POST", tt.path, tt.body)
		if a.status != tt.status || a.status == 401 && (a.code() != "key_refused" || !strings.Contains(a.header.Get("WWW-Authenticate"), "resource_metadata")) {
			t.Errorf("%.9s at %s: status %d, want %d: %s", tt.key, tt.path, a.status, tt.status, a.body)
		}
	}
	if a := r.ask(r.key(identity.KeySpec{}), "GET", "/api/v1/agents/alpha", ""); a.status != 200 {
		t.Errorf("a key cannot read the description of the agent: %s", a.body)
	}
}

// A call from one agent to another does not turn an API key into a sign-in.
func TestSignInRequiredInChains(t *testing.T) {
	files := map[string]string{"alpha/findagent.json": `{"name": "alpha agent", "kind": "mcp-tool", "auth": "oauth-device", "example_prompts": ["Go."],
		"system_prompt": "You repeat the text that you get, and nothing else at all, ever.",
		"tools": [{"name": "say", "description": "Says it.", "action": {"type": "prompt-template", "template": "it"}}]}`}
	served := &Served{}
	r := newRig(t, files, func(_ *rig, o *Options) { o.OIDC, o.Served = noTokens{}, served })
	r.Prove(t.Context())
	for kind, ok := range map[identity.Kind]bool{identity.ByKey: false, identity.ByToken: true, identity.Local: true} {
		_, err := served.CallAgent(t.Context(), "alpha", &call.Call{Tool: "echo", Principal: "ada", Attributes: &identity.Attributes{Kind: kind}})
		if refusal, _ := errors.AsType[*call.Refusal](err); ok != (err == nil) || refusal != nil && !strings.Contains(refusal.Message, "requires a sign-in") {
			t.Errorf("a call with the credential %q ended with %v", kind, err)
		}
	}
}

// The console keeps its session in a cookie, so a token with very many groups gets no link.
func TestManyGroupsGetNoLink(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(_ *rig, o *Options) { o.OIDC = noTokens{} })
	if err := r.OpenConsole(t.Context(), &ConsoleOptions{Store: r.store, Credentials: &credential.Source{}}); err != nil {
		t.Fatal(err)
	}
	if a := r.ask("eyGroups", "POST", "/api/v1/console", ""); a.status != 400 || !strings.Contains(a.body, "too many groups") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := r.ask("eyGroups", "GET", "/api/v1/whoami", ""); len(a.doc["groups"].([]any)) != 200 || a.doc["issuer"] != "https://login.example.com" {
		t.Errorf("whoami: %s", a.body)
	}
}

// A key that is revoked while the daemon runs is rejected from then on.
func TestRevokedWhileServing(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	k, text, err := r.keys.New(t.Context(), identity.KeySpec{})
	if err != nil {
		t.Fatal(err)
	}
	if a := r.ask(text, "GET", "/api/v1/whoami", ""); a.status != 200 {
		t.Fatal(a.body)
	}
	if _, err := identity.NewAPIKeys(r.store.Authority).Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if a := r.ask(text, "GET", "/api/v1/whoami", ""); a.status != 401 || a.code() != "key_refused" {
		t.Errorf("a request with the revoked key got %d: %s", a.status, a.body)
	}
}

// Without an OpenID provider, a token is rejected like a wrong key. No header names the place to sign in.
func TestWithoutProvider(t *testing.T) {
	r := newRig(t, nil, nil)
	a := r.ask("eyGood", "GET", "/api/v1/whoami", "")
	if c := a.header.Get("WWW-Authenticate"); a.status != 401 || strings.Contains(c, "resource_metadata") {
		t.Errorf("a request with a token got %d with the challenge %q", a.status, c)
	}
	if a := r.ask(r.admin, "GET", "/.well-known/oauth-protected-resource", ""); a.status != 404 {
		t.Errorf("the daemon serves sign-in metadata: %s", a.body)
	}
}

func TestProtectedResource(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(_ *rig, o *Options) { o.OIDC = noTokens{} })
	a := r.ask("", "POST", "/mcp/alpha", "{}")
	want := `resource_metadata="` + r.server.URL + `/.well-known/oauth-protected-resource/mcp/alpha"`
	if c := a.header.Get("WWW-Authenticate"); !strings.Contains(c, want) {
		t.Errorf("the challenge is %q", c)
	}
	a = r.ask("", "GET", "/.well-known/oauth-protected-resource/mcp/alpha", "")
	if a.status != 200 || a.doc["resource"] != r.server.URL+"/mcp/alpha" || a.doc["authorization_servers"].([]any)[0] != "https://login.example.com" {
		t.Errorf("the metadata of the agent is %s", a.body)
	}
	if a := r.ask("", "GET", "/.well-known/oauth-protected-resource", ""); a.doc["resource"] != r.server.URL {
		t.Errorf("the metadata of the daemon is %s", a.body)
	}
	// The answer does not reveal whether the agent exists.
	if a := r.ask("", "GET", "/.well-known/oauth-protected-resource/mcp/unknown", ""); a.status != 200 {
		t.Errorf("the metadata of an unknown agent returned %d", a.status)
	}
}

// The request that reaches the agent has no Authorization header.
func TestKeyIsNotPassedOn(t *testing.T) {
	seen := make(chan http.Header, 1)
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(r *rig, _ *Options) {
		r.make = func(f *fake) { f.seen = seen; close(f.ready) }
	})
	r.ask(r.admin, "POST", "/mcp/alpha", "{}")
	if h := <-seen; h.Get("Authorization") != "" {
		t.Error("the agent received the key")
	}
}

func TestAuthorizationHeader(t *testing.T) {
	r := newRig(t, nil, nil)
	for name, values := range map[string][]string{
		"basic": {"Basic " + r.admin}, "two": {"Bearer " + r.admin, "Bearer " + r.admin}, "no scheme": {r.admin}, "empty": {""}, "no key": {"Bearer "},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.server.URL+"/api/v1/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["Authorization"] = values
		if a := r.do(req); a.status != 401 {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	// A key in the query of a URL is not accepted, because logs contain URLs.
	if a := r.ask("", "GET", "/api/v1/whoami?key="+r.admin+"&access_token="+r.admin, ""); a.status != 401 {
		t.Errorf("in the query: %d", a.status)
	}
}

type brokenKeys struct{}

func (brokenKeys) Check(context.Context, string) (*identity.Principal, error) {
	return nil, errors.New("the disk is gone")
}

func (brokenKeys) Standing(context.Context, string) error { return errors.New("the disk is gone") }

// If keys cannot be checked, requests are rejected. Only the log contains the reason.
func TestKeysCannotBeChecked(t *testing.T) {
	r := newRig(t, nil, func(_ *rig, o *Options) { o.APIKeys = brokenKeys{} })
	a := r.ask("ambit_x", "GET", "/api/v1/agents", "")
	if a.status != 503 || strings.Contains(a.body, "disk") {
		t.Errorf("the request got %d: %s", a.status, a.body)
	}
}

// BenchmarkKey measures the shield and the key check of a request, without the network.
func BenchmarkKey(b *testing.B) {
	root, err := identity.OpenKeys(filepath.Join(b.TempDir(), "root"))
	if err != nil {
		b.Fatal(err)
	}
	db := statetest.Open(b)
	keys := identity.NewAPIKeys(authority.New(authority.Track(db, nil), root))
	_, text, err := keys.New(b.Context(), identity.KeySpec{})
	if err != nil {
		b.Fatal(err)
	}
	d, err := New(Options{APIKeys: keys})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	handler := d.Handler()
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("GET", "http://127.0.0.1/api/v1/whoami", nil)
		r.Header.Set("Authorization", "Bearer "+text)
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body)
		}
	}
}
