package signin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// The values of the setting "identity".
const (
	callerIdentity = "caller"
	ownerIdentity  = "owner"
)

// ServeCallers makes the keeper serve the callers of a daemon. Their sign-ins are kept in the daemon's store.
func (k *Keeper) ServeCallers(db state.DB, keys *identity.Keys) {
	k.shared = &sharedStorage{db, keys, time.Now}
}

// ServesCallers reports whether the keeper serves the callers of a daemon.
func (k *Keeper) ServesCallers() bool { return k.shared != nil }

// SetAddress sets the daemon's address, which appears in the commands that callers run to sign in.
func (k *Keeper) SetAddress(address string) { k.address.Store(&address) }

// For returns a copy of a target for a principal. If the principal is a caller of a daemon, the copy contains the
// daemon's address.
func (k *Keeper) For(t Target, principal string) Target {
	t.Principal, t.Daemon = principal, ""
	if address := k.address.Load(); address != nil && k.storageOf(principal) == k.shared {
		t.Daemon = *address
	}
	return t
}

// ByCaller reports whether each caller uses a sign-in of their own for an endpoint. Otherwise, all requests use the
// sign-in of the owner.
func (k *Keeper) ByCaller(endpoint string) (bool, error) {
	if k.shared == nil {
		return false, nil
	}
	u, err := k.upstream(endpoint)
	return u.Identity != ownerIdentity && u.Grant == "", err
}

// noPrincipal is the principal of requests without a token. It is also the principal in the row of the client that
// ambit registered for all callers.
const noPrincipal = ""

// key returns the id of a sign-in. Earlier versions stored sign-ins without an id.
func (g *grant) key() string { return cmp.Or(g.ID, "unnamed") }

// Anonymous returns a session whose requests contain no token.
func (k *Keeper) Anonymous(t Target) *Session { return k.Session(k.For(t, noPrincipal), nil) }

// CallerSession returns a session that uses only the principal's current sign-in. It also returns the id of this
// sign-in, or "" if the principal is not signed in.
func (k *Keeper) CallerSession(t Target) (s *Session, id string, err error) {
	g, err := k.load(&t)
	switch {
	case err != nil:
		return nil, "", t.unusable(err)
	case g.Access == "":
		return nil, "", nil
	}
	s = k.Session(t, nil)
	s.id = g.key()
	return s, s.id, nil
}

// NotSignedIn returns the refusal for a principal who is not signed in.
func (t *Target) NotSignedIn() *call.Refusal {
	// Lists of agents show no hints, so the message itself contains the command.
	r := t.refuse("server %s needs a sign-in (%s)", t.Server, t.Command())
	r.SignIn = t.Server
	return r
}

// PagePath is the path of the daemon's page at which a caller signs in to a remote server.
const PagePath = "/login/server"

// Page returns the address of the daemon's page at which the target's principal signs in. It also returns the id of
// the principal's current sign-in, or "" if there is none. The address does not identify the principal, because each
// person who opens the page signs in for themselves. If the principal is not a caller of a daemon, both results are
// "".
func (k *Keeper) Page(t Target) (page, id string) {
	if t.Daemon == "" {
		return "", ""
	}
	_, id, err := k.CallerSession(t)
	if err != nil {
		return "", ""
	}
	query := url.Values{"agent": {t.Agent}, "server": {t.Server}}
	return t.Daemon + PagePath + "?" + query.Encode(), id
}

// Begun is a sign-in that waits for the answer of the authorization server's page.
type Begun struct {
	// Page is the address of the page. State is the state that the page's answer will contain.
	Page    string    `json:"url"`
	State   string    `json:"state"`
	Expires time.Time `json:"expires_at"`
}

// maxBegun is the maximum number of sign-ins of one principal that wait for their answers. It is limited because each
// of them may register a client.
const maxBegun = 20

// waiting is a visit together with the session that began it.
type waiting struct {
	Session string `json:"session"`
	Visit   *visit `json:"visit"`
}

// fixedRedirect is a [redirector] with a fixed address, such as that of a daemon.
type fixedRedirect string

func (f fixedRedirect) Redirect(context.Context, int) (string, error) { return string(f), nil }

