package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

func newValidate(t *terminal) *cobra.Command {
	var dialect, format string
	var strict bool
	var dev development
	cmd := &cobra.Command{
		Use:     "validate PATH...",
		GroupID: groupReview,
		Short:   "Check manifests and report every problem",
		Long: "Check manifests and report every problem with its location, code and fix. In a folder, every manifest is\n" +
			"checked, except in hidden folders and in node_modules. The skills that a manifest lists are checked too if\n" +
			"they are beside it. - is standard input.",
		Example: "  ambit validate agents/\n  ambit validate --strict agent.toml\n  ambit validate --format sarif . > problems.sarif",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name a manifest or a folder, or - for standard input", "validate takes at least one path")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := parseDialect(dialect)
			if err != nil {
				return err
			}
			if t.json && format != "text" && format != "json" {
				return usage("leave one of the two out", "--json and --format %s contradict each other", format)
			}
			if format == "json" {
				t.json = true
			}
			show, ok := reports[format]
			if !ok {
				return usage("use text, json, sarif or github", "there is no format %q", format)
			}
			if t.json {
				show = (*terminal).reportJSON
			}
			t.announce(egress.Switches{LoopbackHTTP: dev.loopbackHTTP})
			checked, err := t.validate(cmd.Context(), args, manifest.Options{Dialect: d, Strict: strict, LoopbackHTTP: dev.loopbackHTTP})
			if err != nil {
				return err
			}
			if err := show(t, checked); err != nil {
				return err
			}
			if checked.errors > 0 {
				return errNo
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dialect, "dialect", "", "read as this `dialect` instead of finding out: "+strings.Join(dialectNames(), ", "))
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	cmd.Flags().StringVar(&format, "format", "text", "how to report: text, json, sarif or github (`format`)")
	dev.manifestFlag(cmd.Flags())
	complete(cmd, "dialect", dialectNames())
	complete(cmd, "format", []string{"text", "json", "sarif", "github"})
	return cmd
}

// checked is what validate found.
type checked struct {
	files            []*manifest.Manifest
	skipped          []skipped
	errors, warnings int
	attached         int // files that belong to manifests
}

type skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

func (t *terminal) validate(ctx context.Context, paths []string, o manifest.Options) (*checked, error) {
	c := &checked{}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case path == "-" || err == nil && !info.IsDir():
			m, err := t.read(path, o)
			if err != nil {
				return nil, err
			}
			c.add(m)
		case err != nil:
			return nil, unreadable(path, err)
		default:
			before := len(c.files)
			if err := c.walk(path, o); err != nil {
				return nil, unreadable(path, err)
			}
			if len(c.files) == before {
				return nil, no("a manifest is JSON or TOML with the keys of one of the dialects", "no manifest found in %s (%s skipped)", path, count(len(c.skipped), "file"))
			}
		}
	}
	c.readSkills(ctx, o.Strict)
	return c, nil
}

func (c *checked) add(m *manifest.Manifest) {
	c.files = append(c.files, m)
	c.errors += len(m.Errors())
	c.warnings += len(m.Diagnostics)
	for _, d := range m.Diagnostics {
		if d.Severity == diag.Error {
			c.warnings--
		}
	}
}

// pass skips a file or folder that cannot be read, and counts it as an error.
func (c *checked) pass(path string, err error) {
	c.skipped = append(c.skipped, skipped{path, "cannot be read: " + cause(err)})
	c.errors++
}

// cause returns an error without the path, which is printed before it.
func cause(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// walk checks every manifest below a folder, and in the folders that links in it lead
// to: an agents folder has its agents there too.
func (c *checked) walk(root string, o manifest.Options) error {
	root = filepath.Clean(root) + string(filepath.Separator) // where it is a link itself, it is followed
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && path != root:
			c.pass(path, err)
			return nil
		case err != nil:
			return err
		case e.IsDir():
			if path != root && daemon.PassedOver(e.Name()) {
				return filepath.SkipDir
			}
		case isFile(path, e):
			c.check(path, o)
		case e.Type()&fs.ModeSymlink != 0 && filepath.Dir(path) == filepath.Clean(root) && !daemon.PassedOver(e.Name()):
			c.behind(path, o)
		}
		return nil
	})
}

// behind checks the files of the folder that a link leads to, and goes no deeper.
func (c *checked) behind(link string, o manifest.Options) {
	if info, err := os.Stat(link); err != nil || !info.IsDir() {
		return
	}
	entries, err := os.ReadDir(link)
	if err != nil {
		c.pass(link, err)
		return
	}
	for _, e := range entries {
		if path := filepath.Join(link, e.Name()); isFile(path, e) {
			c.check(path, o)
		}
	}
}

