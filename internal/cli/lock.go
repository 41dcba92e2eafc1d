package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/importer"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

// lockFlags are those of lock.
type lockFlags struct {
	check, update, yes bool
	scripts            []string
}

func newLock(t *terminal) *cobra.Command {
	var f lockFlags
	cmd := &cobra.Command{
		Use:     "lock PATH...",
		GroupID: groupRun,
		Short:   "Pin packages and tool definitions",
		Long: "Pin what an agent runs: fetch the package of each server, write its sha256 and exact version into the\n" +
			"manifest, install it with its dependencies locked and no script run, start it, and record every tool's whole\n" +
			"definition in ambit.lock beside the manifest. From then on servers start from the package store, offline, and\n" +
			"anything that differs is refused. Where an agent is locked already and something has changed since, or a file\n" +
			"is not the one that the manifest pins, what differs is shown, and a person has to accept it, or --yes. --check\n" +
			"changes nothing and exits 1 if the lock does not hold.",
		Example: "  ambit lock agents/default.json\n  ambit lock --check agents/*.json\n  ambit lock --yes agents/default.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name a manifest", "lock takes at least one manifest")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.check && f.update {
				return usage("leave one of the two out", "--check changes nothing and --update does")
			}
			doc := lockDocument{OK: true, Servers: []any{}, Changes: []pack.Difference{}}
			var end error
			for _, path := range args {
				if f.check && len(args) > 1 && !t.json {
					t.printf("%s\n", t.paint(bold, diag.Printable(path)))
				}
				err := t.lock(cmd.Context(), path, f, &doc)
				if failed, ok := errors.AsType[*failure](err); ok && failed.told {
					doc.OK, end = false, err
				} else if err != nil {
					return err
				}
			}
			if t.json {
				if err := t.document(doc); err != nil {
					return err
				}
			}
			return end
		},
	}
	cmd.Flags().BoolVar(&f.check, "check", false, "change nothing; exit 1 if the lock does not hold")
	cmd.Flags().BoolVar(&f.update, "update", false, "move each package to its newest version")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "accept what has changed since it was locked, without asking")
	cmd.Flags().StringSliceVar(&f.scripts, "allow-scripts", nil, "let this `package` run its install scripts; it is recorded in the lock")
	return cmd
}

// lockDocument is what --json tells: of a server that is locked a lockReport,
// of one that could not be proven or is only checked a proofReport.
type lockDocument struct {
	OK      bool              `json:"ok"`
	Servers []any             `json:"servers"`
	Changes []pack.Difference `json:"changes"`
}

type lockReport struct {
	Agent         string   `json:"agent"`
	Alias         string   `json:"alias"`
	PackageDigest string   `json:"package_digest"`
	Version       string   `json:"version"`
	Tools         []string `json:"tools"`
	// Rewritten says that its digest or version was written into the manifest.
	Rewritten bool `json:"rewritten"`
	// Kind is that of the package of a server that was found by its id.
	Kind pack.Kind `json:"kind,omitempty"`
}

// lock locks one manifest, or checks that the lock holds.
func (t *terminal) lock(ctx context.Context, path string, f lockFlags, doc *lockDocument) error {
	if path == "-" {
		return usage("name the manifest's file", "a lock lies beside its manifest, and standard input lies nowhere")
	}
	m, err := t.load(path, "")
	if err != nil {
		return err
	}
	if !onServers(m) {
		if !t.json {
			t.printf("%s %s: %s\n", t.paint(green, "ok:"), diag.Printable(m.Path), nothingToProve(m))
		}
		return nil
	}
	o, err := t.provingOptions(m)
	if err != nil {
		return err
	}
	if f.check && (o.Lock == nil || o.Lock.Agents[m.Agent().ID] == nil) {
		return no("make it: ambit lock "+diag.ShellWord(m.Path), "%s is not locked", m.Path)
	}
	l := &locking{
		t: t, m: m, o: o, flags: f, doc: doc,
		store: pack.Store{Dir: o.Home.Packages()}, packages: map[string]*pack.Package{},
	}
	if err := l.resolve(ctx); err != nil {
		return err
	}
	if f.check {
		return l.check(ctx)
	}
	if err := l.pin(ctx); err != nil {
		return cmp.Or(l.interrupted(ctx), err)
	}
	if err := l.agree(ctx, "not what is pinned:", l.swapped(), "pins something else than what is here"); err != nil {
		return err
	}
	return l.prove(ctx)
}

