package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/lock"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

type lockFlags struct {
	check, update, yes bool
	scripts            []string
	dev                development
}

func newLock(t *terminal) *cobra.Command {
	var f lockFlags
	cmd := verb("lock PATH...", atLeast(1, "at least one manifest"), func(ctx context.Context, args []string) error {
		if f.check && f.update {
			return usage("use only one of these flags", "--check and --update cannot be combined")
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
	cmd.Flags().StringSliceVar(&f.scripts, "allow-scripts", nil,
		"let this `package` run its install scripts; the lock file records this permission")
	f.dev.unconfinedFlag(cmd, "server")
	return cmd
}

// lockDocument is the JSON document of ambit lock. Servers contains a lock.Server for each locked server, and a
// proofReport for each server that was only checked.
type lockDocument struct {
	OK      bool              `json:"ok"`
	Servers []any             `json:"servers"`
	Changes []pack.Difference `json:"changes"`
}

// lock locks the servers of a manifest. With --check, lock only compares the servers with the lock file.
func (t *terminal) lock(ctx context.Context, path string, f lockFlags, doc *lockDocument) error {
	if path == "-" {
		return usage("give the path of the manifest", "a manifest on standard input has no folder for a lock file")
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
	if err := t.confine(ctx, &o, m, resolved.Agent(), f.dev.unconfined); err != nil {
		return err
	}
	l := &lock.Locking{
		Manifest: m, Resolved: resolved, Servers: o, Update: f.update, Scripts: f.scripts,
		Agree: func(ctx context.Context, asked lock.Asked, differences []pack.Difference) error {
			return t.agreeToLock(ctx, m, asked, differences, f.yes, doc)
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
		t.report(addHints(proofs, resolved.Agent(), o.Lock), true, doc)
		return verdict(proofs)
	}
	r, err := l.Run(ctx)
	if r != nil {
		t.reportLocked(m.Path, r, doc)
	}
	if err != nil {
		return t.notLocked(ctx, m, err, doc)
	}
	return nil
}

// notWritten returns an error if a signal interrupted ambit lock before the lock file was written.
func notWritten(ctx context.Context, m *manifest.Manifest) error {
	return interrupted(ctx, "nothing was locked: "+m.Path+" is unchanged")
}

// report prints the proofs of servers that were checked but not locked, and adds them to the JSON document.
func (t *terminal) report(proofs []toolserver.Proof, locked bool, doc *lockDocument) {
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
		t.report(addHints(unproven.Proofs, m.Agent(), nil), false, doc)
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
	case absent:
		f.hint = "to list the servers, run: ambit catalog list"
	case leftover:
		f.hint = "run: ambit lock " + diag.ShellWord(m.Path)
	case errors.Is(err, lock.ErrUnknownVersion):
		f.hint = "to pin the newest version, run: ambit lock --update " + diag.ShellWord(m.Path)
	}
	if absent && unavailable.Lacking || fetching && pack.Lacking(err) {
		f.code = exitMissing
	}
	return f
}

// agreeToLock reports the differences. If --yes is not set, it then asks the user to accept them. A person must check
// the differences, because ambit cannot distinguish a manipulated description or file from a legitimate change.
func (t *terminal) agreeToLock(
	ctx context.Context, m *manifest.Manifest, asked lock.Asked, differences []pack.Difference, yes bool,
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
	if yes {
		return nil
	}
	if agreed, err := t.agreed(ctx, "lock these changes?"); err != nil || agreed {
		return err
	}
	t.alertf("nothing was locked: %s %s", diag.Printable(m.Path), reason)
	t.hintf("to accept every change, run: ambit lock --yes %s", diag.ShellWord(m.Path))
	return errNo
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