// Begin begins a sign-in of the target's principal and returns the page to open in a browser. Afterwards, the page
// sends the browser to the address in redirect. The parameter session identifies the browser session or the key of the
// principal. Only the same session or key can complete the sign-in, so another person cannot be lured into completing
// it.
func (k *Keeper) Begin(ctx context.Context, session string, t Target, redirect string, more ...string) (Begun, error) {
	if k.shared == nil {
		return Begun{}, errors.New("only a daemon can sign in callers, and this process is not a daemon")
	}
	switch byCaller, err := k.ByCaller(t.Endpoint); {
	case err != nil:
		return Begun{}, t.unusable(err)
	case !byCaller:
		r := call.Refuse(Stage, call.PolicyDenied, "server %s uses the operator's sign-in for all callers", t.Server)
		r.Hint = "you need not sign in; if each caller should use their own sign-in, the operator can remove " +
			"identity or grant from [upstream.\"HOST\"] in config.toml"
		return Begun{}, r
	}
	place, err := k.reservePlace(ctx, t.Principal)
	if err != nil {
		return Begun{}, err
	}
	old, err := k.load(&t)
	if err == nil {
		old, err = k.withClientOfAll(&t, old)
	}
	if err != nil {
		return Begun{}, t.unusable(err)
	}
	v, page, err := k.begin(ctx, fixedRedirect(redirect), &t, k.challenges(ctx, t.Endpoint), old, more)
	if err != nil {
		return Begun{}, t.failed(err)
	}
	if v.Client.Registered && v.Client != old.Client {
		g := &grant{Resource: v.Resource, Issuer: v.Issuer, Client: v.Client, TokenURL: v.TokenURL}
		if err := k.save(t.forAllCallers(), g, ""); err != nil {
			return Begun{}, t.unusable(err)
		}
	}
	until := k.now().Add(visitTime)
	if err := k.keepVisit(ctx, place, waiting{session, v}, until); err != nil {
		return Begun{}, t.unusable(err)
	}
	return Begun{page, v.State, until}, nil
}

// forAllCallers returns the target under which the client for all callers is stored.
func (t Target) forAllCallers() *Target {
	t.Principal = noPrincipal
	return &t
}

// withClientOfAll returns a copy of a sign-in with the client that ambit registered for all callers. If there is no
// such client, or if the sign-in is for another authorization server, it returns the sign-in unchanged.
func (k *Keeper) withClientOfAll(t *Target, old *grant) (*grant, error) {
	shared, err := k.load(t.forAllCallers())
	if err != nil || shared.Issuer == "" || old.Issuer != "" && old.Issuer != shared.Issuer {
		return old, err
	}
	g := *old
	g.Issuer, g.Client = shared.Issuer, shared.Client
	return &g, nil
}

// challenges sends a request without a token and returns the challenges in the server's answer. If the status is not
// 401, it returns nil, and the metadata is searched without challenges.
func (k *Keeper) challenges(ctx context.Context, endpoint string) []oauthex.Challenge {
	body := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, body)
	if err != nil {
		return nil
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := k.client.Do(req)
	if err != nil {
		return nil
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		return nil
	}
	// If parsing fails, challenges is nil.
	challenges, _ := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate"))
	return challenges
}

// Complete completes a sign-in with the page's answer, which is the query of the address to which the browser
// returned. The principal and the session must be those that began the sign-in. An answer can be used only once.
func (k *Keeper) Complete(ctx context.Context, principal, session string, answer url.Values) (Grant, error) {
	if k.shared == nil {
		return Grant{}, errors.New("only a daemon can sign in callers, and this process is not a daemon")
	}
	w, err := k.takeVisit(ctx, principal, session, answer.Get("state"))
	if err != nil {
		return Grant{}, err
	}
	t := &w.Visit.Target
	// Continue even if the caller disconnects, because the code works only once.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*answerTime)
	defer cancel()
	g, err := k.finish(ctx, w.Visit, answer)
	if err != nil {
		return Grant{}, t.failed(err)
	}
	if err := k.replace(ctx, t, g); err != nil {
		return Grant{}, t.unusable(err)
	}
	// A completed sign-in does not count toward maxBegun. If the row cannot be deleted, it counts until it expires.
	_ = k.shared.write(`DELETE FROM signins_begun WHERE id = $1`, stateID(w.Visit.State))
	return g.public(t.Agent, t.Server, t.Principal, hostOf(t.Endpoint)), nil
}

