package lock

import (
	"context"
	"slices"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// standIn replaces a missing credential while ambit asks a server for its tools. ambit redacts credentials in
// everything that a server reports, so this text must not occur in a tool definition.
const standIn = "ambit-stand-in-for-a-missing-credential"

// proofs starts the agent's servers, compares them with the manifest, and stops them. Many servers need their
// credential for calls, but not for the list of their tools. With StandIn, proofs therefore starts a server again if
// only its credential is missing. The second start uses a made-up credential and has no network.
//
// If the tools are not known yet, uses is not nil. In that case, proofs records in uses which servers try to connect.
// With Allow, the servers then get the rights of an agent whose tools write and connect.
func (l *Locking) proofs(
	ctx context.Context, a *agent.Agent, o toolserver.Options, uses *connections,
) ([]toolserver.Proof, error) {
	seen := a
	if l.Allow && uses != nil {
		seen = assumed(a)
	}
	if l.Confine != nil {
		if err := l.Confine(ctx, &o, seen); err != nil {
			return nil, err
		}
	}
	if o.Confine != nil && uses != nil {
		o.Confine.OnUse = uses.record
	}
	proofs := l.proofsOf(ctx, a, o, nil)
	if !l.StandIn || o.Confine == nil || ctx.Err() != nil {
		return proofs, nil
	}
	lacking := map[string]*call.Refusal{}
	for _, p := range proofs {
		if s := a.Server(p.Alias); !p.OK && p.Refusal.Code == call.CredentialMissing && s.Transport == agent.Stdio &&
			!slices.Contains(o.Confine.Unconfined, p.Alias) {
			lacking[p.Alias] = p.Refusal
		}
	}
	if len(lacking) == 0 {
		return proofs, nil
	}
	lookup, access, confine := o.Lookup, o.Confine.Access, *o.Confine
	o.Lookup = func(name string) (string, bool) {
		if value, ok := lookup(name); ok {
			return value, true
		}
		return standIn, true
	}
	confine.Access = func(s *agent.Server) agent.Access {
		return slices.DeleteFunc(slices.Clone(access(s)), func(r agent.Right) bool { return r.Kind == agent.CanConnect })
	}
	o.Confine = &confine
	for _, p := range l.proofsOf(ctx, a, o, lacking) {
		// The server did not start with the made-up credential either. Keep the refusal that names the missing
		// credential.
		if len(p.Tools) == 0 {
			continue
		}
		at := slices.IndexFunc(proofs, func(was toolserver.Proof) bool { return was.Alias == p.Alias })
		proofs[at], l.lacks[p.Alias] = p, lacking[p.Alias]
	}
	return proofs, nil
}

// proofsOf starts the agent's servers and returns their proofs. It leaves out servers that were not found or not
// fetched. If wanted is not nil, it starts only the servers in wanted.
func (l *Locking) proofsOf(
	ctx context.Context, a *agent.Agent, o toolserver.Options, wanted map[string]*call.Refusal,
) []toolserver.Proof {
	if o.Servers = l.Resolved.Servers(o, egress.New(egress.Switches{}), false); o.Servers == nil {
		o.Servers = toolserver.Declared(a)
	}
	o.Servers = slices.DeleteFunc(o.Servers, func(s toolserver.Spec) bool {
		return s.Problem != nil || l.failed[s.Alias] != nil || wanted != nil && wanted[s.Alias] == nil
	})
	servers := toolserver.Start(ctx, a, o)
	defer servers.Close()
	return servers.Proofs()
}