// check starts everything against the lock that is there.
func (l *locking) check(ctx context.Context) error {
	a := l.resolved.Agent()
	for alias := range l.o.Lock.Agents[a.ID].Servers {
		if a.Server(alias) == nil && l.found(alias) == nil {
			return no("lock it again: ambit lock "+diag.ShellWord(l.m.Path),
				"the lock has a server %s, and %s has none", diag.Quote(alias), l.m.Path)
		}
	}
	servers := l.start(ctx, a, l.o)
	defer servers.Close()
	if err := interrupted(ctx, unproven); err != nil {
		return err
	}
	l.t.report(guided(servers.Proofs(), a, l.o.Lock), true, l.doc)
	return verdict(servers.Proofs())
}

// report tells of servers that were not locked, one way or the other.
func (t *terminal) report(proofs []toolserver.Proof, locked bool, doc *lockDocument) {
	for _, r := range proofReports(proofs) {
		doc.Servers = append(doc.Servers, r)
	}
	if !t.json {
		t.proofs(proofs, locked)
	}
}

func toolNames(p toolserver.Proof) []string {
	names := make([]string, 0, len(p.Tools))
	for name := range p.Tools {
		names = append(names, name)
	}
	return diag.Sorted(names)
}

// locking is one manifest on its way into a lock.
type locking struct {
	t        *terminal
	m        *manifest.Manifest
	resolved *host.Resolved
	o        toolserver.Options
	flags    lockFlags
	doc      *lockDocument
	store    pack.Store
	packages map[string]*pack.Package
	text     []byte
	pinned   map[string]bool   // the servers that text says something else of than the manifest
	repinned map[string]bool   // the servers whose files somebody was asked about
	accepted []pack.Difference // what changed since the lock that is there
}

// interrupted ends it where nothing was written yet.
func (l *locking) interrupted(ctx context.Context) error {
	return interrupted(ctx, "nothing was locked: "+l.m.Path+" is as it was")
}

// pin fetches every package and writes its digest and version into the
// manifest's text.
func (l *locking) pin(ctx context.Context) error {
	l.text, l.pinned = []byte(l.m.Source.Text), map[string]bool{}
	servers := l.resolved.Agent().Servers
	for i := range servers {
		s := &servers[i]
		f := l.found(s.Alias)
		if s.Transport == agent.StreamableHTTP || f != nil && f.Recipe.Kind == pack.Builtin {
			continue
		}
		p, err := l.fetch(ctx, s, f)
		if errors.Is(err, pack.NotFound) && s.Placeholder && s.Version == importer.UnknownVersion {
			return no("pin the newest: ambit lock --update "+diag.ShellWord(l.m.Path), "server %s: its version %s stands for one that is not known: %w", s.Alias, s.Version, err)
		}
		if err != nil {
			return notHad(s.Alias, err)
		}
		l.packages[s.Alias] = p
		if f != nil {
			if f.Package == nil { // a bundle is known by its digest
				l.resolved.Fetched(s.Alias, p.Digest)
			}
			continue
		}
		text, err := pack.SetDigests(l.text, []pack.Pin{{Alias: s.Alias, Version: p.Version, Digest: p.Digest}})
		if err != nil {
			return no(pack.HintOf(err), "%w", err)
		}
		l.pinned[s.Alias] = !bytes.Equal(text, l.text)
		l.text = text
	}
	return nil
}

// notHad is the end of a verb that cannot have the package of a server: because
// something is missing here, or because it is not what it should be.
func notHad(alias string, err error) error {
	f := &failure{code: exitNo, err: fmt.Errorf("server %s: %w", alias, err), hint: pack.HintOf(err)}
	if pack.Lacking(err) {
		f.code = exitMissing
	}
	return f
}

