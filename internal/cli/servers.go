package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/memory"
	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

// serverOptions returns the options for starting servers. It calls home.Find, because t.home can be empty: the verbs
// "ambit tools" and "ambit verify --offline" need a home only for some manifests.
func (t *terminal) serverOptions(m *manifest.Manifest) (toolserver.Options, error) {
	h, err := home.Find()
	if err != nil {
		return toolserver.Options{}, err
	}
	lock, err := readLock(filepath.Dir(m.Path))
	if err != nil {
		return toolserver.Options{}, err
	}
	source := &credential.Source{Agent: registeredName(h, m), Vault: credential.Open(h)}
	signIns, err := t.signIns(h, os.Getenv(egress.EnvDev) == "1")
	if err != nil {
		return toolserver.Options{}, err
	}
	return toolserver.Options{
		Home: h, Manifest: m.Path, Lookup: source.Lookup(m.Agent()), Lock: lock, Version: version,
		Authorize: host.Authorize(m.Agent(), keeper(h)), Log: t.serverLog, Progress: t.progress(),
		SignIn: host.SignIn(signIns, h, m, source.Agent),
	}, nil
}

// confine sets the options so that an agent's servers start in sandboxes, except the servers in the parameter
// unconfined. The servers get the rights of the agent with the given name. The parameter a is the manifest's agent with
// all its servers resolved.
func (t *terminal) confine(
	ctx context.Context, o *toolserver.Options, m *manifest.Manifest, name string, a *agent.Agent, unconfined []string,
) error {
	if err := t.checkUnconfined(a, unconfined); err != nil {
		return err
	}
	if o.Confine = host.Confinement(o.Home, m.Path, name, a.ID); o.Confine == nil {
		return nil
	}
	b, err := t.existingStore(ctx, "")
	if err != nil {
		return err
	}
	if b != nil {
		defer b.Close()
	}
	rights := host.Rights{Agent: a, Name: name, Folder: filepath.Dir(m.Path), Policy: t.rules(o.Home)}
	access := map[string]agent.Access{}
	for i := range a.Servers {
		s := &a.Servers[i]
		of, list, err := rights.Of(ctx, b, s)
		if err != nil {
			return err
		}
		for _, w := range allowance.Warnings(list) {
			t.warnf("%s: %s", diag.Printable(s.Alias), w)
		}
		access[s.Alias] = of
	}
	o.Confine.Unconfined = unconfined
	o.Confine.Access = func(s *agent.Server) agent.Access { return access[s.Alias] }
	return nil
}

// resolve finds the servers that an agent requires by id. It does not start the servers.
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
	r, err := host.Resolve(ctx, m.Agent(), registeredName(o.Home, m), o)
	if err != nil {
		return nil, no("fix the file named in the message", "%w", err)
	}
	return r, nil
}

// resolveAndWarn is like resolve, but also prints warnings.
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

// readLock reads the lock file in a folder. It returns nil if the folder has no lock file.
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

// progress returns a function that displays the current step of each server. If standard error is not a terminal, the
// function does nothing.
func (t *terminal) progress() func(alias, step string) {
	if !t.interactive() || os.Getenv("TERM") == "dumb" {
		return func(string, string) {}
	}
	if t.bar == nil {
		t.bar = &bar{out: t.err, width: t.width, paint: t.paint}
	}
	return t.bar.step
}

// onServers reports whether an agent's tools run on tool servers. Only tool servers can be verified.
func onServers(m *manifest.Manifest) bool {
	return m.Dialect == agent.Matrix || m.Dialect == agent.GPARS || m.Agent().Hosted()
}

func nothingToProve(m *manifest.Manifest) string {
	if m.Agent().Kind == agent.ProgramAgent {
		return "nothing to verify, because a covenant agent has no tool servers; no digest covers the code of its program"
	}
	return fmt.Sprintf("nothing to verify, because a %s agent has no tool servers", m.Dialect)
}

// development contains the values of the flags that can relax restrictions: --dev, --isolation and --unconfined.
type development struct {
	loopbackHTTP bool
	isolation    isolationFlag // used only by verbs that run programs
	unconfined   []string      // used only by verbs that start tool servers
}

func (d *development) flags(cmd *cobra.Command) {
	d.devFlags(cmd.Flags(), "for development: let http actions reach this machine without TLS; the variable AMBIT_DEV=1 "+
		"does the same; AMBIT_DEV_RESOLVE=HOST:443=127.0.0.1:PORT redirects a host to this machine, and "+
		"AMBIT_DEV_CA=FILE trusts an additional certificate authority")
}

// devFlags adds --dev and its older name --allow-loopback-http.
func (d *development) devFlags(f *pflag.FlagSet, help string) {
	on := os.Getenv(egress.EnvDev) == "1"
	f.BoolVar(&d.loopbackHTTP, "dev", on, help)
	f.BoolVar(&d.loopbackHTTP, "allow-loopback-http", on, "the same as --dev")
}

