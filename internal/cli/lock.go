package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/lock"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

// lockFlags are the flags of lock.
type lockFlags struct {
	check, update, yes bool
	scripts            []string
}

func newLock(t *terminal) *cobra.Command {
	var f lockFlags
	cmd := &cobra.Command{
		Use:     "lock PATH...",
		GroupID: groupInstall,
		Short:   "Pin packages and tool definitions",
		Long: "Pin what an agent runs: fetch the package of each server, write its sha256 and exact version into the\n" +
			"manifest, install it with its dependencies locked and without running scripts, start it, and record every\n" +
			"tool's whole definition in ambit.lock beside the manifest. From then on servers start from the package store,\n" +
			"offline, and any difference is refused. If the agent is locked already and something has changed, or a file is\n" +
			"not the one that the manifest pins, the differences are shown and need your consent, or --yes. --check changes\n" +
			"nothing and exits 1 if the lock does not match.",
		Example: "  ambit lock agents/default.json\n  ambit lock --check agents/*.json\n  ambit lock --yes agents/default.json",
		Args:    atLeast(1, "at least one manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.check && f.update {
				return usage("leave one of the two out", "--check changes nothing, and --update does")
			}
			doc := lockDocument{OK: true, Servers: []any{}, Changes: []pack.Difference{}}
			var end error
			for _, path := range args {
				if f.check && len(args) > 1 && !t.json {
					t.printf("%s\n", t.paint(bold, diag.Printable(path)))
				}
				err := t.lock(cmd.Context(), path, f, &doc)
				if failed, ok := errors.AsType[*failure](err); ok && failed.printed {
					doc.OK, end = false, err
				} else if err != nil {
					return err
				}
			}
			if err := t.show(doc, func() {}); err != nil {
				return err
			}
			return end
		},
	}
	cmd.Flags().BoolVar(&f.check, "check", false, "change nothing; exit 1 if the lock does not match")
	cmd.Flags().BoolVar(&f.update, "update", false, "move each package to its newest version")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "accept every change since the last lock without asking")
	cmd.Flags().StringSliceVar(&f.scripts, "allow-scripts", nil, "let this `package` run its install scripts; the lock records it")
	return cmd
}

// lockDocument is the answer of lock with --json: a lock.Server for each server that
// was locked, and a proofReport for one that was only checked or is not proven.
type lockDocument struct {
	OK      bool              `json:"ok"`
	Servers []any             `json:"servers"`
	Changes []pack.Difference `json:"changes"`
}

// lock locks one manifest, or compares it with its lock.
func (t *terminal) lock(ctx context.Context, path string, f lockFlags, doc *lockDocument) error {
	if path == "-" {
		return usage("name the manifest's file", "a lock is written beside its manifest, and standard input has no folder")
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
		return no("lock it: ambit lock "+diag.ShellWord(m.Path), "%s is not locked", m.Path)
	}
	resolved, err := t.resolveToLock(ctx, m, o, f)
	if err != nil {
		return err
	}
	l := &lock.Locking{
		Manifest: m, Resolved: resolved, Servers: o, Update: f.update, Scripts: f.scripts,
		Agree: func(ctx context.Context, asked lock.Asked, differences []pack.Difference) error {
			return t.agreeToLock(ctx, m, asked, differences, f.yes, doc)
		},
		Books:    func(ctx context.Context) (*store.Store, error) { return t.openStore(ctx, "") },
		Remember: host.RememberLock,
	}
	if f.check {
		proofs, err := l.Check(ctx)
		if stopped := interrupted(ctx, unproven); stopped != nil {
			return stopped
		}
		if err != nil {
			return t.notLocked(ctx, m, err, doc)
		}
		t.report(addHints(proofs, resolved.Agent(), o.Lock), true, doc)
		return verdict(proofs)
	}
	r, err := l.Run(ctx)
	if r != nil {
		t.locked(m.Path, r, doc)
	}
	if err != nil {
		return t.notLocked(ctx, m, err, doc)
	}
	return nil
}