// fetch fetches and hashes the package of a server, which f was found for if the manifest
// does not declare it.
func (l *locking) fetch(ctx context.Context, s *agent.Server, f *registry.Found) (*pack.Package, error) {
	progress := func(step string) { l.o.Progress(s.Alias, step) }
	if f != nil && f.Package != nil {
		return f.Package(ctx, pack.Want{Digest: f.Recipe.Digest, Scripts: l.flags.scripts}, progress)
	}
	ref, err := pack.Identify(*s)
	if err != nil {
		return nil, err
	}
	if ref.Kind == pack.File || ref.Kind == pack.Program {
		return pack.OpenLocal(ref, l.o.Folder, "")
	}
	want := pack.Want{Scripts: l.flags.scripts}
	if f != nil {
		want.Digest = f.Recipe.Digest // of the version that was just chosen
	} else if l.flags.update {
		ref.Version = ""
	} else if !s.Placeholder {
		want.Digest = s.Digest
		if locked := l.o.Lock.Server(l.m.Agent().ID, s.Alias); locked != nil && slices.Equal(locked.Package.Scripts, want.Scripts) {
			// What is locked, and here, is not chosen anew.
			if p, err := l.store.Open(ref, l.o.Lock.Want(locked.Package)); err == nil && p.Digest == s.Digest {
				return p, nil
			}
		}
	}
	return l.store.Fetch(ctx, ref, want, progress)
}

// fetched are the options to prove what was fetched, and no other build of it. The
// lock is made anew.
func (l *locking) fetched() toolserver.Options {
	o := l.o
	o.Lock, o.Want = nil, map[string]pack.Want{}
	for alias, p := range l.packages {
		o.Want[alias] = p.Want()
	}
	return o
}

// prove starts the pinned servers, compares their tools with the manifest, and
// writes manifest and lock.
func (l *locking) prove(ctx context.Context) error {
	pinned, err := manifest.Parse(l.m.Path, l.text, manifest.Options{Dialect: l.m.Dialect})
	if err != nil {
		return no("", "the pinned manifest would be invalid: %w", err)
	}
	before, a := l.o.Lock, pinned.Agent()
	if l.resolved.Resolver != nil {
		a = l.resolved.Agent()
	}
	servers := l.start(ctx, a, l.fetched())
	defer servers.Close()
	if err := l.interrupted(ctx); err != nil {
		return err
	}
	if !servers.Proven() {
		l.t.report(guided(servers.Proofs(), l.m.Agent(), nil), false, l.doc)
		l.t.notef("%s nothing was locked: a server of %s could not be proven", l.t.paint(boldRed, "ambit:"), diag.Printable(l.m.Path))
		return verdict(servers.Proofs())
	}
	entry, reports, err := l.entry(a, servers, before)
	if err != nil {
		return err
	}
	if err := l.accept(ctx, before, entry); err != nil {
		return err
	}
	if err := l.write(ctx, a, entry, reports); err != nil {
		return err
	}
	for _, f := range l.resolved.Found() {
		if s := entry.Servers[f.Requirement.Server]; s != nil {
			err = errors.Join(err, l.resolved.Resolver.Trust(&f, s.Package))
		}
	}
	if err != nil {
		err = fmt.Errorf("the lock is written, and that it was made here cannot be remembered: %w", err)
		return &failure{code: exitMissing, err: err}
	}
	return nil
}

// write writes the lock, and the manifest where it was pinned, and lets the store
// notice if the lock is lost. The store is opened first: what is interrupted, or
// has none, leaves both files as they were.
func (l *locking) write(ctx context.Context, a *agent.Agent, entry *pack.LockedAgent, reports []any) error {
	b, err := l.t.books(ctx, "")
	if err != nil {
		return cmp.Or(l.interrupted(ctx), err)
	}
	file := filepath.Join(l.o.Folder, pack.LockName)
	lock, changed, err := l.replace(file, a, entry)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	if err := errors.Join(host.RememberLock(ctx, b, l.m.Path, a, lock), b.Close()); err != nil {
		return &failure{code: exitMissing, err: fmt.Errorf("the lock is written, and cannot be remembered: %w", err)}
	}
	l.doc.Servers = append(l.doc.Servers, reports...)
	if !l.t.json {
		l.t.locked(l.m.Path, shorten(file), changed, reports)
	}
	return nil
}

