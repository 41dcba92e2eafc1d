package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/lock"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

type lockFlags struct {
	check, update, yes, writeTools bool
	scripts                        []string
	dev                            development
	// imported is set for a manifest that was just imported. All side-effect classes except shell are then allowed.
	imported bool
	// untrusted is set if the user has not agreed to the manifest. The servers can then only read the paths that the
	// manifest names. They cannot write, connect or start programs, and they get no environment variables.
	untrusted bool
}

func newLock(t *terminal) *cobra.Command {
	var f lockFlags
	cmd := verb("lock PATH...", atLeast(1, "at least one manifest"), func(ctx context.Context, args []string) error {
		if f.check && f.update {
			return usage("use only one of these flags", "--check and --update cannot be combined")
		}
		if f.check && f.writeTools {
			return usage("use only one of these flags", "--check and --write-tools cannot be combined")
		}
		doc := lockDocument{OK: true, Servers: []any{}, Changes: []pack.Difference{}}
		var end error
		for _, path := range args {
			if f.check && len(args) > 1 && !t.json {
				t.printf("%s\n", t.paint(bold, diag.Printable(path)))
			}
			err := t.lock(ctx, path, f, &doc)
			if failed, ok := errors.AsType[*failure](err); ok && failed.printed {
				doc.OK, end = false, err
			} else if err != nil {
				return err
			}
		}
		return cmp.Or(t.show(doc, func() {}), end)
	})
	cmd.Flags().BoolVar(&f.check, "check", false, "change nothing, and exit with 1 if the lock file does not match")
	cmd.Flags().BoolVar(&f.update, "update", false, "update each package to its newest version")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask; accept every change since the last lock")
	cmd.Flags().BoolVar(&f.writeTools, "write-tools", false,
		"add the servers' undeclared tools to the manifest")
	cmd.Flags().StringSliceVar(&f.scripts, "allow-scripts", nil,
		"let this `package` run its install scripts; the lock file records this permission")
	f.dev.unconfinedFlag(cmd, "server")
	return cmd
}

// lockDocument is the JSON document of "ambit lock".
type lockDocument struct {
	OK bool `json:"ok"`
	// Servers contains a lock.Server for each locked server, and a proofReport for each server that was only checked.
	Servers []any             `json:"servers"`
	Changes []pack.Difference `json:"changes"`
}

// lock locks the servers of a manifest. With --check, lock only compares the servers with the lock file.
func (t *terminal) lock(ctx context.Context, path string, f lockFlags, doc *lockDocument) error {
	if path == "-" {
		return usage("give the path of the manifest", "a manifest on standard input has no folder for a lock file")
	}
	m, err := t.loadWith(path, manifest.Options{NoTools: true})
	if err != nil {
		return err
	}
	if !onServers(m) {
		if !t.json {
			t.printf("%s %s: %s\n", t.paint(green, "ok:"), diag.Printable(m.Path), nothingToProve(m))
		}
		return nil
	}
	o, err := t.provingOptions(m, f.imported)
	if err != nil {
		return err
	}
	lookup := o.Lookup
	if f.untrusted {
		o.Lookup = t.storedOnly(m)
	}
	if f.check && (o.Lock == nil || o.Lock.Agents[m.Agent().ID] == nil) {
		return no("run: ambit lock "+diag.ShellWord(m.Path), "%s is not locked", m.Path)
	}
	options := host.ResolveOptions{Home: o.Home, Lock: o.Lock, Anew: !f.check}
	if f.update {
		options.Lock = nil
	}
	resolved, err := resolveWith(ctx, m, options)
	if err == nil {
		err = notWritten(ctx, m)
	}
	if err != nil {
		return err
	}
	for _, found := range resolved.Found() {
		if found.Problem != nil {
			t.warnf("%s: %s", diag.Printable(found.Requirement.Server), diag.Printable(found.Problem.Error()))
		}
	}
	for _, u := range unknownScopes(o.Home, m.Agent()) {
		t.warnf("%s", u)
		t.hintf("%s", diag.Printable(u.hint))
	}
	l := &lock.Locking{
		Manifest: m, Resolved: resolved, Servers: o, Update: f.update, Scripts: f.scripts, WriteTools: f.writeTools,
		Allow: f.imported, Partial: f.writeTools, StandIn: f.writeTools,
		Confine: func(ctx context.Context, o *toolserver.Options, a *agent.Agent) error {
			if f.untrusted {
				a = withoutEffects(a)
			}
			return t.confine(ctx, o, m, registeredName(o.Home, m), a, f.dev.unconfined)
		},
		Agree: func(ctx context.Context, asked lock.Asked, differences []pack.Difference) error {
			return t.agreeToLock(ctx, m, asked, differences, f, doc)
		},
		OpenStore: func(ctx context.Context) (*store.Store, error) { return t.openStore(ctx, "") },
		Remember:  host.RememberLock,
	}
	if f.check {
		proofs, err := l.Check(ctx)
		if stopped := interrupted(ctx, unproven); stopped != nil {
			return stopped
		}
		if err != nil {
			return t.notLocked(ctx, m, err, doc)
		}
		t.report(t.addHints(proofs, resolved.Agent(), o.Lock), true, doc)
		return verdict(proofs)
	}
	r, err := l.Run(ctx)
	if r != nil {
		for i := range r.Servers { // a running agent also gets credentials from the environment
			if lacks := r.Servers[i].Lacks; lacks != nil {
				if _, found := lookup(lacks.Command.Arg); found {
					r.Servers[i].Lacks = nil
				}
			}
		}
		t.reportLocked(m.Path, r, doc)
		t.reportDenied(m, r, f.imported)
		t.reportQuarantined(m, r, doc)
	}
	if err != nil {
		return t.notLocked(ctx, m, err, doc)
	}
	if f.imported {
		return nil // an imported agent works with the servers that could be locked
	}
	return verdict(r.Refused)
}

