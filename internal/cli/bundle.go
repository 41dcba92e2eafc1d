package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/bundle"
	"github.com/ambit-run/ambit/internal/supply/bundle/review"
	"github.com/ambit-run/ambit/manifest"
)

func newBundle(t *terminal) *cobra.Command {
	return group(&cobra.Command{Use: "bundle"}, newBundlePack(t), newBundleScan(t), newBundleReview(t), newBundleRun(t))
}

// openBundle reads the bundle at path, which is an archive or a folder. The result contains the bundle's problems.
func openBundle(path string) (*bundle.Bundle, error) {
	b, err := bundle.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return b, nil
}

// bundleReport returns the JSON document for a bundle.
func bundleReport(b *bundle.Bundle) map[string]any {
	name := ""
	if a := b.Agent(); a != nil {
		name = a.Name
	}
	return map[string]any{
		"path": b.Path, "ok": b.Errors() == 0, "name": name, "digest": b.Tree.Digest(), "files": len(b.Tree),
		"bytes": b.Tree.Size(), "left_out": notNil(b.LeftOut), "problems": notNil(b.Problems),
	}
}

// printBundleProblems prints the problems of a bundle.
func (t *terminal) printBundleProblems(b *bundle.Bundle) {
	for _, p := range b.Problems {
		place := cmp.Or(p.Path, filepath.Base(b.Path))
		if p.Line > 0 {
			place = fmt.Sprintf("%s:%d", place, p.Line)
		}
		colour := yellow
		if p.Severity == diag.Error {
			colour = boldRed
		}
		t.printf("%s: %s %s %s\n", t.paint(bold, diag.Printable(place)), t.paint(colour, p.Severity.String()),
			diag.Printable(p.Message), t.paint(dim, "["+p.Code+"]"))
		if p.Hint != "" {
			t.printf("  %s\n", t.paint(dim, diag.Printable(p.Hint)))
		}
	}
}

// withoutErrors checks that the bundle has no errors. If the check fails, the returned error contains the given
// refusal, such as "cannot be approved".
func (t *terminal) withoutErrors(b *bundle.Bundle, refusal string) error {
	if b.Errors() == 0 {
		return nil
	}
	if !t.json {
		t.printBundleProblems(b)
	}
	return no("run: ambit bundle scan "+diag.ShellWord(b.Path), "%s %s: %w", b.Path, refusal, &bundle.Invalid{Bundle: b})
}

func newBundleScan(t *terminal) *cobra.Command {
	var strict bool
	cmd := verb("scan FILE|DIR", exactly(1, "an archive or a folder"), func(_ context.Context, args []string) error {
		b, err := openBundle(args[0])
		if err != nil {
			return err
		}
		doc, ok := bundleReport(b), b.Errors() == 0 && (!strict || len(b.Problems) == 0)
		doc["ok"] = ok
		return t.judge(ok, doc, func() {
			t.printBundleProblems(b)
			found := count(b.Errors(), "error") + ", " + count(len(b.Problems)-b.Errors(), "warning")
			if !ok {
				t.printf("%s %s: %s\n", t.paint(boldRed, "no:"), diag.Printable(b.Path), found)
				return
			}
			t.printf("%s %s: %s in %s, %s\n  %s\n", t.paint(green, "ok:"), diag.Printable(b.Path),
				count(len(b.Tree), "file"), size(b.Tree.Size()), found, b.Tree.Digest())
		})
	})
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	return cmd
}

func size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

