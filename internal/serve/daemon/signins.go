package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Address returns the daemon's public URL. If no public URL is configured, it returns the given address, on which the
// daemon listens.
func (d *Daemon) Address(listening string) string {
	if d.options.public != nil {
		return d.base(nil)
	}
	return listening
}

// keySession returns the session of a sign-in that begins with a key or token.
func keySession(p *identity.Principal) string { return string(p.Kind) + ":" + p.KeyID }

// beginSignIn begins a sign-in of a principal to a remote server of an agent. The parameters are described at
// [signin.Keeper.Begin].
func (d *Daemon) beginSignIn(
	ctx context.Context, p *identity.Principal, session, name, server, redirect string, scopes []string,
) (signin.Begun, *problem) {
	v, trouble := d.fleet.enter(name, p)
	if trouble != nil {
		return signin.Begun{}, trouble
	}
	defer v.leave()
	t, found := v.running.SignInTarget(server, p.Name)
	if !found || d.options.SignIns == nil {
		return signin.Begun{}, failure("not_found", "the agent has no remote server with this name that takes a sign-in",
			"to list the agent's servers, send: GET /api/v1/agents/"+url.PathEscape(name))
	}
	begun, err := d.options.SignIns.Begin(ctx, session, t, redirect, scopes...)
	if err != nil {
		return signin.Begun{}, d.signInProblem(err)
	}
	return begun, nil
}

func (d *Daemon) signInProblem(err error) *problem {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return refusedProblem(r, "")
	}
	return d.unavailable("the sign-ins cannot be used", err)
}

func (d *Daemon) newSignIn(r *http.Request) (any, *problem) {
	var asked struct {
		Agent    string   `json:"agent"`
		Server   string   `json:"server"`
		Redirect string   `json:"redirect_uri"`
		Scopes   []string `json:"scopes"`
	}
	if trouble := readJSON(r, &asked); trouble != nil {
		return nil, trouble
	}
	if !isLoopback(asked.Redirect) {
		return nil, badRequest("\"redirect_uri\" is not an address on your own machine",
			"send an address of the form http://127.0.0.1:PORT/callback")
	}
	p := principalOf(r)
	return d.beginSignIn(r.Context(), p, keySession(p), asked.Agent, asked.Server, asked.Redirect, asked.Scopes)
}

// isLoopback reports whether an address is a page on the browser's own machine. Other machines cannot read the
// authorization code that is sent to such an address.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	at, err := netip.ParseAddrPort(u.Host)
	return err == nil && at.Addr().IsLoopback() && at.Port() != 0
}

func (d *Daemon) completeSignIn(r *http.Request) (any, *problem) {
	var asked struct {
		Answer string `json:"answer"`
	}
	if trouble := readJSON(r, &asked); trouble != nil {
		return nil, trouble
	}
	answer, err := url.ParseQuery(asked.Answer)
	if err != nil || d.options.SignIns == nil {
		return nil, badRequest("\"answer\" must be the query of the address to which the browser was redirected",
			`send {"answer": "code=…&state=…"}`)
	}
	p := principalOf(r)
	g, err := d.options.SignIns.Complete(r.Context(), p.Name, keySession(p), answer)
	if err != nil {
		return nil, d.signInProblem(err)
	}
	return g, nil
}

func (d *Daemon) listSignIns(r *http.Request) (any, *problem) {
	p, all := principalOf(r), []signin.Grant{}
	if d.options.SignIns != nil {
		var err error
		if all, err = d.options.SignIns.ListFor(p.Name); err != nil {
			return nil, d.signInProblem(err)
		}
	}
	all = slices.DeleteFunc(all, func(g signin.Grant) bool { return !p.MayUse(g.Agent) })
	return map[string]any{"sign_ins": all}, nil
}

// signOut removes a sign-in of the principal, even if the agent no longer exists.
func (d *Daemon) signOut(r *http.Request) (any, *problem) {
	t := signin.Target{Agent: r.PathValue("agent"), Server: r.PathValue("server"), Principal: principalOf(r).Name}
	found, err := false, error(nil)
	if d.options.SignIns != nil {
		found, err = d.options.SignIns.SignOut(r.Context(), &t)
	}
	switch {
	case !found && err != nil:
		return nil, d.signInProblem(err)
	case !found:
		return nil, failure("not_found", "you are not signed in to this server",
			"to list your sign-ins, send: GET /api/v1/signins")
	case err != nil:
		d.options.Log("the tokens of a sign-in to %s were removed, but stay valid until they expire: %v", t.Server, err)
	}
	return map[string]any{"removed": true, "revoked": err == nil}, nil
}
