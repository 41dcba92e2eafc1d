package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/bundle"
	"github.com/ambit-run/ambit/internal/supply/bundle/review"
	"github.com/ambit-run/ambit/manifest"
)

func newBundle(t *terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bundle",
		GroupID: groupInstall,
		Short:   "Pack, check, review and run bundles of code",
		Long: "Pack, check, review and run bundles of code: a folder with a findagent.json of kind code-bundle at its top,\n" +
			"or an archive of one. The code runs in a sandbox, which reaches the manifest's allowed_hosts and nothing\n" +
			"else. Settings of its env come from [bundles.NAME.env] in config.toml.",
	}
	return group(cmd, newBundlePack(t), newBundleScan(t), newBundleReview(t), newBundleRun(t))
}

// openBundle reads and checks a bundle.
func openBundle(path string) (*bundle.Bundle, error) {
	b, err := bundle.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return b, nil
}

// bundleReport is a bundle in the output of --json.
type bundleReport struct {
	Path     string           `json:"path"`
	OK       bool             `json:"ok"`
	Name     string           `json:"name"`
	Digest   string           `json:"digest"`
	Files    int              `json:"files"`
	Bytes    int64            `json:"bytes"`
	LeftOut  []string         `json:"left_out"`
	Problems []bundle.Problem `json:"problems"`
}

func reportOf(b *bundle.Bundle) bundleReport {
	r := bundleReport{
		Path: b.Path, OK: b.Errors() == 0, Digest: b.Tree.Digest(), Files: len(b.Tree), Bytes: b.Tree.Size(),
		LeftOut: append([]string{}, b.LeftOut...), Problems: append([]bundle.Problem{}, b.Problems...),
	}
	if a := b.Agent(); a != nil {
		r.Name = a.Name
	}
	return r
}

// bundleProblems shows what is wrong, each with its place.
func (t *terminal) bundleProblems(b *bundle.Bundle) {
	for _, p := range b.Problems {
		place := cmp.Or(p.Path, filepath.Base(b.Path))
		if p.Line > 0 {
			place = fmt.Sprintf("%s:%d", place, p.Line)
		}
		colour := yellow
		if p.Severity == diag.Error {
			colour = boldRed
		}
		t.printf("%s: %s %s %s\n", t.paint(bold, diag.Printable(place)), t.paint(colour, p.Severity.String()), diag.Printable(p.Message), t.paint(dim, "["+p.Code+"]"))
		if p.Hint != "" {
			t.printf("  %s\n", t.paint(dim, diag.Printable(p.Hint)))
		}
	}
}

func newBundleScan(t *terminal) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "scan FILE|DIR",
		Short: "Report every problem of a bundle",
		Long: "Report every problem of a bundle, without running any of it: paths that lead out, links,\n" +
			"too much of anything, secrets, hosts that are not declared, compiled code. Exits 1 if there is an error,\n" +
			"with --strict also if there is a warning. ambit explain CODE explains a code.",
		Example: "  ambit bundle scan ./my-agent\n  ambit bundle scan my-agent.tgz --json",
		Args:    exactly(1, "an archive or a folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := openBundle(args[0])
			if err != nil {
				return err
			}
			r := reportOf(b)
			r.OK = r.OK && (!strict || len(b.Problems) == 0)
			return t.judge(r.OK, r, func() {
				t.bundleProblems(b)
				t.scanned(b, r.OK)
			})
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings are errors")
	return cmd
}

func (t *terminal) scanned(b *bundle.Bundle, ok bool) {
	found := count(b.Errors(), "error") + ", " + count(len(b.Problems)-b.Errors(), "warning")
	if !ok {
		t.printf("%s %s: %s\n", t.paint(boldRed, "no:"), diag.Printable(b.Path), found)
		return
	}
	t.printf("%s %s: %s in %s, %s\n", t.paint(green, "ok:"), diag.Printable(b.Path), count(len(b.Tree), "file"), size(b.Tree.Size()), found)
	t.printf("  %s\n", b.Tree.Digest())
}

func size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

