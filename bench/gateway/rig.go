package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/ambit-run/ambit/bench/calls"
)

const floor = "ReverseProxy"

func build(ctx context.Context, ambit, before string) (*calls.Rig, error) {
	r, err := calls.NewRig()
	if err != nil {
		return nil, err
	}
	server, err := r.Compile(ctx, "echo")
	if err != nil {
		return r, err
	}
	_, echo, err := r.Start(ctx, nil, server)
	if err != nil {
		return r, err
	}
	r.Ways = []*calls.Way{{Name: "direct", Baseline: floor, Tool: "echo", Connect: calls.OverHTTP(echo, "")}}
	agents := filepath.Join(r.Dir, "agents")
	if err := calls.WriteAgents(agents, echo, server); err != nil {
		return r, err
	}
	if err := proxies(ctx, r, echo); err != nil {
		return r, err
	}
	if err := gateways(ctx, r, ambit, before, agents); err != nil {
		return r, err
	}
	stdio := &calls.Way{Name: "direct, stdio", Baseline: "direct, stdio", Tool: "echo", Shared: true}
	stdio.Connect = stdio.OverStdio(r, false, server, "-stdio")
	r.Ways = append(r.Ways, stdio)
	for _, p := range [][2]string{{"ambit", ambit}, {"before", before}} {
		if p[1] != "" {
			through := &calls.Way{Name: p[0] + ", stdio to stdio", Baseline: "direct, stdio", Tool: "echo", Shared: true}
			through.Connect = through.OverStdio(r, true, p[1], "run", filepath.Join(agents, "pipe.json"))
			r.Ways = append(r.Ways, through)
		}
	}
	return r, nil
}

func proxies(ctx context.Context, r *calls.Rig, echo string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	proxy, err := r.Compile(ctx, "proxy")
	if err != nil {
		return err
	}
	for _, p := range []struct {
		name, program string
		args          []string
	}{
		{floor, proxy, nil},
		{floor + ", the client's binary", self, []string{"-proxy"}},
		{floor + ", a block synced", proxy, []string{"-sync", filepath.Join(r.Dir, "synced")}},
	} {
		program, address, err := r.Start(ctx, nil, p.program, append(p.args, echo)...)
		if err != nil {
			return err
		}
		r.Ways = append(r.Ways, &calls.Way{Name: p.name, Baseline: floor, Tool: "echo", Connect: calls.OverHTTP(address, ""), Middle: program.Process()})
	}
	return nil
}

// gateways starts two ambit daemons: one with only the mandatory checks, and one with all guardrails. If before is
// the path of another ambit binary, gateways also starts a daemon from that binary.
func gateways(ctx context.Context, r *calls.Rig, ambit, before, agents string) error {
	guarded, err := writeGuardrails(r.Dir)
	if err != nil {
		return err
	}
	for _, d := range []struct {
		program, home string
		ways          [][2]string // the names of the ways and of their agents
	}{
		{ambit, filepath.Join(r.Dir, "home"), [][2]string{
			{"ambit, HTTP to HTTP, read", "reads"}, {"ambit, HTTP to HTTP, write", "writes"}, {"ambit, HTTP to stdio", "pipe"},
		}},
		{ambit, guarded, [][2]string{
			{"ambit, HTTP to HTTP, read, all guardrails", "reads"}, {"ambit, HTTP to HTTP, write, all guardrails", "writes"},
		}},
		{before, filepath.Join(r.Dir, "home-before"), [][2]string{
			{"before, HTTP to HTTP, read", "reads"}, {"before, HTTP to HTTP, write", "writes"},
		}},
	} {
		if d.program == "" {
			continue
		}
		daemon, url, bearer, err := r.Serve(ctx, d.home, d.program, agents)
		if err != nil {
			return err
		}
		for _, w := range d.ways {
			r.Ways = append(r.Ways, &calls.Way{Name: w[0], Baseline: floor, Tool: "echo", Connect: calls.OverHTTP(url+"/mcp/"+w[1], bearer), Middle: daemon.Process()})
		}
	}
	return nil
}

// writeGuardrails writes a home folder with a policy, a quota and all guardrails that an operator can set. They allow
// every call of the benchmark, but ambit has to check them.
func writeGuardrails(dir string) (home string, err error) {
	home = filepath.Join(dir, "home-guarded")
	err = os.MkdirAll(home, 0o700)
	for name, text := range map[string]string{
		"guardrails.json": `{"input": {"max_length": 100000, "deny_patterns": ["drop table", "rm -rf"], "deny_defaults": true, "pii_redaction": ["email", "phone", "credit_card", "iban"]}, "output": {"on_leak": "block"}}`,
		"policy.cedar":    `forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "/etc/*" };`,
		"config.toml":     "[quota]\ncalls_per_minute = 1000000000\ncalls_per_day = 1000000000\n",
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(home, name), []byte(text), 0o600)
		}
	}
	return home, err
}