// resolveToLock looks up the servers that the manifest requires by their ids, and warns
// of each that was not found.
func (t *terminal) resolveToLock(
	ctx context.Context, m *manifest.Manifest, o toolserver.Options, f lockFlags,
) (*host.Resolved, error) {
	options := host.ResolveOptions{Home: o.Home, Lock: o.Lock, Anew: !f.check}
	if f.update {
		options.Lock = nil
	}
	resolved, err := resolveWith(ctx, m, options)
	if err != nil {
		return nil, err
	}
	if stopped := notWritten(ctx, m); stopped != nil {
		return nil, stopped
	}
	for _, found := range resolved.Found() {
		if found.Problem != nil {
			t.warnf("%s: %s", diag.Printable(found.Requirement.Server), diag.Printable(found.Problem.Error()))
		}
	}
	return resolved, nil
}

// notWritten ends a lock that was interrupted; nil if it was not.
func notWritten(ctx context.Context, m *manifest.Manifest) error {
	return interrupted(ctx, "nothing was locked: "+m.Path+" is as it was")
}

// report shows servers that were not locked.
func (t *terminal) report(proofs []toolserver.Proof, locked bool, doc *lockDocument) {
	for _, r := range proofReports(proofs) {
		doc.Servers = append(doc.Servers, r)
	}
	if !t.json {
		t.proofs(proofs, locked)
	}
}

// notLocked ends a lock that was not written, or only half recorded.
func (t *terminal) notLocked(ctx context.Context, m *manifest.Manifest, err error, doc *lockDocument) error {
	if errors.Is(err, lock.ErrNotRemembered) {
		return err
	}
	if stopped := notWritten(ctx, m); stopped != nil {
		return stopped
	}
	if unproven, ok := errors.AsType[*lock.UnprovenError](err); ok {
		t.report(addHints(unproven.Proofs, m.Agent(), nil), false, doc)
		t.alertf("nothing was locked: %s does not match its servers", diag.Printable(m.Path))
		return verdict(unproven.Proofs)
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	f := &failure{code: exitNo, err: err, hint: pack.HintOf(err)}
	if missing, ok := errors.AsType[*lock.UnavailableError](err); ok {
		f.hint = "see what there is: ambit catalog list"
		if missing.Lacking {
			f.code = exitMissing
		}
		return f
	}
	if _, ok := errors.AsType[*lock.LeftoverError](err); ok {
		f.hint = "lock it again: ambit lock " + diag.ShellWord(m.Path)
		return f
	}
	switch _, fetching := errors.AsType[*lock.ServerError](err); {
	case errors.Is(err, lock.ErrUnknownVersion):
		f.hint = "pin the newest version: ambit lock --update " + diag.ShellWord(m.Path)
	case fetching && pack.Lacking(err):
		f.code = exitMissing
	}
	return f
}

// agreeToLock shows differences and asks about them: a poisoned description or a
// swapped file looks like any other change.
func (t *terminal) agreeToLock(ctx context.Context, m *manifest.Manifest, asked lock.Asked, differences []pack.Difference, yes bool, doc *lockDocument) error {
	title, reason := "changed since the last lock:", "changed since it was locked"
	if asked == lock.Repinned {
		title, reason = "different from the pinned files:", "pins other files than those that are here"
	}
	doc.Changes = append(doc.Changes, differences...)
	if !t.json {
		t.printf("%s\n", title)
		t.differences("  ", differences)
	}
	if yes {
		return nil
	}
	if agreed, err := t.agreed(ctx, "lock it as it is now?"); err != nil || agreed {
		return err
	}
	t.alertf("nothing was locked: %s %s", diag.Printable(m.Path), reason)
	t.hintf("if every change is right, accept it: ambit lock --yes %s", diag.ShellWord(m.Path))
	return errNo
}

// locked shows what was locked.
func (t *terminal) locked(path string, r *lock.Result, doc *lockDocument) {
	for _, s := range r.Servers {
		doc.Servers = append(doc.Servers, s)
		digest := "unverifiable: it runs elsewhere"
		if s.Kind == pack.Builtin {
			digest = "part of ambit"
		}
		if s.PackageDigest != "" {
			digest = shortDigest(s.PackageDigest)
		}
		if s.Rewritten {
			digest += " written into " + diag.Printable(path)
		}
		if !t.json {
			t.printf("%s %s %s  %s, %s\n", t.paint(green, "✓"), t.paint(bold, diag.Printable(s.Alias)), diag.Printable(s.Version), digest, count(len(s.Tools), "tool"))
		}
	}
	if t.json {
		return
	}
	state := "unchanged"
	if r.Changed {
		state = "written"
	}
	t.printf("%s is locked; %s is %s\n", diag.Printable(path), diag.Printable(nearest(r.File)), state)
}
