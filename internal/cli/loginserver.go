package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// serverLogin contains the arguments of "ambit login" and "ambit logout" for a remote tool server.
type serverLogin struct {
	agent, server string
	scopes        []string
	noBrowser     bool
	// daemon is the address of a daemon, and keyFile is the file with the key for it.
	daemon, keyFile string
	dev             development
}

const devLogin = "for development: allow an authorization server on this machine, even over plain http; the variable " +
	"AMBIT_DEV=1 does the same"

func (s *serverLogin) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.noBrowser, "no-browser", false,
		"print the address of the page instead of opening it, and read the address that the browser returned to")
	s.dev.devFlags(cmd.Flags(), devLogin)
}

// noneOrTwo accepts no arguments, or an agent and a server.
func noneOrTwo(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return usage("name the server too: "+cmd.CommandPath()+" "+diag.ShellWord(args[0])+" SERVER",
			"%s takes an agent and a server, or nothing", cmd.CommandPath())
	}
	return between(0, 2, "an agent and a server, or nothing")(cmd, args)
}

// signIns returns a [signin.Keeper], which stores the sign-ins to remote tool servers.
func (t *terminal) signIns(h home.Home, loopbackHTTP bool) (*signin.Keeper, error) {
	switches, err := egress.Read(os.LookupEnv, loopbackHTTP, false)
	if err != nil {
		return nil, usage("", "%w", err)
	}
	return signin.New(h, credential.Open(h), egress.New(switches)), nil
}

// signInGap is a remote server without a usable sign-in.
type signInGap struct {
	server, command string
	// ended is the refusal that calls get if the sign-in has ended. If there is no sign-in, ended is nil, because only
	// the server knows whether it needs a sign-in.
	ended *call.Refusal
}

// signInGaps returns the remote servers of an agent that have no usable sign-in.
func signInGaps(h home.Home, m *manifest.Manifest, a *agent.Agent) (gaps []signInGap) {
	k := signin.New(h, credential.Open(h), nil) // nil HTTP client, because Status sends no request
	for i := range a.Servers {
		s := &a.Servers[i]
		if s.Transport != agent.StreamableHTTP || s.SendsAuthorization() {
			continue
		}
		target := host.SignInTarget(h, m, registeredName(h, m), s)
		if found, ended := k.Status(&target); !found || ended != nil {
			gaps = append(gaps, signInGap{s.Alias, target.Command(), ended})
		}
	}
	return gaps
}

// installedGaps returns a message for each ended sign-in of an agent, and a command for each server without a sign-in.
func installedGaps(h home.Home, f *daemon.Found) (ended, without []string) {
	if f.Problem != nil || f.Manifest.Agent() == nil {
		return nil, nil
	}
	m := f.Manifest.Remote()
	for _, gap := range signInGaps(h, m, m.Agent()) {
		if gap.ended != nil {
			ended = append(ended, gap.ended.Message)
		} else {
			without = append(without, gap.command)
		}
	}
	return ended, without
}

// examineSignIns reports the agents of this machine whose sign-ins to remote servers have ended. It also names the
// servers without a sign-in, but only the servers know whether they need one.
func examineSignIns(ctx context.Context, h home.Home) (doctorCheck, error) {
	folders, err := knownFolders(ctx, h)
	if err != nil {
		return doctorCheck{}, err
	}
	found, err := daemon.List(folders...)
	if err != nil {
		return doctorCheck{}, err
	}
	var ended, without []string
	for i := range found {
		e, w := installedGaps(h, &found[i])
		ended, without = append(ended, e...), append(without, w...)
	}
	switch {
	case len(ended) > 0:
		return bad("sign-ins", strings.Join(ended, "; "), "run the commands in parentheses"), nil
	case len(without) > 0:
		return good("sign-ins", "no sign-in has ended; if a server needs its first sign-in, run: "+
			strings.Join(without, "; ")), nil
	}
	return good("sign-ins", "no sign-in has ended"), nil
}