func (l *locking) replace(file string, a *agent.Agent, entry *pack.LockedAgent) (lock *pack.Lock, changed bool, err error) {
	changed, err = pack.UpdateLock(file, func(lock *pack.Lock) error {
		if err := cmp.Or(l.unchanged(), l.stillAccepted(lock, entry)); err != nil {
			return err
		}
		lock.Agents[a.ID] = entry
		for _, p := range l.packages {
			lock.Keep(p)
		}
		// Before the manifest is pinned to what cannot be locked.
		if _, err := lock.Encode(); err != nil {
			return err
		}
		if l.text != nil && string(l.text) != l.m.Source.Text {
			if err := rewrite(l.m.Path, l.text); err != nil {
				return fmt.Errorf("%s cannot be written: %w", l.m.Path, err)
			}
		}
		return nil
	})
	if err == nil {
		lock, err = pack.ReadLock(file)
	}
	if err != nil {
		return nil, false, no(pack.HintOf(err), "%w", err)
	}
	return lock, changed, nil
}

// accept asks about what has changed since the agent was locked.
func (l *locking) accept(ctx context.Context, before *pack.Lock, entry *pack.LockedAgent) error {
	if before == nil || before.Agents[l.m.Agent().ID] == nil {
		return nil
	}
	l.accepted = pack.Compare(before.Agents[l.m.Agent().ID], entry)
	return l.agree(ctx, "changed since it was locked before:", l.unasked(l.accepted), "is not what it was when it was locked")
}

// unasked leaves out the digests that swapped has told.
func (l *locking) unasked(differences []pack.Difference) []pack.Difference {
	var out []pack.Difference
	for _, d := range differences {
		if d.What == pack.Changed && d.Tool == "" && l.repinned[d.Server] {
			d.Changes = slices.DeleteFunc(slices.Clone(d.Changes), func(c pack.Change) bool { return c.Field == "digest" })
			if len(d.Changes) == 0 {
				continue
			}
		}
		out = append(out, d)
	}
	return out
}

// agree shows differences. Somebody has to say yes to them: a description that was
// poisoned, or a file that was swapped, looks like any other change.
func (l *locking) agree(ctx context.Context, title string, differences []pack.Difference, reason string) error {
	if len(differences) == 0 {
		return nil
	}
	l.doc.Changes = append(l.doc.Changes, differences...)
	t := l.t
	if !t.json {
		t.printf("%s\n", title)
		t.differences("  ", differences)
	}
	if l.flags.yes {
		return nil
	}
	if yes, err := t.agreed(ctx, "lock it as it is now?"); err != nil || yes {
		return err
	}
	t.notef("%s nothing was locked: %s %s", t.paint(boldRed, "ambit:"), diag.Printable(l.m.Path), reason)
	t.notef("  %s if all of that is right, accept it: ambit lock --yes %s", t.paint(dim, "hint:"), diag.ShellWord(l.m.Path))
	return errNo
}

// swapped are the servers whose files are not those that the manifest pins, and the
// lock; none of them is started before somebody agrees. A package that was fetched has
// been held to its digest.
func (l *locking) swapped() []pack.Difference {
	var out []pack.Difference
	l.repinned = map[string]bool{}
	a := l.m.Agent()
	for i := range a.Servers {
		s := &a.Servers[i]
		p := l.packages[s.Alias]
		if p == nil || p.File == "" {
			continue
		}
		var pins []string
		if !s.Placeholder {
			pins = append(pins, s.Digest)
		}
		if locked := l.o.Lock.Server(a.ID, s.Alias); locked != nil {
			pins = append(pins, locked.Package.Digest)
		}
		if i := slices.IndexFunc(pins, func(pin string) bool { return pin != "" && pin != p.Digest }); i >= 0 {
			l.repinned[s.Alias] = true
			out = append(out, pack.Repinned(s.Alias, pins[i], p.Digest))
		}
	}
	return out
}

