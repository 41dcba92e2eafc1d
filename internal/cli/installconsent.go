package cli

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agents"
	"github.com/ambit-run/ambit/internal/exec/lock"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/client"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

// agentOrigin describes where an agent came from.
type agentOrigin struct {
	File string `json:"file"`
	// Address is the URL of a hosted agent.
	Address string `json:"address,omitempty"`
	Digest  string `json:"digest"`
	// ConvertedFrom is the name of the agent that this agent wraps. "ambit convert" writes such agents.
	ConvertedFrom string `json:"converted_from,omitempty"`
	// VouchedBy is "ambit" if the agent ships with ambit. Otherwise it is empty.
	VouchedBy string `json:"vouched_by"`
}

// originOf finds out where an agent came from. Manifests have no signatures, so ambit vouches only for the agents that
// ship with it.
func originOf(m *manifest.Manifest) agentOrigin {
	o := agentOrigin{File: m.Path, Address: m.Agent().Delivery.URL, Digest: m.Digest()}
	if path, err := filepath.Abs(m.Path); err == nil {
		o.File = path
	}
	for _, s := range m.Agent().Servers {
		if s.Command == "ambit" && len(s.Args) == 2 && s.Args[0] == "run" {
			o.ConvertedFrom = s.Args[1]
		}
	}
	if shipped(o.Digest) {
		o.VouchedBy = "ambit"
	}
	return o
}

// shipped reports whether an agent that ships with ambit has this digest.
func shipped(digest string) bool {
	for _, name := range agents.Names() {
		file, _ := agents.Find(name)
		text, err := fs.ReadFile(agents.Files, file)
		if err != nil {
			continue
		}
		if m, err := manifest.Parse(file, text, manifest.Options{}); err == nil && m.Digest() == digest {
			return true
		}
	}
	return false
}

func (t *terminal) printOrigin(o agentOrigin) {
	rows := t.fact(nil, "file", o.File)
	rows = t.fact(rows, "address", o.Address)
	rows = t.fact(rows, "digest", o.Digest)
	if o.ConvertedFrom != "" {
		rows = t.fact(rows, "converted", "from the agent "+o.ConvertedFrom+", which must be installed too")
	}
	author := "unknown: the author cannot be verified"
	if o.VouchedBy != "" {
		author = "the manifest ships with " + o.VouchedBy
	}
	t.section("Where the agent came from", t.fact(rows, "author", author))
}

// accepted reports whether a flag makes it unnecessary to ask the user.
func (in *installer) accepted() bool { return in.flags.yes || in.flags.force || in.flags.dryRun }

// introduce prints where a new agent came from and what it is allowed to do. If the section "Look twice" lists
// anything, the user must agree.
func (in *installer) introduce(ctx context.Context) error {
	with, err := in.t.findNeeds(ctx, in.m.Remote())
	if err != nil {
		return err
	}
	t, a := in.t, with.agent
	in.doc.Watch = append(in.doc.Watch, with.watch...)
	in.doc.Origin = originOf(in.m)
	if err := in.findGrants(with); err != nil {
		return err
	}
	// An agent in the folder of installed agents is new if no client starts it yet.
	if in.prior != nil && (!in.inPlace() || in.ledger.Agents[in.name] != nil) {
		return nil
	}
	if !t.json {
		t.printf("%s  %s\n", t.paint(bold, diag.Printable(in.name)), t.paint(dim, diag.Printable(a.ID)))
		t.printOrigin(in.doc.Origin)
		t.section("What the agent may do", t.facts(daemon.Facts(a, with.reach)))
		t.servers(with)
		t.lookTwice(in.doc.Watch)
		t.printf("\n")
	}
	if len(in.doc.Watch) == 0 || in.accepted() {
		return nil
	}
	if yes, err := t.agreed(ctx, "install it?"); err != nil || yes {
		return err
	}
	more := ""
	if t.json {
		more = ": " + strings.Join(in.doc.Watch, "; ")
	}
	return no("to see what the agent may do, run: ambit inspect "+diag.ShellWord(in.m.Path)+"; to install it, use --yes",
		"%s needs your consent, because \"Look twice\" lists %s%s", in.m.Path, count(len(in.doc.Watch), "point"), more)
}

