package signin

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// dpopWorld is the part of a world that checks proofs (RFC 9449). The world's mutex guards it.
type dpopWorld struct {
	on       bool
	unknown  bool              // the remote server knows only the scheme Bearer
	schemes  []string          // the schemes that such a server got
	downTo   string            // the type of new tokens, if it is not DPoP
	nonce    string            // the nonce that proofs must contain, or "" for none
	restless bool              // set to ask for another nonce at each request
	bound    map[string]string // maps each token to the thumbprint of its key
	seen     map[string]bool   // the ids of all proofs so far
	last     string            // the thumbprint of the key in the last proof
	asked    int               // how often the world has asked for a nonce
	problem  string            // the reason why the last proof was refused
}

// turnOn makes the world announce and require DPoP.
func (w *world) turnOn() {
	w.set(func(w *world) {
		w.dpop = dpopWorld{on: true, bound: map[string]string{}, seen: map[string]bool{}}
		w.metadata["dpop_signing_alg_values_supported"] = []string{"RS256", "ES256"}
	})
}

// bind binds new tokens to the key of the last proof, and returns their type.
func (d *dpopWorld) bind(tokens ...string) string {
	if !d.on || d.downTo != "" {
		return "Bearer"
	}
	for _, token := range tokens {
		d.bound[token] = d.last
	}
	return "DPoP"
}

// refuses checks the proof of a request, and answers the request if the proof is wrong. The base is the origin of the
// server. The token is the access token or the refresh token, or "" if the request has none.
func (d *dpopWorld) refuses(rw http.ResponseWriter, r *http.Request, base, token string) bool {
	if !d.on {
		return false
	}
	isCall := r.URL.Path == "/mcp"
	code := "invalid_dpop_proof"
	nonce, problem := d.check(r, base, token, isCall)
	if d.problem = problem; problem == "" && nonce == d.nonce && !d.restless {
		return false
	}
	if problem == "" {
		d.asked++
		if code = "use_dpop_nonce"; d.restless {
			d.nonce = rand.Text()
		}
		rw.Header().Set("DPoP-Nonce", d.nonce)
	}
	if isCall {
		rw.Header().Set("WWW-Authenticate", `DPoP error="`+code+`"`)
		rw.WriteHeader(http.StatusUnauthorized)
	} else {
		reply(rw, 400, map[string]any{"error": code})
	}
	return true
}

func (d *dpopWorld) check(r *http.Request, base, token string, isCall bool) (nonce, problem string) {
	proof, err := jose.ParseSigned(r.Header.Get("DPoP"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || len(r.Header.Values("DPoP")) != 1 {
		return "", "there is no proof"
	}
	header := proof.Signatures[0].Header
	if header.JSONWebKey == nil || !header.JSONWebKey.IsPublic() || header.ExtraHeaders["typ"] != "dpop+jwt" {
		return "", "the header is wrong"
	}
	var is struct {
		JTI, HTM, HTU, ATH, Nonce string
		IAT                       int64
	}
	text, err := proof.Verify(header.JSONWebKey)
	if err != nil || json.Unmarshal(text, &is) != nil {
		return "", "the signature is wrong"
	}
	thumb, err := header.JSONWebKey.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", "the key is wrong"
	}
	sum := sha256.Sum256([]byte(token))
	key := base64.RawURLEncoding.EncodeToString(thumb)
	age := time.Since(time.Unix(is.IAT, 0))
	switch {
	case is.HTM != r.Method || is.HTU != base+r.URL.Path:
		return "", "the proof is for " + is.HTM + " " + is.HTU
	case is.JTI == "" || d.seen[is.JTI]:
		return "", "the proof was used before"
	case age < -time.Hour || age > time.Hour:
		return "", "the proof is old"
	case isCall && is.ATH != base64.RawURLEncoding.EncodeToString(sum[:]):
		return "", "the proof is for another token"
	case isCall && !strings.HasPrefix(r.Header.Get("Authorization"), "DPoP "):
		return "", "the scheme is not DPoP"
	case token != "" && d.bound[token] != key:
		return "", "the token is bound to another key"
	}
	d.seen[is.JTI], d.last = true, key
	return is.Nonce, ""
}

// The tokens of a provider that supports DPoP are bound to a key. The key is stored with the sign-in. Renewed tokens
// are bound to the same key.
func TestDPoP(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.turnOn()
	w.signIn(k)
	later := time.Now().Add(2 * time.Hour)
	for range 2 { // the second request uses a renewed token
		status, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint()+"?with=query")
		if err != nil || status != 200 {
			t.Errorf("a call with a bound token: status %d, %v (%s)", status, err, w.dpop.problem)
		}
		k.now = func() time.Time { return later }
	}
	if len(w.forms) != 2 || w.dpop.asked != 0 {
		t.Errorf("the provider got %d token requests and asked for a nonce %d times", len(w.forms), w.dpop.asked)
	}
	first := stored(t, k, w).Key
	w.signIn(k)
	if second := stored(t, k, w).Key; first == nil || second == nil || first.Key == second.Key {
		t.Error("two sign-ins have the same key")
	}
}

