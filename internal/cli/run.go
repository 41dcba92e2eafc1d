package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

func newRun(t *terminal) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:     "run PATH|NAME",
		GroupID: groupRun,
		Short:   "Serve an agent over MCP on standard input and output",
		Long: "Serve an agent to an MCP client on standard input and output, or with --http over streamable HTTP. The\n" +
			"client is answered at once, while the tool servers are started and proven. If any is not what the\n" +
			"manifest says, nothing can be called, and the client gets the reason. The output of servers goes to stderr.",
		Example: "  ambit run agents/default.json\n  ambit run agents/default.json --http 127.0.0.1:0\n  claude mcp add files -- ambit run /path/to/default.json",
		Args:    exactly(1, "one manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			m, err := f.manifest(t, args[0])
			if err != nil {
				return err
			}
			o, err := f.options(t, m)
			if err != nil {
				return err
			}
			if o.Books, o.NoBooks = store.OpenLong(ctx, o.Home, ""); o.Books != nil {
				defer o.Books.Close()
			}
			others := newNeighbours(ctx, m, o)
			defer others.close()
			o.Agents = others
			if f.address == "" {
				a := host.Start(ctx, m, o)
				defer a.Close()
				return t.runStdio(ctx, a)
			}
			listener, err := listenLoopback(ctx, f.address)
			if err != nil {
				return err
			}
			a := host.Start(ctx, m, o)
			defer a.Close()
			return t.runHTTP(ctx, a, o.Home, listener)
		},
	}
	cmd.Flags().StringVar(&f.skill, "skill", "", "a skill `file` whose §TOOLS section narrows what may be called")
	f.development.flags(cmd)
	f.isolation.flag(cmd)
	f.approvalFlags.flags(cmd)
	cmd.Flags().BoolVar(&f.remote, "remote", false, "serve a hosted agent from where it is hosted, through the gateway here")
	cmd.Flags().StringVar(&f.address, "http", "", "serve over streamable HTTP at this loopback `address`, such as 127.0.0.1:0")
	cmd.Flags().StringSliceVar(&f.expose, "expose", nil, "let pass what no manifest declares: "+strings.Join(front.Exposable, ", "))
	return cmd
}

type runFlags struct {
	skill, address string
	expose         []string
	remote         bool
	development
	approvalFlags
}

// manifest is the one of the agent, if that may run here at all.
func (f *runFlags) manifest(t *terminal, path string) (*manifest.Manifest, error) {
	m, err := t.loadFor(f.development, path, "")
	if err != nil {
		return nil, err
	}
	hosted := m.Agent().Hosted()
	if f.remote {
		if !hosted {
			return nil, usage("leave --remote out", "%s is not hosted anywhere that its manifest says", m.Path)
		}
		m = m.Remote()
	}
	if err := soleID(m); err != nil {
		return nil, err
	}
	if m.Agent().Delivery.Exec == "findagent-hosted" && !f.remote {
		hint := "install it where ambit serve runs, and connect to URL/mcp/NAME there"
		if hosted {
			hint = "it is hosted at " + m.Agent().Delivery.URL + ": connect the client to that, or let ambit run --remote do it"
		}
		return nil, no(hint, "%s is hosted: it runs only under ambit serve", m.Path)
	}
	return m, nil
}

func (f *runFlags) options(t *terminal, m *manifest.Manifest) (host.Options, error) {
	o, err := t.hostOptions(f.development, false)
	if err != nil {
		return o, err
	}
	o.Name = registered(o.Home, m)
	o.Sole = f.address == ""
	o.Approvals = f.Approvals
	if o.Expose, err = exposed(f.expose); err != nil {
		return o, err
	}
	o.Skill, err = narrowing(f.skill)
	return o, err
}