// unconfinedFlag adds --unconfined to a verb that starts tool servers. The help text shows the given name as the
// placeholder of the value, such as AGENT/SERVER.
func (d *development) unconfinedFlag(cmd *cobra.Command, name string) {
	cmd.Flags().StringArrayVar(&d.unconfined, "unconfined", nil,
		"run this server (`"+name+"`) without a sandbox, so that it can do everything that you can do; can be repeated")
}

// checkUnconfined warns about each server in --unconfined. It returns an error if one of them is not a local tool
// server of the agent.
func (t *terminal) checkUnconfined(a *agent.Agent, aliases []string) error {
	var local []string
	for _, s := range a.Servers {
		if s.Transport == agent.Stdio {
			local = append(local, s.Alias)
		}
	}
	for _, q := range a.Requirements {
		local = append(local, q.Server)
	}
	for i := range aliases {
		aliases[i] = serverNamed(t.home, a, aliases[i])
		alias := aliases[i]
		if !slices.Contains(local, alias) {
			hint := "the agent has no tool servers on this machine"
			if len(local) > 0 {
				hint = cmp.Or(diag.DidYouMean(alias, local), "the servers are "+diag.Words(local, "and"))
			}
			return usage(hint, "--unconfined: %s has no server %s on this machine", diag.Quote(a.Name), diag.Quote(alias))
		}
		t.alertf("server %s runs WITHOUT confinement: it can do everything that you can do", diag.Printable(alias))
	}
	return nil
}

// manifestFlag adds --dev to a verb that reads manifests but runs nothing.
func (d *development) manifestFlag(f *pflag.FlagSet) {
	d.devFlags(f, "for development: allow loopback addresses in FindAgent actions and slots, even with plain http; "+
		"the variable AMBIT_DEV=1 does the same")
}

// announce warns about active development switches.
func (t *terminal) announce(s egress.Switches) {
	if loud := s.Announce(); loud != "" {
		t.alertf("%s", loud)
	}
}

func (t *terminal) hostOptions(d development, production bool) (host.Options, error) {
	h := t.home
	o := host.Options{
		Home: h, Version: version, Tokens: keeper(h), Log: t.serverLog, Progress: t.progress(),
	}
	err := checkSettings(h)
	if err != nil {
		return o, err
	}
	if o.Switches, err = egress.Read(os.LookupEnv, d.loopbackHTTP, production); err != nil {
		return o, usage("", "%w", err)
	}
	t.announce(o.Switches)
	o.Egress = egress.New(o.Switches)
	o.SignIns = signin.New(h, credential.Open(h), o.Egress)
	if o.Operator, err = operatorGuardrails(h); err != nil {
		return o, err
	}
	o.Rules = gate.Rules{Policy: t.rules(h)}
	report := func(err error) { t.serverLog("vault", err.Error()) }
	o.Credentials = &credential.Source{Vault: credential.Open(h), OnError: report}
	return o, d.isolation.apply(t, &o, production)
}

// operatorGuardrails reads the operator's guardrails from guardrails.json. If the file does not exist, there are no
// guardrails.
func operatorGuardrails(h home.Home) (operator guard.Operator, err error) {
	text, err := os.ReadFile(h.Guardrails())
	if errors.Is(err, fs.ErrNotExist) {
		return operator, nil
	}
	if err == nil {
		operator, err = guard.ParseOperator(h.Guardrails(), text)
	}
	if err != nil {
		return operator, no("fix or remove the file named in the message", "%w", err)
	}
	return operator, nil
}

// start starts an agent and waits until its servers are verified. The second result stops the agent.
func (t *terminal) start(ctx context.Context, m *manifest.Manifest, o host.Options) (*host.Agent, func(), error) {
	others := newNeighbours(ctx, m, o)
	o.Agents = others
	a := host.Start(ctx, m, o)
	end := func() { a.Close(); others.close() }
	if err := a.Ready(ctx); err != nil {
		end()
		return nil, nil, asFailure(err)
	}
	return a, end, nil
}

// refused converts a call.Refusal to a *failure. It chooses the exit code and keeps the hint.
func refused(r *call.Refusal) *failure {
	code := exitNo
	if r.Code == call.IsolationUnavailable || r.Code == call.CredentialMissing {
		code = exitMissing
	}
	return &failure{code: code, err: r, hint: r.Hint}
}

// checkSettings checks all settings in config.toml, including settings that only the daemon uses. It must be called
// before any setting is used, so that error messages always name the file.
func checkSettings(h home.Home) error {
	file := h.Config()
	failed := func(err error) error { return no("fix "+diag.ShellWord(file), "%w", err) }
	if err := home.CheckConfig(file); err != nil {
		return failed(err)
	}
	_, oidc := identity.ReadOIDC(file)
	_, quotas := limit.ReadQuotas(h)
	_, ttl := memory.TTL(h)
	_, registries := registry.ReadConfig(h)
	_, age := readRetention(h)
	_, skills := skill.ReadStore(file)
	_, upstreams := signin.ReadUpstreams(file)
	if err := errors.Join(oidc, quotas, ttl, registries, age, skills, upstreams); err != nil {
		return failed(errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	return nil
}