// target finds the remote server that the arguments name.
func (t *terminal) target(ctx context.Context, asked serverLogin) (*agent.Server, signin.Target, error) {
	var none signin.Target
	m, err := t.loadFor(asked.dev, asked.agent, "")
	if err != nil {
		return nil, none, err
	}
	m = m.Remote()
	name := registeredName(t.home, m)
	if name == credential.Own {
		return nil, none, no("rename the agent's file", "the name \"ambit\" is reserved for ambit's own secrets")
	}
	found, err := t.resolve(ctx, m)
	if err != nil {
		return nil, none, err
	}
	a := found.Agent()
	s := a.Server(serverNamed(t.home, a, asked.server))
	if s == nil || s.Transport != agent.StreamableHTTP {
		var remote []string
		for _, s := range a.Servers {
			if s.Transport == agent.StreamableHTTP {
				remote = append(remote, s.Alias)
			}
		}
		hint := "the agent has no remote servers"
		if len(remote) > 0 {
			hint = cmp.Or(diag.DidYouMean(asked.server, remote), "the remote servers are "+diag.Words(remote, "and"))
		}
		return nil, none, usage(hint, "%s has no remote server %s", diag.Quote(name), diag.Quote(asked.server))
	}
	return s, signin.Target{
		Agent: name, ID: a.ID, Manifest: asked.agent, Server: s.Alias, Endpoint: s.Endpoint,
		Principal: identity.LocalName(),
	}, nil
}

// loginServer signs the user in to a remote tool server.
func (t *terminal) loginServer(ctx context.Context, asked serverLogin) error {
	s, target, err := t.target(ctx, asked)
	if err != nil {
		return err
	}
	if s.SendsAuthorization() {
		return no("set the credential of this header with ambit secret set, or remove the header from the manifest",
			"server %s uses the authorization header in the manifest, so a sign-in would have no effect", diag.Quote(s.Alias))
	}
	if err := checkSettings(t.home); err != nil {
		return err
	}
	k, err := t.signIns(t.home, asked.dev.loopbackHTTP)
	if err != nil {
		return err
	}
	browser := t.browser(asked.noBrowser)
	defer browser.Close()
	session := k.Session(target, browser, asked.scopes...)
	tools, err := t.visitServer(ctx, s, session)
	if err == nil && !session.Done() {
		// The server listed its tools without a sign-in, and may require one only for calls.
		if err = session.SignIn(ctx); err == nil {
			tools, err = t.visitServer(ctx, s, session)
		}
	}
	if err != nil {
		return signInProblem(ctx, s.Alias, err)
	}
	signed, err := signedIn(k, target)
	if err != nil {
		return vaultFailure(err)
	}
	doc := map[string]any{"sign_in": signed, "tools": tools}
	return t.show(doc, func() { t.printSignedIn(signed, "; the server offers "+count(tools, "tool")) })
}

// printSignedIn prints a new sign-in. The parameter more is appended to the first line.
func (t *terminal) printSignedIn(g signin.Grant, more string) {
	t.printf("%s to server %s of %s at %s%s\n", t.paint(green, "signed in"), diag.Printable(g.Server),
		diag.Printable(g.Agent), diag.Printable(g.Issuer), more)
	t.printf("the token is sent to %s, and to no other host\n", diag.Printable(g.Host))
	if !g.Renewable && !g.Expires.IsZero() {
		t.remarkf("the authorization server gave no refresh token, so the token is valid only until %s", moment(g.Expires))
	}
}

// visitServer connects to a server and counts its tools.
func (t *terminal) visitServer(ctx context.Context, s *agent.Server, session *signin.Session) (tools int, err error) {
	transport, err := mcpwire.HTTP(s.Endpoint, mcpwire.HTTPOptions{
		Header:  func(ctx context.Context, h http.Header) error { _, err := session.Header(ctx, h); return err },
		Prove:   session.Prove,
		Refused: session.Refused,
	})
	if err != nil {
		return 0, err
	}
	conn := mcpwire.New(transport, mcpwire.Options{Name: "ambit", Version: version, ProbeTimeout: signInProbe})
	defer conn.Close()
	if _, err := conn.Negotiate(ctx); err != nil {
		return 0, err
	}
	list, err := conn.ListTools(ctx)
	return len(list), err
}

// signInProbe is the time limit for the first request to a server. A person may sign in during this time.
const signInProbe = 15 * time.Minute

// signInProblem converts the error of a sign-in to a failure.
func signInProblem(ctx context.Context, alias string, err error) error {
	if ctx.Err() != nil {
		return &failure{code: exitInterrupted, err: errors.New("interrupted; nothing was changed")}
	}
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return refused(r)
	}
	return missing("check the server's address in the manifest, and that this machine can reach it",
		"server %s cannot be used: %w", diag.Quote(alias), err)
}

