package credential

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// expiryMargin is the remaining lifetime at which a token is replaced.
const expiryMargin = time.Minute

// serviceAccount contains the fields of a service account's key file that the exchange needs.
type serviceAccount struct {
	Type         string `json:"type"`
	ClientEmail  string `json:"client_email"`
	PrivateKey   string `json:"private_key"`
	PrivateKeyID string `json:"private_key_id"`
	TokenURI     string `json:"token_uri"`
}

// readAccount reads the key file of a service account. The second result is false if the text is something else.
func readAccount(text string) (a serviceAccount, ok bool) {
	err := json.Unmarshal([]byte(text), &a)
	return a, err == nil && a.Type == "service_account"
}

// tokens contains the access token of each credential slot.
type tokens struct {
	mu     sync.Mutex
	bySlot map[string]cachedToken
}

type cachedToken struct {
	key, scopes string
	token       *oauth2.Token
}

// Token exchanges the key of a service account for an access token (RFC 7523). In the returned copy of the key,
// {credential} means the token. If the slot has no scopes, Token returns the key unchanged.
//
// The token has the scopes of the slot, and the key must have been set for all these scopes. The assertion is sent to
// the key's token_uri. The slot and the secret must allow the host of the token_uri. The error is a [*call.Refusal].
func (s *Source) Token(
	ctx context.Context, client *egress.Client, a *agent.Agent, slot *agent.Slot, key Secret,
) (Secret, error) {
	if len(slot.Scopes) == 0 {
		return key, nil
	}
	if c := key.content(); c.scoped {
		if i := slices.IndexFunc(slot.Scopes, func(s string) bool { return !slices.Contains(c.scopes, s) }); i >= 0 {
			r := call.Refuse(Stage, call.CredentialMissing,
				"the manifest asks for the scope %s, but the key %s was set without this scope",
				diag.Quote(slot.Scopes[i]), slot.Ref)
			r.Hint = fmt.Sprintf("if the agent may have the scope, run: ambit secret set %s %s",
				diag.ShellWord(s.Agent), diag.ShellWord(slot.Ref))
			return Secret{}, r
		}
	}
	account, ok := readAccount(key.Reveal())
	if !ok || account.ClientEmail == "" || account.PrivateKey == "" || account.TokenURI == "" {
		r := call.Refuse(Stage, call.CredentialMissing, "the credential %s is not the key of a service account", slot.Ref)
		r.Hint = "set the whole key file, with \"type\": \"service_account\", client_email, private_key and token_uri"
		return Secret{}, r
	}
	c := cachedToken{key: key.Reveal(), scopes: strings.Join(slot.Scopes, " ")}
	config := jwt.Config{
		Email: account.ClientEmail, PrivateKey: []byte(account.PrivateKey), PrivateKeyID: account.PrivateKeyID,
		Scopes: slot.Scopes, TokenURL: account.TokenURI,
	}
	exchange := &exchange{client: client, slot: slot, key: key}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport:     exchange,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	var err error
	cached := s.tokens.get(slot.Ref, c)
	c.token, err = oauth2.ReuseTokenSourceWithExpiry(cached, config.TokenSource(ctx), expiryMargin).Token()
	if err != nil {
		return Secret{}, exchange.refusal(err)
	}
	if c.token.AccessToken == "" || !strings.EqualFold(c.token.Type(), "bearer") {
		return Secret{}, exchange.refuse("the token server's response contains no bearer token")
	}
	s.tokens.put(slot.Ref, c)
	if known, err := New(Masked, c.token.AccessToken, key.Hosts()); err == nil {
		s.issued.add(a, slot.Ref+" token", known)
	}
	with := key.content()
	with.token = c.token.AccessToken
	return Secret{func() content { return with }}, nil
}

// get returns the cached token of a slot if it was issued for the same key and scopes, and nil otherwise.
func (t *tokens) get(ref string, want cachedToken) *oauth2.Token {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	have := t.bySlot[ref]
	if have.key != want.key || have.scopes != want.scopes {
		return nil
	}
	return have.token
}

// put caches the token of a slot. A nil receiver caches nothing.
func (t *tokens) put(ref string, c cachedToken) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bySlot[ref] = c
}

// exchange sends the request for a token. It stores a refusal, because package jwt returns only the text of an error.
type exchange struct {
	client  *egress.Client
	slot    *agent.Slot
	key     Secret
	refused *call.Refusal
}

// RoundTrip sends a request only to the hosts of the credential.
func (e *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	err := Audience(e.client.Switches(), req, e.slot, e.key)
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		r.Hint = cmp.Or(r.Hint,
			"add the host of the key's token_uri to the slot's allowed_hosts, and set the credential again")
	}
	var resp *http.Response
	if err == nil {
		resp, err = e.client.Do(req)
	}
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		known := *r
		if known.Effect != call.NoEffect { // the request of the tool itself was not sent yet
			known.Effect = call.NoEffect
			known.Again()
		}
		e.refused = &known
	}
	return resp, err
}

// refusal returns the refusal for a failed exchange. The refusal contains only the status and the error code of the
// server's response.
func (e *exchange) refusal(err error) error {
	if e.refused != nil {
		return e.refused
	}
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return e.refuse("the key's private_key or the token server's response cannot be read")
	}
	var body struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(answer.Body, &body)
	if body.Error == "" || strings.Trim(body.Error, "abcdefghijklmnopqrstuvwxyz_") != "" {
		body.Error = "no error code"
	}
	return e.refuse("the token server answered " + answer.Response.Status + " (" + body.Error + ")")
}

func (e *exchange) refuse(why string) error {
	r := call.Refuse(Stage, call.CredentialMissing,
		"the credential %s cannot be exchanged for an access token: %s", e.slot.Ref, why)
	r.Hint = "check the key of the service account and the slot's scopes"
	return r
}
