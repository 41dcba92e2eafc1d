package cli

import (
	"context"
	"errors"
	"sync"

	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/egress"
	"github.com/ambit-run/ambit/internal/host"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/pack"
	"github.com/ambit-run/ambit/internal/registry"
	"github.com/ambit-run/ambit/internal/toolserver"
	"github.com/ambit-run/ambit/manifest"
)

// provenNeed is a required or optional server as --json tells of it.
type provenNeed struct {
	proofReport
	Optional bool   `json:"optional"`
	Asked    string `json:"asked"`
	Version  string `json:"version"`
	From     string `json:"from"`
	Locked   bool   `json:"locked"`
}

// verifyNeeds proves an agent that only says what it needs: what its servers are
// resolved to, and that each is what it was locked as. A required one that cannot
// be had is a no, an optional one a warning. Offline nobody is asked and nothing
// started.
func (t *terminal) verifyNeeds(ctx context.Context, m *manifest.Manifest, offline bool) error {
	o, err := t.provingOptions(m)
	if err != nil {
		return err
	}
	r, err := registry.NewResolver(o.Home, o.Lock)
	if err != nil {
		return no("mend the file that the message names", "%w", err)
	}
	if offline {
		r.Client = nil
	}
	a := m.Agent()
	found := r.Resolve(ctx, a, registered(o.Home, m))
	proofs := make([]toolserver.Proof, len(found))
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() { proofs[i] = proveFound(ctx, m, &found[i], o, offline) })
	}
	wg.Wait()
	if err := interrupted(ctx, unproven); err != nil {
		return err
	}
	var needed []toolserver.Proof
	reports := make([]provenNeed, len(found))
	for i, base := range proofReports(proofs) {
		f := &found[i]
		base.Warnings = append(base.Warnings, f.Warnings...)
		reports[i] = provenNeed{base, f.Requirement.Optional, f.Requirement.Version, f.Version, f.From, f.From == registry.FromLock}
		if !f.Requirement.Optional {
			needed = append(needed, proofs[i])
		}
	}
	end := verdict(needed)
	locked := o.Lock != nil && o.Lock.Agents[a.ID] != nil
	if t.json {
		if err := t.document(map[string]any{"ok": end == nil, "offline": offline, "locked": locked, "servers": reports}); err != nil {
			return err
		}
		return end
	}
	for i := range reports {
		t.provenNeed(&reports[i], proofs[i], offline)
	}
	switch done := "proven"; {
	case end != nil:
		t.printf("%s\n", t.paint(boldRed, "a required server is not what it should be, or cannot be had"))
	case offline:
		t.printf("%s\n", t.paint(green, "every required server is known here; nothing was started"))
	default:
		if locked {
			done = "what the lock says"
		}
		t.printf("%s\n", t.paint(green, "every required server is "+done))
	}
	return end
}

// unreachable reports whether it is for want of a registry, or of something on this
// machine, that a server cannot be had.
func unreachable(err error) bool {
	return errors.Is(err, registry.ErrUnreachable) || pack.Lacking(err)
}

// proveFound starts one server, if that is wanted, and proves it.
func proveFound(ctx context.Context, m *manifest.Manifest, f *registry.Found, o toolserver.Options, offline bool) toolserver.Proof {
	id := f.Requirement.Server
	refused := func(err error) toolserver.Proof {
		r := call.Refuse("act", call.ServerUnavailable, "server %s cannot be had: %v", id, err)
		r.Hint = "see what there is: ambit catalog show " + id
		return toolserver.Proof{Alias: id, Refusal: r, Lacking: unreachable(err)}
	}
	if f.Problem != nil {
		return refused(f.Problem)
	}
	if offline {
		return toolserver.Proof{Alias: id, OK: true, Tools: f.Definitions, Package: toolserver.PackageDigest{Declared: f.Recipe.Digest, Status: toolserver.Absent}}
	}
	servers, err := host.StartFound(ctx, m.Agent(), f, o, egress.New(egress.Switches{}))
	if err != nil {
		return refused(err)
	}
	defer servers.Close()
	return servers.Proofs()[0]
}

// provenNeed tells of one server.
func (t *terminal) provenNeed(r *provenNeed, p toolserver.Proof, offline bool) {
	mark, verdict := t.paint(green, "✓"), r.Version+" from the "+r.From
	switch {
	case !p.OK && r.Optional:
		mark, verdict = t.paint(yellow, "!"), "optional: "+string(p.Refusal.Code)
	case !p.OK:
		mark, verdict = t.paint(red, "✗"), string(p.Refusal.Code)
	case !offline:
		verdict += ", " + count(len(p.Tools), "tool") + ", package " + string(p.Package.Status)
	}
	t.printf("%s %s %s  %s\n", mark, t.paint(bold, diag.Printable(r.Alias)), diag.Printable(r.Asked), t.paint(dim, diag.Printable(verdict)))
	t.whyNot(p)
	for _, w := range r.Warnings {
		t.printf("    %s %s\n", t.paint(yellow, "!"), diag.Printable(w))
	}
	if p.OK && !r.Locked {
		t.printf("    %s it is not locked: what it is may change (ambit lock)\n", t.paint(yellow, "!"))
	}
}