func newBundlePack(t *terminal) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "pack DIR",
		Short: "Make one archive of a bundle",
		Long: "Make one archive of a bundle, after the checks of ambit bundle scan. A TypeScript entrypoint is built. The\n" +
			"same folder always gives the same archive. Names that begin with a dot are left out.",
		Example: "  ambit bundle pack ./my-agent\n  ambit bundle pack ./my-agent -o my-agent-1.0.tgz",
		Args:    exactly(1, "a folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := openBundle(args[0])
			if err != nil {
				return err
			}
			if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
				return usage("name the folder that holds findagent.json", "%s is not a folder", args[0])
			}
			if b.Errors() > 0 {
				if t.json {
					return errors.Join(t.document(reportOf(b)), errNo)
				}
				t.bundleProblems(b)
				return no("", "%s is not packed: %s", args[0], count(b.Errors(), "error"))
			}
			file := cmp.Or(out, agent.Slug(b.Agent().Name)+".tgz")
			if err := home.ReplaceBy(file, 0o644, b.Tree.Pack); err != nil {
				return err
			}
			r := reportOf(b)
			r.Path = file
			return t.show(r, func() {
				t.bundleProblems(b)
				t.printf("%s %s: %s, %s\n  %s\n", t.paint(green, "packed:"), diag.Printable(file), count(r.Files, "file"), size(r.Bytes), r.Digest)
				if len(r.LeftOut) > 0 {
					t.notef("left out: %s", diag.Printable(strings.Join(r.LeftOut, ", ")))
				}
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the `file` to write (default NAME.tgz, here)")
	return cmd
}

func newBundleReview(t *terminal) *cobra.Command {
	var approve, withdraw bool
	var note, store string
	cmd := &cobra.Command{
		Use:   "review FILE|DIR",
		Short: "Record that you have reviewed a bundle",
		Long: "Show what there is to review: what the bundle may reach, its files, and what the scan found. With --approve,\n" +
			"record that you have read it and that it may run; ambit serve --production runs no bundle without that. A\n" +
			"review is of exactly these files, and is journaled with your name.",
		Example: "  ambit bundle review my-agent.tgz\n  ambit bundle review my-agent.tgz --approve --note 'read all of src'",
		Args:    exactly(1, "an archive or a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if approve && withdraw {
				return usage("use one of them", "--approve and --withdraw contradict each other")
			}
			b, err := openBundle(args[0])
			if err != nil {
				return err
			}
			return t.review(cmd.Context(), b, store, note, approve, withdraw)
		},
	}
	cmd.Flags().BoolVar(&approve, "approve", false, "record that you have read it, and that it may run")
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "record that it may no longer run")
	cmd.Flags().StringVar(&note, "note", "", "a `remark`, kept with the review")
	storeFlag(cmd.Flags(), &store)
	return cmd
}