// reportDenied prints each side-effect class of an added tool if the manifest does not allow the class. An import
// allows every class except shell.
func (t *terminal) reportDenied(m *manifest.Manifest, r *lock.Result, imported bool) {
	var denied []string
	for _, s := range r.Servers {
		for _, p := range s.Added {
			allowed := imported && p.Class != agent.Shell || m.Agent().SideEffects.Allows(p.Class)
			if class := diag.Quote(string(p.Class)); !allowed && !slices.Contains(denied, class) {
				denied = append(denied, class)
			}
		}
	}
	if len(denied) > 0 && !t.json {
		t.printf("calls to tools of the class %s are refused\n", diag.Words(denied, "or"))
		t.hintf("to allow them, add the class to \"allowed_side_effects\" in %s", diag.Printable(m.Path))
	}
}

// storedOnly returns a lookup for the credentials that a user stored for an agent. It ignores the environment.
func (t *terminal) storedOnly(m *manifest.Manifest) func(name string) (string, bool) {
	source := &credential.Source{
		Agent: registeredName(t.home, m), Vault: credential.Open(t.home),
		Environ: func(string) (string, bool) { return "", false },
	}
	return source.Lookup(m.Agent())
}

// withoutEffects returns a copy of an agent in which only tools that read can be called. The servers of the copy
// therefore have no right to write, connect or start programs.
func withoutEffects(a *agent.Agent) *agent.Agent {
	reader := *a
	reader.SideEffects = agent.SideEffectPolicy{Restricted: true, Allowed: []agent.SideEffect{agent.Read}}
	return &reader
}

// reportQuarantined prints the servers that were left out of the lock file, and adds them to the JSON document.
func (t *terminal) reportQuarantined(m *manifest.Manifest, r *lock.Result, doc *lockDocument) {
	refused := t.addHints(r.Refused, m.Agent(), nil)
	for _, p := range proofReports(refused) {
		doc.Servers = append(doc.Servers, p)
	}
	if len(refused) == 0 || t.json {
		return
	}
	for _, p := range refused {
		t.printProof(p, "", "", false, p.Warnings)
	}
	servers := count(len(r.Servers)+len(refused), "server")
	t.printf("%d of %s quarantined: calls to their tools are refused; the other servers work\n", len(refused), servers)
	t.hintf("after you have fixed a server, run: ambit lock --write-tools %s", diag.ShellWord(m.Path))
}

// groupAdded groups tools that have the same class for the same reason. The groups keep the order of their first tools.
func groupAdded(added []registry.Proposal) (groups [][]registry.Proposal) {
	for _, p := range added {
		at := slices.IndexFunc(groups, func(g []registry.Proposal) bool {
			return g[0].Class == p.Class && g[0].From == p.From && g[0].Review == p.Review
		})
		if at < 0 {
			at, groups = len(groups), append(groups, nil)
		}
		groups[at] = append(groups[at], p)
	}
	return groups
}

// printAdded prints the tools that were added to the manifest.
func (t *terminal) printAdded(path string, s lock.Server) {
	review := false
	if s.Lacks != nil {
		t.printf("    %s %s: calls to its tools are refused\n", t.paint(yellow, "!"), diag.Printable(s.Lacks.Message))
		t.printf("    %s %s\n", t.paint(dim, "hint:"), diag.Printable(s.Lacks.HintFor(path)))
	}
	for _, group := range groupAdded(s.Added) {
		p := group[0]
		mark, why := t.paint(green, "+"), "from its "+p.From
		switch {
		case p.From == "catalogue":
			why = "from the catalogue"
		case p.Review:
			mark, why, review = t.paint(yellow, "?"), "a guess from its "+p.From, true
		}
		t.printf("    %s %s  %s\n", mark, p.Class, t.paint(dim, why))
		names := strings.Join(each(group, func(p registry.Proposal) string { return diag.Printable(p.Name) }), ", ")
		t.printf("%s\n", wrap(names, "        ", t.width))
	}
	if review {
		t.printf("    %s check the classes marked with ?, and remove them from \"review\" in %s\n", t.paint(dim, "hint:"), diag.Printable(path))
	}
}