func newBundlePack(t *terminal) *cobra.Command {
	var out string
	cmd := verb("pack DIR", exactly(1, "a folder"), func(_ context.Context, args []string) error {
		b, err := openBundle(args[0])
		if err != nil {
			return err
		}
		if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
			return usage("give the path of the folder that contains findagent.json", "%s is not a folder", args[0])
		}
		if b.Errors() > 0 {
			if t.json {
				return errors.Join(t.document(bundleReport(b)), errNo)
			}
			t.printBundleProblems(b)
			return no("", "%s was not packed, because it has %s", args[0], count(b.Errors(), "error"))
		}
		file := cmp.Or(out, agent.Slug(b.Agent().Name)+".tgz")
		if err := home.ReplaceBy(file, 0o644, b.Tree.Pack); err != nil {
			return err
		}
		doc := bundleReport(b)
		doc["path"] = file
		return t.show(doc, func() {
			t.printBundleProblems(b)
			t.printf("%s %s: %s, %s\n  %s\n", t.paint(green, "packed:"), diag.Printable(file),
				count(len(b.Tree), "file"), size(b.Tree.Size()), b.Tree.Digest())
			if len(b.LeftOut) > 0 {
				t.notef("left out: %s", diag.Printable(strings.Join(b.LeftOut, ", ")))
			}
		})
	})
	cmd.Flags().StringVarP(&out, "output", "o", "", "the `file` to write (default: NAME.tgz in the current folder)")
	return cmd
}

func newBundleReview(t *terminal) *cobra.Command {
	var approve, withdraw bool
	var note, store string
	cmd := verb("review FILE|DIR", exactly(1, "an archive or a folder"), func(ctx context.Context, args []string) error {
		if approve && withdraw {
			return usage("use only one of these flags", "--approve and --withdraw cannot be combined")
		}
		b, err := openBundle(args[0])
		if err != nil {
			return err
		}
		return t.review(ctx, b, store, note, approve, withdraw)
	})
	cmd.Flags().BoolVar(&approve, "approve", false, "record that you reviewed the bundle and allow it to run")
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "record that the bundle is no longer allowed to run")
	cmd.Flags().StringVar(&note, "note", "", "a `remark` that is stored with the review")
	storeFlag(cmd.Flags(), &store)
	return cmd
}

func (t *terminal) review(ctx context.Context, b *bundle.Bundle, store, note string, approve, withdraw bool) error {
	if approve {
		if err := t.withoutErrors(b, "cannot be approved"); err != nil {
			return err
		}
	}
	k, err := t.openStore(ctx, store)
	if err != nil {
		return err
	}
	defer k.Close()
	digest, hosts := b.Tree.Digest(), []string{}
	r := review.Review{Digest: digest, Principal: identity.LocalName(), Note: note, Time: time.Now()}
	if a := b.Agent(); a != nil {
		r.Name, r.ID, hosts = agent.Slug(a.Name), a.ID, append(hosts, a.Program.Hosts...)
	}
	if approve || withdraw {
		if r.Verdict = review.Approved; withdraw {
			r.Verdict = review.Withdrawn
		}
		if err := review.Record(ctx, k, gateway.NewID(), r); err != nil {
			return missing("", "the review cannot be recorded: %w", err)
		}
	}
	last, err := review.Last(ctx, k, digest)
	if err != nil {
		return err
	}
	doc := bundleReport(b)
	doc["hosts"], doc["review"] = hosts, last
	return t.show(doc, func() {
		t.toReview(b)
		if last == nil {
			t.printf("%s not reviewed yet; after you have read the bundle, run: ambit bundle review %s --approve\n",
				t.paint(yellow, "review:"), diag.ShellWord(b.Path))
			return
		}
		t.printf("%s %s by %s on %s %s\n", t.paint(green, "review:"), last.Verdict, diag.Printable(last.Principal),
			last.Time.Format(time.DateOnly), diag.Printable(last.Note))
	})
}

// toReview prints what a reviewer needs to know about a bundle, such as its hosts, credentials and files.
func (t *terminal) toReview(b *bundle.Bundle) {
	if a := b.Agent(); a != nil {
		p := a.Program
		entry := []string{p.Entry, p.Export}
		if p.Contract == agent.NativeMCP {
			entry = append([]string{p.Command}, p.Args...)
		}
		var rows [][]string
		row := func(label, value string) {
			rows = append(rows, []string{label, diag.Printable(strings.TrimSpace(value))})
		}
		row("reaches", cmp.Or(strings.Join(p.Hosts, ", "), "nothing, because the program has no network access"))
		row("runs", string(p.Runtime)+" "+p.RuntimeVersion+" "+strings.Join(entry, " "))
		for _, s := range a.Slots {
			row("credential", s.Ref+", for "+strings.Join(s.Hosts, ", "))
		}
		for _, e := range p.Env {
			row("setting", e.Name)
		}
		t.printf("%s\n", t.paint(bold, diag.Printable(a.Name)))
		t.table("  ", rows)
	}
	for i := range b.Tree {
		t.printf("  %s %s\n", t.paint(dim, fmt.Sprintf("%9d", len(b.Tree[i].Data))), diag.Printable(b.Tree[i].Path))
	}
	t.printBundleProblems(b)
	t.printf("%s\n", b.Tree.Digest())
}

