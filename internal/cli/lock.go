package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/pack"
	"github.com/ambit-run/ambit/internal/toolserver"
	"github.com/ambit-run/ambit/manifest"
	"github.com/ambit-run/ambit/manifest/diag"
)

// lockFlags are those of lock.
type lockFlags struct {
	check, update bool
	scripts       []string
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
			"anything that differs is refused. --check changes nothing and exits 1 if the lock does not hold.",
		Example: "  ambit lock agents/default.json\n  ambit lock --check agents/*.json",
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
			var reports []any
			held := true
			for _, path := range args {
				report, ok, err := t.lock(cmd.Context(), path, f)
				if err != nil {
					return err
				}
				reports, held = append(reports, report...), held && ok
			}
			if t.json {
				if err := t.document(map[string]any{"ok": held, "servers": append([]any{}, reports...)}); err != nil {
					return err
				}
			}
			if !held {
				return errNo
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&f.check, "check", false, "change nothing; exit 1 if the lock does not hold")
	cmd.Flags().BoolVar(&f.update, "update", false, "move each package to its newest version")
	cmd.Flags().StringSliceVar(&f.scripts, "allow-scripts", nil, "let this `package` run its install scripts; it is recorded in the lock")
	return cmd
}

type lockReport struct {
	Agent         string   `json:"agent"`
	Alias         string   `json:"alias"`
	PackageDigest string   `json:"package_digest"`
	Version       string   `json:"version"`
	Tools         []string `json:"tools"`
}

func (t *terminal) lock(ctx context.Context, path string, f lockFlags) (reports []any, ok bool, err error) {
	m, err := t.load(path, "")
	if err != nil {
		return nil, false, err
	}
	if err := onServers(m); err != nil {
		return nil, false, err
	}
	o, err := t.serverOptions(m)
	if err != nil {
		return nil, false, err
	}
	if f.check {
		return t.checkLock(ctx, m, o)
	}
	l := &locking{t: t, m: m, o: o, flags: f, store: pack.Store{Dir: o.Home.Packages()}, packages: map[string]*pack.Package{}}
	if err := l.pin(ctx); err != nil {
		return nil, false, err
	}
	reports, err = l.prove(ctx)
	return reports, err == nil, err
}

// checkLock starts everything against the lock that is there.
func (t *terminal) checkLock(ctx context.Context, m *manifest.Manifest, o toolserver.Options) (reports []any, ok bool, err error) {
	if o.Lock == nil || o.Lock.Agents[m.Agent().ID] == nil {
		return nil, false, no("make it: ambit lock "+m.Path, "%s is not locked", m.Path)
	}
	servers := toolserver.Start(ctx, m.Agent(), o)
	defer servers.Close()
	for _, p := range servers.Proofs() {
		reports = append(reports, lockReport{Agent: m.Agent().ID, Alias: p.Alias, PackageDigest: p.Package.Actual, Tools: toolNames(p)})
	}
	if !t.json {
		t.proofs(servers.Proofs())
	}
	return reports, servers.Proven(), nil
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
	o        toolserver.Options
	flags    lockFlags
	store    pack.Store
	packages map[string]*pack.Package
	text     []byte
}

// pin fetches every package and writes its digest and version into the
// manifest's text.
func (l *locking) pin(ctx context.Context) error {
	var pins []pack.Pin
	for i := range l.m.Agent().Servers {
		s := &l.m.Agent().Servers[i]
		if s.Transport == agent.StreamableHTTP {
			continue
		}
		p, err := l.fetch(ctx, s)
		if err != nil {
			return no(pack.HintOf(err), "server %s: %w", s.Alias, err)
		}
		l.packages[s.Alias] = p
		pins = append(pins, pack.Pin{Alias: s.Alias, Version: p.Version, Digest: p.Digest})
	}
	text, err := pack.SetDigests([]byte(l.m.Source.Text), pins)
	if err != nil {
		return no(pack.HintOf(err), "%w", err)
	}
	l.text = text
	return nil
}

func (l *locking) fetch(ctx context.Context, s *agent.Server) (*pack.Package, error) {
	ref, err := pack.Identify(*s)
	if err != nil {
		return nil, err
	}
	if ref.Kind == pack.File || ref.Kind == pack.Program {
		return pack.OpenLocal(ref, l.o.Folder, "")
	}
	want := pack.Want{Scripts: l.flags.scripts}
	if l.flags.update {
		ref.Version = ""
	} else if !s.Placeholder {
		want.Digest = s.Digest
	}
	return l.store.Fetch(ctx, ref, want, func(step string) { l.o.Progress(s.Alias, step) })
}

// prove starts the pinned servers, compares their tools with the manifest, and
// writes manifest and lock.
func (l *locking) prove(ctx context.Context) ([]any, error) {
	pinned := manifest.Parse(l.m.Path, l.text, manifest.Options{Dialect: l.m.Dialect})
	if !pinned.Valid() {
		return nil, no("", "the pinned manifest would be invalid: %w", &manifest.InvalidError{Manifest: pinned})
	}
	before := l.o.Lock
	l.o.Lock = nil // it is made anew
	servers := toolserver.Start(ctx, pinned.Agent(), l.o)
	defer servers.Close()
	if !servers.Proven() {
		l.t.proofs(servers.Proofs())
		return nil, no("make the manifest list exactly what its servers advertise", "nothing was locked: %s is not what its servers are", l.m.Path)
	}
	entry, reports, err := l.entry(pinned.Agent(), servers, before)
	if err != nil {
		return nil, err
	}
	if string(l.text) != l.m.Source.Text {
		if err := writeNew(l.m.Path, l.text, true); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(l.o.Folder, pack.LockName)
	changed, err := pack.UpdateLock(file, func(lock *pack.Lock) error {
		lock.Agents[pinned.Agent().ID] = entry
		for _, p := range l.packages {
			lock.Keep(p)
		}
		return nil
	})
	if err != nil {
		return nil, no(pack.HintOf(err), "%w", err)
	}
	if !l.t.json {
		l.t.locked(l.m.Path, shorten(file), changed, reports)
	}
	return reports, nil
}

func (l *locking) entry(a *agent.Agent, servers *toolserver.Manager, before *pack.Lock) (*pack.LockedAgent, []any, error) {
	entry := &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}}
	var reports []any
	for _, p := range servers.Proofs() {
		s := a.Server(p.Alias)
		locked := &pack.LockedServer{Protocol: p.Protocol, Tools: map[string]pack.LockedTool{}}
		if pkg := l.packages[p.Alias]; pkg != nil {
			var was *pack.LockedPackage
			if before != nil {
				if old := before.Server(a.ID, p.Alias); old != nil {
					was = &old.Package
				}
			}
			locked.Package = pkg.Locked(was)
		} else {
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
		reports = append(reports, lockReport{Agent: a.ID, Alias: p.Alias, PackageDigest: p.Package.Actual, Version: s.Version, Tools: toolNames(p)})
	}
	return entry, reports, nil
}

func (t *terminal) locked(path, file string, changed bool, reports []any) {
	for _, r := range reports {
		r := r.(lockReport)
		digest := "unverifiable: it runs elsewhere"
		if r.PackageDigest != "" {
			digest = shortDigest(r.PackageDigest)
		}
		t.printf("%s %s %s  %s, %s\n", t.paint(green, "✓"), t.paint(bold, diag.Printable(r.Alias)), diag.Printable(r.Version), digest, count(len(r.Tools), "tool"))
	}
	verb := "is unchanged"
	if changed {
		verb = "is written"
	}
	t.printf("%s is locked; %s %s\n", path, file, verb)
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