// narrowing is what a skill file lets be called; nil if none is named.
func narrowing(file string) (call.Allowlist, error) {
	if file == "" {
		return nil, nil
	}
	tools, err := skill.Load(file)
	if err != nil {
		return nil, usage("a §TOOLS section lists pinned tool URIs, one to a line, or none", "the skill cannot be used: %w", err)
	}
	return tools, nil
}

// approvalFlags has the flags about a person's approval.
type approvalFlags struct{ gateway.Approvals }

func (a *approvalFlags) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&a.TTL, "approval-ttl", 10*time.Minute, "how long a person has to approve a call (`time`)")
	cmd.Flags().BoolVar(&a.TrustElicitation, "trust-elicitation", false, "let the person at the client approve: only where a program cannot answer in its place")
}

// exposed checks the kinds of things that are to pass.
func exposed(kinds []string) (gateway.Exposed, error) {
	for _, kind := range kinds {
		if !slices.Contains(front.Exposable, kind) {
			return nil, usage("use some of "+strings.Join(front.Exposable, ", "), "there is nothing called %q to expose", kind)
		}
	}
	return kinds, nil
}

// runStdio serves the one client on standard input and output.
func (t *terminal) runStdio(ctx context.Context, a *host.Agent) error {
	if err := front.ServeStdio(ctx, a.Front(), identity.LocalName(), t.in, t.raw); err != nil && ctx.Err() == nil {
		return no("", "the client's input cannot be read: %w", err)
	}
	return notUp(ctx, a)
}

// notUp returns the failure of an agent that did not start; nil if it did.
func notUp(ctx context.Context, a *host.Agent) error {
	err := a.Ready(ctx)
	down, ok := errors.AsType[*host.Failure](err)
	if !ok || ctx.Err() != nil {
		return nil // it is up, or the run was ended
	}
	f := refused(down.Refusal)
	if down.Lacking {
		f.code = exitMissing
	}
	return f
}

// listenLoopback opens an address that only this machine can reach.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	name, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(name); err != nil || name != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usage("use 127.0.0.1:PORT, or ambit serve for other machines", "%q is not a loopback address with a port", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &failure{code: exitMissing, err: err, hint: "choose another port, or 0 for any"}
	}
	return listener, nil
}

// runHTTP serves clients of this machine that know the key.
func (t *terminal) runHTTP(ctx context.Context, a *host.Agent, h home.Home, listener net.Listener) error {
	keys, err := identity.OpenKeys(h.Root())
	if err != nil {
		return notOpened(h, "", err)
	}
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	key := base64.RawURLEncoding.EncodeToString(secret)
	url := "http://" + listener.Addr().String() + "/mcp"
	if t.json {
		file, err := writeKey(h, key)
		if err != nil {
			return err
		}
		defer os.Remove(file)
		line, err := json.Marshal(map[string]string{"url": url, "key_file": file})
		if err != nil {
			return err
		}
		if _, err := t.raw.Write(append(line, '\n')); err != nil {
			return err
		}
	} else {
		t.notef("serving at %s; for this run only:", url)
		t.notef("%s", connectLine(a.Name(), url, key))
	}
	face := front.NewHTTP(a.Front(), front.HTTPOptions{Keys: keys})
	defer face.Close()
	want := sha256.Sum256([]byte("Bearer " + key))
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
			switch {
			case r.URL.Path != "/mcp":
				http.NotFound(w, r)
			case subtle.ConstantTimeCompare(got[:], want[:]) != 1:
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "the key is missing or wrong", http.StatusUnauthorized)
			default:
				face.Serve(w, r, identity.LocalName())
			}
		}),
	}
	go func() {
		if err := notUp(ctx, a); err != nil {
			t.serverLog(a.Name(), err.Error())
		}
	}()
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return no("", "serving has ended: %w", err)
	}
	return nil
}

// writeKey puts the key of a run into a file that only this user can read.
func writeKey(h home.Home, key string) (string, error) {
	dir := filepath.Dir(h.Root())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "run-*.key") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(key + "\n")
	return f.Name(), errors.Join(err, f.Close())
}