// check checks a file of a folder, and lists it as skipped if it is no manifest.
func (c *checked) check(path string, o manifest.Options) {
	if ext := strings.ToLower(filepath.Ext(path)); ext != ".json" && ext != ".toml" {
		return
	}
	m, err := manifest.Load(path, o)
	switch {
	case m == nil:
		c.pass(path, err)
	case m.Dialect == "" && !m.Suspect():
		c.skipped = append(c.skipped, skipped{path, "not a manifest: " + reason(m)})
	default:
		c.add(m)
	}
}

// isFile reports whether an entry is a file, or a link to one.
func isFile(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.Type().IsRegular()
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func alwaysManifest(name string) bool { return name == "agent.toml" || name == "findagent.json" }

func reason(m *manifest.Manifest) string {
	for _, d := range m.Diagnostics {
		if d.Code != diag.UnknownDialect.Code {
			return d.Message
		}
	}
	return "it has no key of a known dialect"
}

// reports are the ways to show what was found.
var reports = map[string]func(*terminal, *checked) error{
	"text":   (*terminal).reportText,
	"json":   (*terminal).reportJSON,
	"sarif":  (*terminal).reportSARIF,
	"github": (*terminal).reportGitHub,
}

func (t *terminal) reportText(c *checked) error {
	for _, m := range c.files {
		if len(m.Diagnostics) == 0 {
			continue
		}
		t.problems(t.out, m)
		t.printf("\n")
	}
	for _, m := range c.files {
		mark, verdict := t.paint(green, "✓"), "valid"
		switch {
		case !m.Valid():
			mark, verdict = t.paint(red, "✗"), count(len(m.Errors()), "error")
		case len(m.Diagnostics) > 0:
			mark, verdict = t.paint(yellow, "✓"), "valid, "+count(len(m.Diagnostics), "warning")
		}
		t.printf("%s %s  %s\n", mark, diag.Printable(m.Path), t.paint(dim, cmp.Or(string(m.Dialect), "unknown dialect")+", "+verdict))
	}
	for _, s := range c.skipped {
		t.notef("%s", t.paint(dim, "- "+diag.Printable(s.Path)+"  skipped, "+s.Reason))
	}
	if len(c.files) > 1 || c.errors+c.warnings > 0 {
		t.printf("%s checked: %s, %s", count(len(c.files)-c.attached, "manifest"), count(c.errors, "error"), count(c.warnings, "warning"))
		if len(c.skipped) > 0 {
			t.printf("; %s skipped", count(len(c.skipped), "file"))
		}
		t.printf("\n")
	}
	if c.errors+c.warnings > 0 {
		t.remarkf("what a code means: ambit explain CODE")
	}
	return nil
}

type fileReport struct {
	Path        string                `json:"path"`
	Dialect     string                `json:"dialect"`
	Valid       bool                  `json:"valid"`
	Digest      string                `json:"digest"`
	Diagnostics []manifest.Diagnostic `json:"diagnostics"`
}

func (t *terminal) reportJSON(c *checked) error {
	report := struct {
		Valid    bool         `json:"valid"`
		Errors   int          `json:"errors"`
		Warnings int          `json:"warnings"`
		Files    []fileReport `json:"files"`
		Skipped  []skipped    `json:"skipped"`
	}{c.errors == 0, c.errors, c.warnings, []fileReport{}, append([]skipped{}, c.skipped...)}
	for _, m := range c.files {
		report.Files = append(report.Files, fileReport{
			Path: m.Path, Dialect: string(m.Dialect), Valid: m.Valid(), Digest: m.Digest(),
			Diagnostics: append([]manifest.Diagnostic{}, m.Diagnostics...),
		})
	}
	return t.document(report)
}

// readSkills checks the skills that manifests list. Skills that are kept elsewhere are not fetched.
func (c *checked) readSkills(ctx context.Context, strict bool) {
	for _, m := range slices.Clone(c.files) {
		a := m.Agent()
		if a == nil || a.Skills == nil || len(a.Skills.List) == 0 || m.Path == stdinName {
			continue
		}
		folder, err := host.SkillsFolder(m)
		if err != nil {
			c.skipped = append(c.skipped, skipped{m.Path, "its skills are not beside it, so they were not checked"})
			continue
		}
		found, err := skill.Check(ctx, folder, a.Skills, host.SkillTools(a), strict)
		if err != nil {
			c.pass(folder.Name(), err)
		}
		folder.Close()
		for _, r := range found {
			c.add(&manifest.Manifest{Path: r.Source.Name, Dialect: m.Dialect, Source: r.Source, Diagnostics: r.Finish()})
			c.attached++
		}
	}
}