func newBundleRun(t *terminal) *cobra.Command {
	var f callFlags
	what := exactly(2, "an archive or a folder, and a tool")
	cmd := verb("run FILE|DIR TOOL", what, func(ctx context.Context, args []string) error {
		tier := f.development.isolation.tier
		if tier != string(sandbox.Standard) && tier != string(sandbox.Strong) {
			return usage("use --isolation standard or strong", "a bundle cannot run with isolation %q", tier)
		}
		m, end, err := t.bundleManifest(args[0])
		if err != nil {
			return err
		}
		defer end()
		c, err := f.call(ctx, t, args[1])
		if err != nil {
			return err
		}
		result, err := t.callOnce(ctx, m, c, f.store, f.development, registeredBundleName(t.home, args[0], m))
		if err != nil {
			return err
		}
		return t.answer(c, result)
	})
	f.flags(cmd)
	f.development.flags(cmd)
	storeFlag(cmd.Flags(), &f.store)
	tiers := []string{string(sandbox.Standard), string(sandbox.Strong)}
	cmd.Flags().StringVar(&f.development.isolation.tier, "isolation", tiers[0],
		"how strongly the code is isolated: standard or strong")
	complete(cmd, "isolation", tiers)
	return cmd
}

// bundleManifest returns the manifest of a bundle. It returns an error if the bundle has errors. An archive is unpacked
// into a temporary folder. The caller must call the second result, which removes the temporary folder.
func (t *terminal) bundleManifest(path string) (m *manifest.Manifest, end func(), err error) {
	b, err := openBundle(path)
	if err != nil {
		return nil, nil, err
	}
	if err := t.withoutErrors(b, "cannot run"); err != nil {
		return nil, nil, err
	}
	end = func() {}
	file := path
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		file = filepath.Join(path, bundle.ManifestName)
	} else if filepath.Base(path) != bundle.ManifestName {
		dir, err := os.MkdirTemp("", "ambit-unpacked-")
		if err != nil {
			return nil, nil, err
		}
		end = func() { os.RemoveAll(dir) }
		file = filepath.Join(dir, bundle.ManifestName)
		if err := b.Tree.Write(dir); err != nil {
			end()
			return nil, nil, err
		}
	}
	if m, err = t.load(file, string(agent.FindAgent)); err != nil {
		end()
	}
	return m, end, err
}

// reviewCheck returns a function that checks whether a person approved the bundle with a given digest. Outside
// production, no review is needed, and reviewCheck returns nil.
func reviewCheck(b *store.Store, production bool) func(context.Context, string) error {
	if !production {
		return nil
	}
	return func(ctx context.Context, digest string) error { return review.Need(ctx, b, digest) }
}

// canServe returns a function that checks whether an agent can be served. In production, a person must have approved
// the agent's code. If fromFlag is set, the agents are in a folder that was given on the command line. A program from
// that folder must not have the id of an installed program. Installed programs do not need this check, because the
// daemon rejects duplicate ids.
func canServe(ctx context.Context, b *store.Store, production, fromFlag bool) func(*manifest.Manifest) error {
	need := reviewCheck(b, production)
	return func(m *manifest.Manifest) error {
		if fromFlag {
			if err := soleID(m); err != nil {
				return err
			}
		}
		if a := m.Agent(); need == nil || a.Kind != agent.CodeBundle || len(a.Servers) > 0 {
			return nil
		}
		read, err := bundle.Open(m.Path)
		if err != nil {
			return err
		}
		if err := need(ctx, read.Tree.Digest()); err != nil {
			return fmt.Errorf("--production: %w; to review the bundle, run: ambit bundle review", err)
		}
		return nil
	}
}