// findGrants determines the grants that the agent lacks. It also counts grants for the installed agent, because they
// apply to the new version too. findNeeds may miss these grants, because it may know the new version only by its path.
func (in *installer) findGrants(with needSet) error {
	granted, err := in.t.scopesGranted()
	if err != nil {
		return err
	}
	for _, r := range slices.Concat(with.required, with.optional) {
		var lacking []string
		for _, s := range r.Scopes {
			holds := slices.ContainsFunc(granted, func(g policy.Grant) bool {
				return g.Agent == in.name && g.ID == with.agent.ID && g.Server == r.Server && g.Scope == s.Scope
			})
			if !holds && !s.Granted && !s.partlyGranted() {
				lacking = append(lacking, s.Scope)
			}
		}
		if len(lacking) > 0 {
			in.doc.Grants = append(in.doc.Grants, grantCommand(in.name, r.Server, lacking))
		}
	}
	return nil
}

// consent prints the differences between the new agent and the installed agent. If the new agent is allowed to do more,
// the user must agree. If the user does not agree, consent returns an error.
func (in *installer) consent(ctx context.Context) error {
	if in.prior == nil || in.inPlace() {
		return nil
	}
	a, old := in.m.Agent(), in.prior.Agent()
	d, folder := manifest.Diff(old, a), filepath.Dir(in.m.Path)
	if in.staged != nil {
		folder = filepath.Join(in.staged.Dir, in.name)
	}
	if a.ID != old.ID {
		detail := fmt.Sprintf("a different agent: %s → %s", old.ID, a.ID)
		d.Widened = append(d.Widened, manifest.Change{What: "identity", Detail: detail})
	}
	relocked, err := lock.Relocked(in.prior, in.m, folder)
	if err != nil {
		return no(pack.HintOf(err), "%w", err)
	}
	d.Widened = append(d.Widened, relocked...)
	in.doc.Widened = each(d.Widened, func(c manifest.Change) string { return c.What + ": " + c.Detail })
	if !in.t.json && len(d.Widened)+len(d.Narrowed)+len(d.Changed) > 0 {
		in.t.delta(d)
	}
	if len(d.Widened) == 0 || in.accepted() {
		return nil
	}
	if yes, err := in.t.agreed(ctx, "install it anyway?"); err != nil || yes {
		return err
	}
	more := ""
	if in.t.json {
		more = ": " + strings.Join(in.doc.Widened, "; ")
	}
	return no("to see the differences, run: ambit diff OLD NEW; to install it anyway, use --yes",
		"%s is allowed to do more than the installed agent%s", in.m.Path, more)
}

// prove fetches the agent's servers, starts them and proves that they match the manifest, before a client depends on
// them. A server that is unavailable or lacks a credential is quarantined, as in a running agent. The agent is not
// installed if a server has changed, if a required server does not work, or if no server works.
func (in *installer) prove(ctx context.Context) error {
	local := slices.ContainsFunc(in.clients, func(c *client.Client) bool { return c.Name != client.Web })
	if in.flags.dryRun || in.flags.offline || !local || !onServers(in.m) {
		return nil
	}
	p, err := in.t.prove(ctx, in.m.Remote(), in.name, false, nil)
	if err != nil {
		return err
	}
	in.doc.Servers = p.reports
	for i, proof := range p.all {
		if !in.t.json {
			in.t.printProof(proof, "", count(len(proof.Tools), "tool"), p.optional(i), p.reports[i].Warnings)
		}
	}
	a := in.m.Remote().Agent()
	works := slices.ContainsFunc(p.needed, func(p toolserver.Proof) bool { return p.OK })
	broken := slices.DeleteFunc(slices.Clone(p.needed), func(p toolserver.Proof) bool {
		s := a.Server(p.Alias)
		return p.OK || p.Refusal.Code == call.CredentialMissing ||
			works && p.Refusal.Code != call.ServerDrifted && s != nil && !s.Required
	})
	if len(broken) == 0 || in.flags.force {
		return nil
	}
	if yes, err := in.t.agreed(ctx, "install it anyway?"); err != nil || yes {
		return err
	}
	first := broken[0].Refusal
	return &failure{
		code: failureOf(verdict(broken)).code,
		hint: cmp.Or(first.HintFor(in.m.Path), "fix the server") + "; to install the agent anyway, use --force",
		err:  fmt.Errorf("%s was not installed, because server %s does not work: %w", in.m.Path, broken[0].Alias, first),
	}
}