// unchanged refuses to write over what somebody has made of the manifest since it was
// read, and to lock what is not in it.
func (l *locking) unchanged() error {
	now, err := manifest.Load(l.m.Path, manifest.Options{Dialect: l.m.Dialect})
	if now == nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if now.Source.Text != l.m.Source.Text {
		return fmt.Errorf("%s was changed meanwhile, so nothing was written; look again", l.m.Path)
	}
	return nil
}

// stillAccepted refuses to replace another lock than the one that was compared.
func (l *locking) stillAccepted(lock *pack.Lock, entry *pack.LockedAgent) error {
	was := lock.Agents[l.m.Agent().ID]
	if was == nil || reflect.DeepEqual(pack.Compare(was, entry), l.accepted) {
		return nil
	}
	return errors.New("somebody else has locked the agent meanwhile, so nothing was written; look again")
}

// rewrite replaces a file's content in one step. The file keeps its mode, and a
// link to it stays one.
func rewrite(path string, content []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return home.Replace(path, info.Mode().Perm(), content)
}

func (l *locking) entry(a *agent.Agent, servers *toolserver.Manager, before *pack.Lock) (*pack.LockedAgent, []any, error) {
	entry := &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}}
	var reports []any
	for _, p := range servers.Proofs() {
		s, f := a.Server(p.Alias), l.found(p.Alias)
		locked := &pack.LockedServer{Protocol: p.Protocol, Tools: map[string]pack.LockedTool{}}
		if f != nil {
			locked.Resolved = &pack.Resolved{Version: f.Version, Recipe: f.Recipe}
			locked.Package = pack.LockedPackage{Kind: f.Recipe.Kind, Name: f.Recipe.Name, Version: f.Recipe.Version}
		}
		if pkg := l.packages[p.Alias]; pkg != nil {
			var was *pack.LockedPackage
			if old := before.Server(a.ID, p.Alias); old != nil {
				was = &old.Package
			}
			locked.Package = pkg.Locked(was)
		} else if f == nil {
			locked.Package = pack.LockedPackage{Kind: pack.Remote, Name: s.Endpoint, Version: s.Version}
		}
		for name, raw := range p.Tools {
			tool, err := pack.LockTool(raw)
			if err != nil {
				return nil, nil, no(pack.HintOf(err), "server %s, tool %s: %w", p.Alias, diag.Quote(name), err)
			}
			locked.Tools[name] = tool
		}
		entry.Servers[p.Alias] = locked
		report := lockReport{
			Agent: a.ID, Alias: p.Alias, PackageDigest: p.Package.Actual, Version: s.Version,
			Tools: toolNames(p), Rewritten: l.pinned[p.Alias],
		}
		if f != nil {
			report.PackageDigest, report.Version, report.Kind = locked.Package.Digest, f.Version, f.Recipe.Kind
		}
		reports = append(reports, report)
	}
	return entry, reports, nil
}

func (t *terminal) locked(path, file string, changed bool, reports []any) {
	for _, r := range reports {
		r := r.(lockReport)
		digest := "unverifiable: it runs elsewhere"
		if r.Kind == pack.Builtin {
			digest = "a part of ambit"
		}
		if r.PackageDigest != "" {
			digest = shortDigest(r.PackageDigest)
		}
		if r.Rewritten {
			digest += " written into " + diag.Printable(path)
		}
		t.printf("%s %s %s  %s, %s\n", t.paint(green, "✓"), t.paint(bold, diag.Printable(r.Alias)), diag.Printable(r.Version), digest, count(len(r.Tools), "tool"))
	}
	verb := "is unchanged"
	if changed {
		verb = "is written"
	}
	t.printf("%s is locked; %s %s\n", diag.Printable(path), diag.Printable(file), verb)
}

// shorten shows a path from the working folder where that is shorter.
func shorten(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	rel, err := filepath.Rel(wd, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return path
	}
	return rel
}