// ListFor returns the sign-ins of a principal, sorted by agent and server.
func (k *Keeper) ListFor(principal string) ([]Grant, error) {
	return listed(k.storageOf(principal), principal)
}

// stateID returns the id of a waiting sign-in. The id is a hash of the state. A person who can read the store
// therefore does not learn the state, which the answer must contain.
func stateID(state string) string {
	sum := sha256.Sum256([]byte(state))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// reservePlace reserves one of the principal's maxBegun places for a sign-in and returns the id of the place. It
// returns an error if all places are taken. A failed sign-in keeps its place until it expires, because it may have
// registered a client.
func (k *Keeper) reservePlace(ctx context.Context, principal string) (place string, err error) {
	var begun int64
	full := false
	place = rand.Text()
	err = k.shared.db.Write(ctx, func(tx state.Tx) error {
		now := k.now()
		if _, err := tx.Exec(`DELETE FROM signins_begun WHERE until < $1`, now.UnixMicro()); err != nil {
			return err
		}
		err := tx.Query(`SELECT COUNT(*) FROM signins_begun WHERE principal = $1`, []any{principal},
			func(r state.Row) error { return r.Scan(&begun) })
		if full = begun >= maxBegun; err != nil || full {
			return err
		}
		_, err = tx.Exec(`INSERT INTO signins_begun (id, principal, until, sealed) VALUES ($1, $2, $3, $4)`,
			place, principal, now.Add(visitTime).UnixMicro(), []byte{})
		return err
	})
	if err == nil && full {
		r := call.Refuse(Stage, call.RateLimited, "%s has begun %d sign-ins without completing them, which is the limit",
			diag.Quote(principal), begun).Again()
		r.Hint = fmt.Sprintf("complete one of them, or try again in %v", visitTime)
		return "", r
	}
	return place, err
}

// keepVisit stores a sign-in that waits for its answer, in its reserved place.
func (k *Keeper) keepVisit(ctx context.Context, place string, w waiting, until time.Time) error {
	plain, err := json.Marshal(w)
	if err != nil {
		return errors.New("the sign-in cannot be encoded")
	}
	id, principal := stateID(w.Visit.State), w.Visit.Target.Principal
	sealed := k.shared.keys.Seal(purpose("begun", id, principal), plain)
	return k.shared.db.Write(ctx, func(tx state.Tx) error {
		n, err := tx.Exec(`UPDATE signins_begun SET id = $1, until = $2, sealed = $3 WHERE id = $4`,
			id, until.UnixMicro(), sealed, place)
		if err == nil && n != 1 {
			err = errors.New("the sign-in expired before its page could be shown")
		}
		return err
	})
}

// takeVisit returns the waiting sign-in with the given state, and empties its place. If the sign-in belongs to
// another session, takeVisit leaves it unchanged, so that only its own session can end it.
func (k *Keeper) takeVisit(ctx context.Context, principal, session, text string) (w waiting, err error) {
	id, taken := stateID(text), false
	err = k.shared.db.Write(ctx, func(tx state.Tx) error {
		var sealed []byte
		w, taken = waiting{}, false
		err := tx.Query(`SELECT sealed FROM signins_begun WHERE id = $1 AND principal = $2 AND until > $3`,
			[]any{id, principal, k.now().UnixMicro()}, func(r state.Row) error { return r.Scan(&sealed) })
		if err != nil || len(sealed) == 0 {
			return err
		}
		plain, err := k.shared.keys.OpenKept(purpose("begun", id, principal), sealed)
		if err != nil || json.Unmarshal(plain, &w) != nil || w.Visit == nil || !sameState(w.Session, session) {
			return nil
		}
		n, err := tx.Exec(`UPDATE signins_begun SET sealed = $1 WHERE id = $2`, []byte{}, id)
		taken = n == 1
		return err
	})
	if err != nil {
		return w, err
	}
	if !taken || w.Visit.Target.Principal != principal {
		r := call.Refuse(Stage, call.CredentialMissing, "the answer belongs to no sign-in that this session has begun")
		r.Hint = "begin the sign-in again, and complete it in the same browser session or with the same key within " +
			visitTime.String()
		return waiting{}, r
	}
	return w, nil
}