// A provider that does not announce DPoP gets no proof, and its tokens are not bound.
func TestNoDPoP(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.metadata["dpop_signing_alg_values_supported"] = []string{"RS256", "none"}
	w.signIn(k)
	if stored(t, k, w).Key != nil {
		t.Error("the sign-in has a key, although the provider does not announce DPoP")
	}
	req := httptest.NewRequest(http.MethodPost, w.endpoint(), nil)
	s := k.Session(w.target(), nil)
	if _, err := s.Header(t.Context(), req.Header); err != nil {
		t.Fatal(err)
	}
	if err := s.Prove(req); err != nil || req.Header.Get("DPoP") != "" || !strings.HasPrefix(req.Header.Get("Authorization"), "Bearer ") {
		t.Errorf("a request without DPoP: error %v, and a proof of %d bytes", err, len(req.Header.Get("DPoP")))
	}
}

// A server that knows only the scheme Bearer gets the bound token with this scheme, also after the token was renewed or
// revoked. The authorization server still gets proofs.
func TestServerWithoutDPoP(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.turnOn()
	w.dpop.unknown = true
	w.signIn(k)
	if stored(t, k, w).Key == nil {
		t.Error("the sign-in has no key")
	}
	s := k.Session(w.target(), nil)
	for _, step := range []string{"first", "revoked", "again"} {
		if step == "revoked" {
			w.set(func(w *world) { clear(w.tokens) })
		}
		if status, err := request(t.Context(), s, w.endpoint()); err != nil || status != 200 {
			t.Errorf("%s: status %d, %v (%s)", step, status, err, w.dpop.problem)
		}
	}
	// The first two requests are the sign-in's.
	if got, want := strings.Join(w.dpop.schemes, " "), "DPoP Bearer DPoP Bearer Bearer Bearer"; got != want {
		t.Errorf("the schemes are %s, want %s", got, want)
	}
	// A token that was revoked before the session's first request is renewed too, and only once.
	w.set(func(w *world) { clear(w.tokens) })
	before := len(w.forms)
	if status, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint()); err != nil || status != 200 || len(w.forms) != before+1 {
		t.Errorf("another session: status %d, %v, %d token requests", status, err, len(w.forms)-before)
	}
}

// A server that knows DPoP never gets a token without a proof, however it refuses requests.
func TestServerWithDPoP(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.turnOn()
	w.signIn(k)
	var schemes []string
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		schemes = append(schemes, scheme)
		rw.Header().Add("WWW-Authenticate", `Bearer error="invalid_token"`)
		rw.Header().Add("WWW-Authenticate", `DPoP error="invalid_token"`)
		rw.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	if _, err := request(bounded(t), k.Session(w.target(), nil), server.URL); err == nil {
		t.Error("the request is not refused")
	}
	if len(schemes) == 0 || slices.ContainsFunc(schemes, func(s string) bool { return s != "DPoP" }) {
		t.Errorf("the server got the schemes %v", schemes)
	}
}

// Both servers may ask for their nonce, and change it at any time.
func TestDPoPNonce(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.turnOn()
	w.dpop.nonce = "first"
	w.signIn(k)
	s := k.Session(w.target(), nil)
	for _, nonce := range []string{"first", "first", "second"} {
		w.set(func(w *world) { w.dpop.nonce = nonce })
		if status, err := request(t.Context(), s, w.endpoint()); err != nil || status != 200 {
			t.Errorf("a call with the nonce %s: status %d, %v (%s)", nonce, status, err, w.dpop.problem)
		}
	}
	if w.dpop.asked != 4 { // one nonce for each of: the token endpoint, the sign-in, the first call, the second call
		t.Errorf("a nonce was asked for %d times, want 4", w.dpop.asked)
	}
}

// If a server asks for another nonce each time, ambit stops after a few requests.
func TestEndlessNonces(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.turnOn()
	w.dpop.restless = true
	if _, err := request(bounded(t), k.Session(w.target(), person()), w.endpoint()); err == nil || w.dpop.asked != 2 {
		t.Errorf("signing in: %v; a nonce was asked for %d times, want 2", err, w.dpop.asked)
	}
	w.turnOn()
	w.signIn(k)
	w.set(func(w *world) { w.dpop.restless = true })
	status, err := request(bounded(t), k.Session(w.target(), nil), w.endpoint())
	if err != nil || status != http.StatusUnauthorized || w.dpop.asked != maxNonceTries+1 {
		t.Errorf("a call: status %d, %v; a nonce was asked for %d times", status, err, w.dpop.asked)
	}
}

// A provider cannot replace bound tokens with tokens that anyone could use, and cannot bind tokens to an unknown key.
func TestDPoPDowngrade(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.turnOn()
	w.signIn(k)
	w.dpop.downTo = "Bearer"
	later := time.Now().Add(2 * time.Hour)
	k.now = func() time.Time { return later }
	_, err := request(t.Context(), k.Session(w.target(), nil), w.endpoint())
	if err == nil || !strings.Contains(err.Error(), "not bound to the sign-in's key") {
		t.Errorf("a renewed token without a key: %v", err)
	}
}