// signedIn returns the stored sign-in of a target.
func signedIn(k *signin.Keeper, of signin.Target) (signin.Grant, error) {
	all, err := k.List()
	if err != nil {
		return signin.Grant{}, err
	}
	at := slices.IndexFunc(all, func(g signin.Grant) bool {
		return g.Agent == of.Agent && g.Server == of.Server && g.Principal == of.Principal
	})
	if at < 0 {
		return signin.Grant{}, errors.New("the new sign-in was deleted in the meantime")
	}
	return all[at], nil
}

// browser returns the browser in which the user signs in.
func (t *terminal) browser(none bool) *signin.Loopback {
	b := &signin.Loopback{}
	b.Show = func(_ context.Context, page string) error {
		if !none && openPage(page) == nil {
			t.notef("sign in on the page in your browser; if no page has opened, open %s", diag.Printable(page))
			return nil
		}
		t.notef("open %s", diag.Printable(page))
		if none {
			t.notef("if the browser cannot show the last page, paste the address of that page here:")
		}
		return nil
	}
	if none {
		b.Paste = func(ctx context.Context) (string, error) {
			line, err := t.await(ctx, func() ([]byte, error) { return bufio.NewReader(t.in).ReadBytes('\n') })
			if len(line) > 0 {
				err = nil
			}
			return strings.TrimSpace(string(line)), err
		}
	}
	return b
}

// openPage opens an address in the user's browser, without a shell. The address begins with https:// or http://, so a
// program cannot mistake it for a flag.
func openPage(page string) error {
	program, args := "xdg-open", []string{page}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	cmd := exec.Command(program, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // ignore the exit code, because the user also sees the address
	return nil
}

// logoutServer revokes and removes the sign-in to a remote tool server.
func (t *terminal) logoutServer(ctx context.Context, asked serverLogin) error {
	k, err := t.signIns(t.home, asked.dev.loopbackHTTP)
	if err != nil {
		return err
	}
	_, target, err := t.target(ctx, asked)
	if err != nil {
		// Remove the server's tokens even if the manifest is gone or no longer contains the server.
		target = signin.Target{Agent: asked.agent, Server: asked.server, Principal: identity.LocalName()}
		if _, failed := signedIn(k, target); failed != nil {
			return err
		}
	}
	found, err := k.SignOut(ctx, &target)
	if !found && err != nil {
		return vaultFailure(err)
	}
	if !found {
		return no("to list the sign-ins, run: ambit login list", "you are not signed in to server %s of %s",
			diag.Quote(target.Server), diag.Quote(target.Agent))
	}
	if err != nil {
		t.warnf("the tokens are removed here, but stay valid until they expire: %s", diag.Printable(err.Error()))
	}
	doc := map[string]any{"agent": target.Agent, "server": target.Server, "removed": true, "revoked": err == nil}
	return t.say(doc, "%s of server %s of %s\n", t.paint(green, "signed out"), diag.Printable(target.Server),
		diag.Printable(target.Agent))
}

func newLoginList(t *terminal) *cobra.Command {
	var s serverLogin
	cmd := verb("list", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		all, err := t.listSignIns(ctx, s)
		if err != nil {
			return err
		}
		return t.show(map[string]any{"sign_ins": all}, func() {
			if len(all) == 0 {
				t.notef("there are no sign-ins to tool servers; to sign in, run: ambit login %sAGENT SERVER", s.where())
				return
			}
			t.table("", each(all, func(g signin.Grant) []string {
				valid := "until revoked"
				switch {
				case g.Renewable:
					valid = "renewed when needed"
				case !g.Expires.IsZero():
					valid = "until " + moment(g.Expires)
				}
				return []string{
					diag.Printable(g.Agent), diag.Printable(g.Server), diag.Printable(g.Principal), diag.Printable(g.Host), valid,
				}
			}))
		})
	})
	s.daemonFlags(cmd)
	return cmd
}

// listSignIns returns the sign-ins in this home, or the user's sign-ins at the daemon that the flags name.
func (t *terminal) listSignIns(ctx context.Context, asked serverLogin) ([]signin.Grant, error) {
	if asked.daemon != "" {
		return t.listDaemon(ctx, asked)
	}
	k, err := t.signIns(t.home, false)
	if err != nil {
		return nil, err
	}
	all, err := k.List()
	if err != nil {
		return nil, vaultFailure(err)
	}
	return all, nil
}