func (t *terminal) review(ctx context.Context, b *bundle.Bundle, store, note string, approve, withdraw bool) error {
	if approve && b.Errors() > 0 {
		if !t.json {
			t.bundleProblems(b)
		}
		return no("see: ambit bundle scan "+diag.ShellWord(b.Path), "%s cannot be approved: %s", b.Path, count(b.Errors(), "error"))
	}
	k, err := t.openStore(ctx, store)
	if err != nil {
		return err
	}
	defer k.Close()
	digest := b.Tree.Digest()
	if approve || withdraw {
		r := review.Review{Digest: digest, Principal: identity.LocalName(), Verdict: review.Approved, Note: note, Time: time.Now()}
		if a := b.Agent(); a != nil {
			r.Name, r.ID = agent.Slug(a.Name), a.ID
		}
		if withdraw {
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
	if t.json {
		return t.document(struct {
			bundleReport
			Hosts  []string       `json:"hosts"`
			Review *review.Review `json:"review"`
		}{reportOf(b), hostsOf(b), last})
	}
	t.toReview(b)
	switch {
	case last == nil:
		t.printf("%s not reviewed yet; if you have read it: ambit bundle review %s --approve\n", t.paint(yellow, "review:"), diag.ShellWord(b.Path))
	default:
		t.printf("%s %s by %s on %s %s\n", t.paint(green, "review:"), last.Verdict, diag.Printable(last.Principal), last.Time.Format(time.DateOnly), diag.Printable(last.Note))
	}
	return nil
}

func hostsOf(b *bundle.Bundle) []string {
	if a := b.Agent(); a != nil {
		return append([]string{}, a.Program.Hosts...)
	}
	return []string{}
}

// toReview prints what a reviewer has to know.
func (t *terminal) toReview(b *bundle.Bundle) {
	if a := b.Agent(); a != nil {
		t.printf("%s\n", t.paint(bold, diag.Printable(a.Name)))
		hosts := "nothing: it has no network"
		if len(a.Program.Hosts) > 0 {
			hosts = strings.Join(a.Program.Hosts, ", ")
		}
		rows := [][]string{{"reaches", diag.Printable(hosts)}, {"runs", diag.Printable(strings.TrimSpace(string(a.Program.Runtime) + " " + a.Program.RuntimeVersion + " " + entryOf(a.Program)))}}
		for _, s := range a.Slots {
			rows = append(rows, []string{"credential", diag.Printable(s.Ref + ", for " + strings.Join(s.Hosts, ", "))})
		}
		for _, e := range a.Program.Env {
			rows = append(rows, []string{"setting", diag.Printable(e.Name)})
		}
		t.table("  ", rows)
	}
	for i := range b.Tree {
		t.printf("  %s %s\n", t.paint(dim, fmt.Sprintf("%9d", len(b.Tree[i].Data))), diag.Printable(b.Tree[i].Path))
	}
	t.bundleProblems(b)
	t.printf("%s\n", b.Tree.Digest())
}

func entryOf(p *agent.Program) string {
	if p.Contract == agent.NativeMCP {
		return strings.Join(append([]string{p.Command}, p.Args...), " ")
	}
	return p.Entry + " " + p.Export
}

func newBundleRun(t *terminal) *cobra.Command {
	var f callFlags
	var isolation string
	cmd := &cobra.Command{
		Use:     "run FILE|DIR TOOL",
		Short:   "Call a tool of a bundle, in the sandbox",
		Long:    "Call a tool of a bundle through the gateway, with the bundle's code in the sandbox. Nothing of an archive is\nunpacked into the current folder.",
		Example: "  ambit bundle run ./my-agent summarize --input '{\"text\": \"…\"}'\n  ambit bundle run my-agent.tgz summarize --input @text.json --json",
		Args:    exactly(2, "an archive or a folder, and a tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			tiers := []string{string(sandbox.Standard), string(sandbox.Strong)}
			if !slices.Contains(tiers, isolation) {
				return usage("use standard or strong: a bundle never runs without", "there is no isolation %q for bundles", isolation)
			}
			m, end, err := t.bundleManifest(args[0])
			if err != nil {
				return err
			}
			defer end()
			c, err := f.call(t, args[1])
			if err != nil {
				return err
			}
			result, err := t.bundleCall(cmd.Context(), args[0], m, c, &f, sandbox.Tier(isolation))
			if err != nil {
				return err
			}
			return t.answer(c, result)
		},
	}
	f.flags(cmd)
	f.development.flags(cmd)
	storeFlag(cmd.Flags(), &f.store)
	cmd.Flags().StringVar(&isolation, "isolation", string(sandbox.Standard), "how far the code is kept away: standard or strong")
	complete(cmd, "isolation", []string{string(sandbox.Standard), string(sandbox.Strong)})
	return cmd
}

// bundleManifest returns the manifest of a valid bundle. It unpacks an archive into a
// temporary folder, which end removes.
func (t *terminal) bundleManifest(path string) (m *manifest.Manifest, end func(), err error) {
	b, err := openBundle(path)
	if err != nil {
		return nil, nil, err
	}
	if b.Errors() > 0 {
		if !t.json {
			t.bundleProblems(b)
		}
		return nil, nil, no("see: ambit bundle scan "+diag.ShellWord(path), "%s may not run: %w", path, &bundle.Invalid{Bundle: b})
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
		if err := b.Tree.Write(dir); err != nil {
			end()
			return nil, nil, err
		}
		file = filepath.Join(dir, bundle.ManifestName)
	}
	if m, err = t.load(file, string(agent.FindAgent)); err != nil {
		end()
		return nil, nil, err
	}
	return m, end, nil
}

// bundleCall makes one call to a bundle at an isolation tier.
func (t *terminal) bundleCall(ctx context.Context, path string, m *manifest.Manifest, c *call.Call, f *callFlags, tier sandbox.Tier) (call.Result, error) {
	b, err := t.openStore(ctx, f.store)
	if err != nil {
		return call.Result{}, err
	}
	defer b.Close()
	o, err := t.hostOptions(f.development, false)
	if err != nil {
		return call.Result{}, err
	}
	o.Books, o.Isolation, o.Name = b, tier, registeredBundle(o.Home, path, m)
	a := host.Start(ctx, m, o)
	defer a.Close()
	if err := a.Ready(ctx); err != nil {
		return call.Result{}, asFailure(err)
	}
	result, err := a.Gateway().Call(ctx, c)
	if err != nil {
		return result, asFailure(err)
	}
	return result, nil
}

// reviewed returns the check of production that a bundle is reviewed; nil otherwise.
func reviewed(b *store.Store, production bool) func(context.Context, string) error {
	if !production {
		return nil
	}
	return func(ctx context.Context, digest string) error { return review.Need(ctx, b, digest) }
}

// canServe returns the check that an agent's code is reviewed if production requires it.
func canServe(ctx context.Context, b *store.Store, production bool) func(*manifest.Manifest) error {
	need := reviewed(b, production)
	return func(m *manifest.Manifest) error {
		if a := m.Agent(); need == nil || a.Kind != agent.CodeBundle || len(a.Servers) > 0 {
			return nil
		}
		read, err := bundle.Open(m.Path)
		if err != nil {
			return err
		}
		if err := need(ctx, read.Tree.Digest()); err != nil {
			return fmt.Errorf("--production: %w: review it with ambit bundle review", err)
		}
		return nil
	}
}
