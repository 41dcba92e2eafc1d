package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

// serverOptions returns the options of verbs that start servers. It looks for the home itself:
// ambit tools and ambit verify --offline get here only for some manifests.
func (t *terminal) serverOptions(m *manifest.Manifest) (toolserver.Options, error) {
	h, err := home.Find()
	if err != nil {
		return toolserver.Options{}, err
	}
	folder, err := filepath.Abs(filepath.Dir(m.Path))
	if err != nil {
		return toolserver.Options{}, err
	}
	lock, err := readLock(folder)
	if err != nil {
		return toolserver.Options{}, err
	}
	return toolserver.Options{
		Home: h, Folder: folder, Lookup: (&credential.Source{Agent: registered(h, m), Vault: credential.Open(h)}).Lookup(m.Agent()), Lock: lock, Version: version,
		Authorize: host.Authorize(m.Agent(), keeper(h)),
		Log:       t.serverLog, Progress: t.progress(),
	}, nil
}

// resolve turns the servers that an agent requires by their ids into servers that can be
// started. It starts nothing.
func (t *terminal) resolve(ctx context.Context, m *manifest.Manifest) (*host.Resolved, error) {
	if len(m.Agent().Requirements) == 0 {
		return host.Resolve(ctx, m.Agent(), "", host.ResolveOptions{})
	}
	o, err := t.serverOptions(m)
	if err != nil {
		return nil, err
	}
	return resolveWith(ctx, m, host.ResolveOptions{Home: o.Home, Lock: o.Lock})
}

func resolveWith(ctx context.Context, m *manifest.Manifest, o host.ResolveOptions) (*host.Resolved, error) {
	r, err := host.Resolve(ctx, m.Agent(), registered(o.Home, m), o)
	if err != nil {
		return nil, no("fix the file that the message names", "%w", err)
	}
	return r, nil
}

// resolveAndWarn is resolve with its warnings printed.
func (t *terminal) resolveAndWarn(ctx context.Context, m *manifest.Manifest) (*host.Resolved, error) {
	r, err := t.resolve(ctx, m)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Found() {
		for _, w := range f.Warnings {
			t.warnf("%s: %s", diag.Printable(f.Requirement.Server), diag.Printable(w))
		}
	}
	return r, nil
}

// readLock reads the lock file of a folder, nil if there is none.
func readLock(folder string) (*pack.Lock, error) {
	lock, err := pack.ReadLock(filepath.Join(folder, pack.LockName))
	switch {
	case errors.Is(err, pack.LockMissing):
		return nil, nil
	case err != nil:
		return nil, no(pack.HintOf(err), "%w", err)
	}
	return lock, nil
}

// serverLog shows a line that a server wrote, with its alias in front.
func (t *terminal) serverLog(alias, line string) {
	t.notef("%s %s", t.paint(dim, "["+diag.Printable(alias)+"]"), diag.Printable(line))
}

// progress shows what is being done about each server, to a person who waits
// at a terminal.
func (t *terminal) progress() func(alias, step string) {
	if !t.interactive() || os.Getenv("TERM") == "dumb" {
		return func(string, string) {}
	}
	if t.bar == nil {
		t.bar = &bar{out: t.err, width: t.width, paint: t.paint}
	}
	return t.bar.step
}

// onServers reports whether an agent has tool servers to prove: its own, or required ones.
func onServers(m *manifest.Manifest) bool {
	return m.Dialect == agent.Matrix || m.Dialect == agent.GPARS || m.Agent().Hosted()
}

// nothingToProve explains why there is nothing to start, compare or pin.
func nothingToProve(m *manifest.Manifest) string {
	return fmt.Sprintf("nothing to prove: a %s agent has no tool servers of its own", m.Dialect)
}

// development are the switches that loosen what http actions may reach.
type development struct {
	loopbackHTTP bool
	isolation    isolationFlag // of verbs that run programs
}

func (d *development) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.loopbackHTTP, "allow-loopback-http", false, "for development: http actions may reach this machine without TLS; AMBIT_DEV_RESOLVE=HOST:443=127.0.0.1:PORT and AMBIT_DEV_CA=FILE say where a name leads, and whose certificate it has there")
}

// manifestFlag is the one switch that matters to verbs that only read manifests.
func (d *development) manifestFlag(f *pflag.FlagSet) {
	f.BoolVar(&d.loopbackHTTP, "allow-loopback-http", false, "for development: FindAgent actions and slots may name this machine, also over plain http")
}

// announce warns which development switches are on.
func (t *terminal) announce(s egress.Switches) {
	if loud := s.Announce(); loud != "" {
		t.alertf("%s", loud)
	}
}

// hostOptions returns the options with which agents are started here.
func (t *terminal) hostOptions(d development, production bool) (host.Options, error) {
	h := t.home
	if err := checkSettings(h); err != nil {
		return host.Options{}, err
	}
	switches, err := egress.Read(os.LookupEnv, d.loopbackHTTP, production)
	if err != nil {
		return host.Options{}, usage("", "%w", err)
	}
	t.announce(switches)
	operator, err := operatorGuardrails(h)
	if err != nil {
		return host.Options{}, err
	}
	o := host.Options{
		Operator: operator, Rules: gate.Rules{Policy: t.rules(h)},
		Home: h, Version: version, Log: t.serverLog, Progress: t.progress(), Egress: egress.New(switches), Switches: switches,
		Tokens: keeper(h),
		Credentials: &credential.Source{
			Vault:   credential.Open(h),
			OnError: func(err error) { t.serverLog("vault", err.Error()) },
		},
	}
	return o, d.isolation.apply(t, &o, production)
}

// operatorGuardrails reads guardrails.json, which is optional.
func operatorGuardrails(h home.Home) (guard.Operator, error) {
	text, err := os.ReadFile(h.Guardrails())
	if errors.Is(err, fs.ErrNotExist) {
		return guard.Operator{}, nil
	}
	var operator guard.Operator
	if err == nil {
		operator, err = guard.ParseOperator(h.Guardrails(), text)
	}
	if err != nil {
		return operator, no("fix or remove the file", "%w", err)
	}
	return operator, nil
}

// start starts an agent and waits until its servers are proven.
func (t *terminal) start(ctx context.Context, m *manifest.Manifest, o host.Options) (a *host.Agent, end func(), err error) {
	others := newNeighbours(ctx, m, o)
	o.Agents = others
	a = host.Start(ctx, m, o)
	end = func() { a.Close(); others.close() }
	if err := a.Ready(ctx); err != nil {
		end()
		return nil, nil, asFailure(err)
	}
	return a, end, nil
}

// refused is a refusal as the end of a verb.
func refused(r *call.Refusal) *failure {
	code := exitNo
	if r.Code == call.IsolationUnavailable || r.Code == call.CredentialMissing {
		code = exitMissing
	}
	return &failure{code: code, err: r, hint: r.Hint}
}
