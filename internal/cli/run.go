package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

func newRun(t *terminal) *cobra.Command {
	var f runFlags
	cmd := verb("run PATH|NAME", exactly(1, "one manifest"), func(ctx context.Context, args []string) error {
		m, err := f.manifest(t, args[0])
		if err != nil {
			return err
		}
		in, out := t.in, t.raw
		if f.mayJoin(args[0]) {
			var served bool
			if in, out, served, err = t.join(ctx, &f, m); in == nil || err != nil {
				return err
			}
			if served { // the manifest may have changed since then
				if m, err = f.manifest(t, args[0]); err != nil {
					return err
				}
			}
		}
		o, err := f.options(t, m)
		if err != nil {
			return err
		}
		if o.Store, o.StoreErr = store.OpenLong(ctx, o.Home, ""); o.Store != nil {
			defer o.Store.Close()
		}
		var listener net.Listener
		if f.address != "" {
			if listener, err = listenLoopback(ctx, f.address); err != nil {
				return err
			}
		}
		others := newNeighbours(ctx, m, o)
		defer others.close()
		o.Agents = others
		a := host.Start(ctx, m, o)
		defer a.Close()
		if listener == nil {
			return runStdio(ctx, a, in, out)
		}
		return t.runHTTP(ctx, a, listener)
	})
	cmd.Flags().StringVar(&f.skill, "skill", "", "allow only the tools in the §TOOLS section of this skill `file`")
	f.development.flags(cmd)
	f.isolation.flag(cmd)
	f.unconfinedFlag(cmd, "server")
	f.approvalFlags.flags(cmd)
	cmd.Flags().BoolVar(&f.remote, "remote", false,
		"refuse an agent that is not hosted at a URL; calls to a hosted agent always go to its server")
	cmd.Flags().StringVar(&f.address, "http", "",
		"serve over streamable HTTP at this loopback `address`, such as 127.0.0.1:0")
	cmd.Flags().BoolVar(&f.lazy, "lazy", true,
		"start a server at its first call, if ambit.lock contains its tools; --lazy=false starts every server at once")
	cmd.Flags().BoolVar(&f.join, "join", true,
		"let the daemon of this AMBIT_HOME serve the client, if it serves the same agent in the same way")
	cmd.Flags().StringSliceVar(&f.expose, "expose", nil,
		"pass through these server features, even though no manifest declares them: "+strings.Join(front.Exposable, ", "))
	return cmd
}

type runFlags struct {
	skill, address string
	expose         []string
	remote, lazy   bool
	join           bool
	development
	approvalFlags
}

// manifest loads the manifest at path. It returns an error if "ambit run" does not support the agent.
func (f *runFlags) manifest(t *terminal, path string) (*manifest.Manifest, error) {
	m, err := t.loadFor(f.development, path, "")
	if err != nil {
		return nil, err
	}
	if f.remote && !m.Agent().Hosted() {
		return nil, usage("leave out --remote", "%s does not say where the agent is hosted", m.Path)
	}
	return m.Remote(), soleID(m)
}

func (f *runFlags) options(t *terminal, m *manifest.Manifest) (host.Options, error) {
	o, err := t.hostOptions(f.development, false)
	if err != nil {
		return o, err
	}
	if err := t.checkUnconfined(m.Agent(), f.unconfined); err != nil {
		return o, err
	}
	o.Name, o.UnconfinedServers = registeredName(o.Home, m), f.unconfined
	o.Sole, o.Lazy = f.address == "", f.lazy
	o.Approvals, o.Flow = f.Approvals, gateway.NewFlow()
	if o.Expose, err = exposed(f.expose); err != nil {
		return o, err
	}
	o.Skill, err = narrowing(f.skill)
	return o, err
}

// narrowing returns the tools that a skill file allows. If no file is given, it returns nil, which allows all tools.
func narrowing(file string) (call.Allowlist, error) {
	if file == "" {
		return nil, nil
	}
	tools, err := skill.Load(file)
	if err != nil {
		return nil, usage("a §TOOLS section lists pinned tool URIs, one per line; the section may be empty",
			"the skill cannot be used: %w", err)
	}
	return tools, nil
}

// approvalFlags contains the flags for calls that a person must approve.
type approvalFlags struct{ gateway.Approvals }

func (a *approvalFlags) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&a.TTL, "approval-ttl", 10*time.Minute, "how long to wait for an approval (`time`)")
	cmd.Flags().BoolVar(&a.TrustElicitation, "trust-elicitation", false,
		"let the person at the client approve calls; use this only if no program can answer for that person")
}

func exposed(kinds []string) (gateway.Exposed, error) {
	for _, kind := range kinds {
		if !slices.Contains(front.Exposable, kind) {
			return nil, usage("use one or more of "+strings.Join(front.Exposable, ", "), "--expose cannot be %q", kind)
		}
	}
	return kinds, nil
}

func runStdio(ctx context.Context, a *host.Agent, in io.Reader, out io.Writer) error {
	if err := front.ServeStdio(ctx, a.Front(), identity.LocalName(), in, out); err != nil && ctx.Err() == nil {
		return inputError(err)
	}
	return waitForStart(ctx, a)
}

func inputError(err error) error { return no("", "the client's input cannot be read: %w", err) }

// waitForStart waits until the agent has started. It returns an error if the start fails, and nil if ctx is cancelled.
func waitForStart(ctx context.Context, a *host.Agent) error {
	err := a.Ready(ctx)
	if _, down := errors.AsType[*host.Failure](err); !down || ctx.Err() != nil {
		return nil // the agent is running, or ctx was cancelled
	}
	return asFailure(err)
}

// listenLoopback listens on a loopback address. Other machines cannot connect to it.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	name, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(name); err != nil || name != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usage("use 127.0.0.1:PORT; to serve other machines, run: ambit serve",
			"%q is not a loopback address with a port", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, missing("choose another port, or use 0 for any free port", "%w", err)
	}
	return listener, nil
}

// runHTTP serves local clients over HTTP. Clients must send the key, which is valid only during this run.
func (t *terminal) runHTTP(ctx context.Context, a *host.Agent, listener net.Listener) error {
	keys, err := identity.OpenKeys(t.home.Root())
	if err != nil {
		return notOpened(t.home, "", err)
	}
	passing, key := identity.NewPassingKey()
	url := "http://" + listener.Addr().String() + "/mcp"
	if t.json {
		file, err := daemon.WriteKey(t.home, key)
		if err != nil {
			return err
		}
		defer os.Remove(file)
		if err := t.jsonLine(map[string]string{"url": url, "key_file": file}); err != nil {
			return err
		}
	} else {
		t.notef("serving at %s; until ambit stops, you can connect a client with:", url)
		t.notef("%s", connectLine(a.Name(), url, key))
	}
	face := front.NewHTTP(a.Front(), front.HTTPOptions{Keys: keys})
	defer face.Close()
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			switch holder := passing.Check(text); {
			case r.URL.Path != "/mcp":
				http.NotFound(w, r)
			case !bearer || holder == nil:
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "the key is missing or wrong", http.StatusUnauthorized)
			default:
				face.Serve(w, r, holder.Name, holder.Attributes())
			}
		}),
	}
	go func() {
		if err := waitForStart(ctx, a); err != nil {
			t.serverLog(a.Name(), err.Error())
		}
	}()
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return no("", "the HTTP server stopped: %w", err)
	}
	return nil
}