// notWritten returns an error if a signal interrupted "ambit lock" before the lock file was written.
func notWritten(ctx context.Context, m *manifest.Manifest) error {
	return interrupted(ctx, "nothing was locked: "+m.Path+" is unchanged")
}

// report prints the proofs of servers that were checked but not locked, and adds them to the JSON document.
func (t *terminal) report(proofs []hintedProof, locked bool, doc *lockDocument) {
	for _, r := range proofReports(proofs) {
		doc.Servers = append(doc.Servers, r)
	}
	if !t.json {
		t.printProofs(proofs, locked)
	}
}

// notLocked converts an error of Check or Run to the error that ambit lock returns. If the servers do not match the
// manifest, notLocked also reports their proofs.
func (t *terminal) notLocked(ctx context.Context, m *manifest.Manifest, err error, doc *lockDocument) error {
	if errors.Is(err, lock.ErrNotRemembered) {
		return err
	}
	if stopped := notWritten(ctx, m); stopped != nil {
		return stopped
	}
	if unproven, ok := errors.AsType[*lock.UnprovenError](err); ok {
		t.report(t.addHints(unproven.Proofs, m.Agent(), nil), false, doc)
		t.alertf("nothing was locked, because the servers do not match the manifest %s", diag.Printable(m.Path))
		return verdict(unproven.Proofs)
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	f := &failure{code: exitNo, err: err, hint: pack.HintOf(err)}
	unavailable, absent := errors.AsType[*lock.UnavailableError](err)
	_, leftover := errors.AsType[*lock.LeftoverError](err)
	_, fetching := errors.AsType[*lock.ServerError](err)
	switch {
	case absent && unavailable.Lacking:
		f.hint = "fix what the warnings name, then run: ambit lock " + diag.ShellWord(m.Path)
	case absent:
		f.hint = "to list the servers, run: ambit catalog list"
	case leftover:
		f.hint = "run: ambit lock " + diag.ShellWord(m.Path)
	}
	if absent && unavailable.Lacking || fetching && pack.Lacking(err) {
		f.code = exitMissing
	}
	return f
}

// agreeToLock reports the differences. If --yes is not set, it then asks the user to accept them. A person must check
// the differences, because ambit cannot distinguish a manipulated description or file from a legitimate change.
func (t *terminal) agreeToLock(
	ctx context.Context, m *manifest.Manifest, asked lock.Asked, differences []pack.Difference, f lockFlags,
	doc *lockDocument,
) error {
	title, reason := "changed since the last lock:", "changed since it was locked"
	if asked == lock.Repinned {
		title, reason = "different from the pinned files:", "pins files that differ from the files on this machine"
	}
	doc.Changes = append(doc.Changes, differences...)
	if !t.json {
		t.printf("%s\n", title)
		t.printDifferences("  ", differences)
	}
	if f.yes {
		return nil
	}
	if agreed, err := t.agreed(ctx, "lock these changes?"); err != nil || agreed {
		return err
	}
	t.alertf("nothing was locked: %s %s", diag.Printable(m.Path), reason)
	t.hintf("to accept every change, run: ambit lock %s%s", f.accepting(), diag.ShellWord(m.Path))
	return errNo
}

// accepting returns the flags of the command that accepts the differences. It repeats the user's flags, because without
// the user's --write-tools or --update, that command would lock something else.
func (f lockFlags) accepting() string {
	out := "--yes "
	for _, name := range f.scripts {
		out = "--allow-scripts " + diag.ShellWord(name) + " " + out
	}
	if f.update {
		out = "--update " + out
	}
	if f.writeTools {
		out = "--write-tools " + out
	}
	return out
}

// reportLocked prints the locked servers and adds them to the JSON document.
func (t *terminal) reportLocked(path string, r *lock.Result, doc *lockDocument) {
	for _, s := range r.Servers {
		doc.Servers = append(doc.Servers, s)
		digest := "cannot be verified, because the server runs elsewhere"
		if s.Kind == pack.Builtin {
			digest = "part of ambit"
		}
		if s.PackageDigest != "" {
			digest = daemon.ShortDigest(s.PackageDigest)
		}
		if s.Rewritten {
			digest += " written into " + diag.Printable(path)
		}
		if !t.json {
			alias, version := t.paint(bold, diag.Printable(s.Alias)), diag.Printable(s.Version)
			t.printf("%s %s %s  %s, %s\n", t.paint(green, "✓"), alias, version, digest, count(len(s.Tools), "tool"))
			if s.Uncovered != "" {
				t.printf("    %s %s\n", t.paint(yellow, "!"), diag.Printable(s.Uncovered))
			}
			for _, w := range s.Warnings {
				t.printf("    %s %s\n", t.paint(yellow, "!"), diag.Printable(w))
			}
			t.printAdded(path, s)
		}
	}
	if t.json {
		return
	}
	state := "unchanged"
	if r.Changed {
		state = "written"
	}
	t.printf("%s is locked; %s is %s\n", diag.Printable(path), diag.Printable(relativePath(r.File)), state)
}
