package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/egress"
	"github.com/ambit-run/ambit/internal/host"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/pack"
	"github.com/ambit-run/ambit/internal/registry"
	"github.com/ambit-run/ambit/internal/toolserver"
	"github.com/ambit-run/ambit/manifest"
)

// lockNeeds locks an agent that only says what it needs: what its servers were
// resolved to, their packages and their tools. The manifest stays as it is.
func (t *terminal) lockNeeds(ctx context.Context, m *manifest.Manifest, o toolserver.Options, f lockFlags, doc *lockDocument) error {
	a := m.Agent()
	r, err := registry.NewResolver(o.Home, o.Lock)
	if err != nil {
		return no("mend the file that the message names", "%w", err)
	}
	if f.check && (o.Lock == nil || o.Lock.Agents[a.ID] == nil) {
		return no("make it: ambit lock "+diag.ShellWord(m.Path), "%s is not locked", m.Path)
	}
	before := o.Lock
	r.Anew = !f.check
	if f.update {
		r.Lock = nil
	}
	l := &locking{t: t, m: m, o: o, flags: f, doc: doc, store: pack.Store{Dir: o.Home.Packages()}, packages: map[string]*pack.Package{}}
	found := r.Resolve(ctx, a, registered(o.Home, m))
	if err := l.interrupted(ctx); err != nil {
		return err
	}
	if err := t.unresolved(found); err != nil {
		return err
	}
	entry := &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}}
	var reports []any
	var proofs []toolserver.Proof
	for i := range found {
		if found[i].Problem != nil {
			continue // it is optional, and was told
		}
		proof, err := l.proveNeed(ctx, &found[i])
		if err := cmp.Or(l.interrupted(ctx), err); err != nil {
			return err
		}
		proofs = append(proofs, proof)
		if proof.OK {
			if err := l.lockNeed(entry, &found[i], proof, before, &reports); err != nil {
				return err
			}
		}
	}
	if end := verdict(proofs); end != nil || f.check {
		t.report(proofs, f.check, doc)
		if end != nil && !f.check {
			t.notef("%s nothing was locked: a server of %s could not be proven", t.paint(boldRed, "ambit:"), diag.Printable(m.Path))
		}
		return end
	}
	if err := l.accept(ctx, before, entry); err != nil {
		return err
	}
	if err := l.write(ctx, a, entry, reports); err != nil {
		return err
	}
	for i := range found {
		if s := entry.Servers[found[i].Requirement.Server]; s != nil {
			err = errors.Join(err, r.Trust(&found[i], s.Package))
		}
	}
	if err != nil {
		return &failure{code: exitMissing, err: fmt.Errorf("the lock is written, and that it was made here cannot be remembered: %w", err)}
	}
	return nil
}

// unresolved refuses if a required server was not found, and tells of every one.
func (t *terminal) unresolved(found []registry.Found) error {
	var missing []string
	code := exitMissing
	for i := range found {
		f := &found[i]
		if f.Problem == nil {
			continue
		}
		t.notef("%s %s: %s", t.paint(yellow, "warning:"), diag.Printable(f.Requirement.Server), diag.Printable(f.Problem.Error()))
		if !f.Requirement.Optional {
			missing = append(missing, f.Requirement.Server)
			if !unreachable(f.Problem) {
				code = exitNo
			}
		}
	}
	if len(missing) > 0 {
		return &failure{code: code, err: fmt.Errorf("nothing was locked: %s cannot be had", strings.Join(missing, ", ")), hint: "see what there is: ambit catalog list"}
	}
	return nil
}

// proveNeed starts a server, from what is locked if that is only checked.
func (l *locking) proveNeed(ctx context.Context, f *registry.Found) (toolserver.Proof, error) {
	o := l.o
	if !l.flags.check {
		if err := l.fetchNeed(ctx, f); err != nil {
			return toolserver.Proof{}, notHad(f.Requirement.Server, err)
		}
		o = l.fetched()
	}
	m, err := host.StartFound(ctx, l.m.Agent(), f, o, egress.New(egress.Switches{}))
	if err != nil {
		return toolserver.Proof{}, no("", "server %s: %w", f.Requirement.Server, err)
	}
	defer m.Close()
	return m.Proofs()[0], nil
}

// fetchNeed fetches and hashes the package of a server, if it has one.
func (l *locking) fetchNeed(ctx context.Context, f *registry.Found) error {
	id := f.Requirement.Server
	want := pack.Want{Digest: f.Recipe.Digest, Scripts: l.flags.scripts}
	progress := func(step string) { l.o.Progress(id, step) }
	if f.Package != nil {
		p, err := f.Package(ctx, want, progress)
		if err == nil {
			l.packages[id] = p
		}
		return err
	}
	if f.Recipe.Kind != pack.NPM && f.Recipe.Kind != pack.PyPI {
		return nil
	}
	ref, err := pack.Identify(f.Server)
	if err != nil {
		return err
	}
	p, err := l.store.Fetch(ctx, ref, want, progress)
	if err != nil {
		return err
	}
	l.packages[id] = p
	f.Recipe.Digest = p.Digest
	f.Server.Digest, f.Server.Placeholder = p.Digest, false
	return nil
}

// lockNeed puts a proven server into the entry.
func (l *locking) lockNeed(entry *pack.LockedAgent, f *registry.Found, proof toolserver.Proof, before *pack.Lock, reports *[]any) error {
	id := f.Requirement.Server
	locked := &pack.LockedServer{
		Resolved: &pack.Resolved{Version: f.Version, Recipe: f.Recipe}, Protocol: proof.Protocol, Tools: map[string]pack.LockedTool{},
		Package: pack.LockedPackage{Kind: f.Recipe.Kind, Name: f.Recipe.Name, Version: f.Recipe.Version},
	}
	if p := l.packages[id]; p != nil {
		var was *pack.LockedPackage
		if old := before.Server(l.m.Agent().ID, id); old != nil {
			was = &old.Package
		}
		locked.Package = p.Locked(was)
	}
	for name, raw := range proof.Tools {
		tool, err := pack.LockTool(raw)
		if err != nil {
			return no(pack.HintOf(err), "server %s, tool %s: %w", id, diag.Quote(name), err)
		}
		locked.Tools[name] = tool
	}
	entry.Servers[id] = locked
	*reports = append(*reports, lockReport{Agent: l.m.Agent().ID, Alias: id, PackageDigest: locked.Package.Digest, Version: f.Version, Tools: toolNames(proof), Kind: f.Recipe.Kind})
	return nil
}

// onRegistry reports whether an agent's servers are found by their ids.
func onRegistry(m *manifest.Manifest) bool { return m.Dialect == agent.GPARS }
