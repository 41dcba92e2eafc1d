package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

func newValidate(t *terminal) *cobra.Command {
	var dialect, format string
	var strict bool
	var dev development
	cmd := verb("validate PATH...", cobra.ArbitraryArgs, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usage("give a manifest or a folder, or - for standard input", "ambit validate takes at least one path")
		}
		d, err := parseDialect(dialect)
		if err != nil {
			return err
		}
		if t.json && format != "text" && format != "json" {
			return usage("use only one of these flags", "--json and --format %s cannot be combined", format)
		}
		show, ok := reports[format]
		if !ok {
			return usage("use text, json, sarif or github", "unknown format %q", format)
		}
		if t.json = t.json || format == "json"; t.json {
			show = (*terminal).reportJSON
		}
		t.announce(egress.Switches{LoopbackHTTP: dev.loopbackHTTP})
		o := manifest.Options{Dialect: d, Strict: strict, LoopbackHTTP: dev.loopbackHTTP}
		checked, err := t.validate(ctx, args, o)
		if err != nil {
			return err
		}
		if err := show(t, checked); err != nil || checked.errors == 0 {
			return err
		}
		return errNo
	})
	dialectFlag(cmd, &dialect)
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	cmd.Flags().StringVar(&format, "format", "text", "the format of the report: text, json, sarif or github (`format`)")
	dev.manifestFlag(cmd.Flags())
	complete(cmd, "format", []string{"text", "json", "sarif", "github"})
	return cmd
}

// validation is the result of "ambit validate".
type validation struct {
	files            []*manifest.Manifest
	skipped          []skipped
	errors, warnings int
	attached         int // the number of files that are skills, not manifests
}

type skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

func (t *terminal) validate(ctx context.Context, paths []string, o manifest.Options) (*validation, error) {
	c := &validation{}
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
				return nil, no("a manifest is a JSON or TOML file that uses the keys of a known dialect",
					"no manifest found in %s (%s skipped)", path, count(len(c.skipped), "file"))
			}
		}
	}
	c.findPrograms(o.Strict)
	c.findScopes(o.Strict)
	c.readSkills(ctx, o.Strict)
	return c, nil
}

func (c *validation) add(m *manifest.Manifest) {
	c.files = append(c.files, m)
	c.errors += len(m.Errors())
	c.warnings += len(m.Diagnostics) - len(m.Errors())
}

// addUnreadable records that a file or folder cannot be read. The file is listed as skipped, and is also counted as an
// error.
func (c *validation) addUnreadable(path string, err error) {
	c.skipped = append(c.skipped, skipped{path, "cannot be read: " + home.WithoutPath(err).Error()})
	c.errors++
}

// walk checks all manifests in a folder and its subfolders. It also follows links at the top level, because an agents
// folder can contain links to agents.
func (c *validation) walk(root string, o manifest.Options) error {
	// With a trailing separator, WalkDir follows a root that is a link.
	root = filepath.Clean(root) + string(filepath.Separator)
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && path != root:
			c.addUnreadable(path, err)
			return nil
		case err != nil:
			return err
		case e.IsDir():
			if path != root && daemon.PassedOver(e.Name()) {
				return filepath.SkipDir
			}
		case e.Type()&fs.ModeSymlink != 0 && filepath.Dir(path) == filepath.Clean(root) && !daemon.PassedOver(e.Name()):
			// In a linked folder, check the files but not the subfolders.
			entries, err := os.ReadDir(path)
			if info, statErr := os.Stat(path); err != nil && statErr == nil && info.IsDir() {
				c.addUnreadable(path, err)
			}
			c.check(path, o)
			for _, e := range entries {
				c.check(filepath.Join(path, e.Name()), o)
			}
		default:
			c.check(path, o)
		}
		return nil
	})
}

// check validates a JSON or TOML file. A file that is not a manifest is recorded as skipped.
func (c *validation) check(path string, o manifest.Options) {
	info, err := os.Stat(path)
	ext := strings.ToLower(filepath.Ext(path))
	if err != nil || !info.Mode().IsRegular() || ext != ".json" && ext != ".toml" {
		return
	}
	m, err := manifest.Load(path, o)
	switch {
	case m == nil:
		c.addUnreadable(path, err)
	case m.Dialect == "" && !m.Suspect():
		c.skipped = append(c.skipped, skipped{path, "not a manifest: " + reason(m)})
	default:
		c.add(m)
	}
}

func alwaysManifest(name string) bool { return name == "agent.toml" || name == "findagent.json" }

func reason(m *manifest.Manifest) string {
	for _, d := range m.Diagnostics {
		if d.Code != diag.UnknownDialect.Code {
			return d.Message
		}
	}
	return "the file has no key of a known dialect"
}

// reports maps each value of --format to the function that prints the report.
var reports = map[string]func(*terminal, *validation) error{
	"text":   (*terminal).reportText,
	"json":   (*terminal).reportJSON,
	"sarif":  (*terminal).reportSARIF,
	"github": (*terminal).reportGitHub,
}

func (t *terminal) reportText(c *validation) error {
	for _, m := range c.files {
		if len(m.Diagnostics) > 0 {
			t.printProblems(t.out, m)
			t.printf("\n")
		}
	}
	for _, m := range c.files {
		mark, verdict := t.paint(green, "✓"), "valid"
		switch {
		case !m.Valid():
			mark, verdict = t.paint(red, "✗"), count(len(m.Errors()), "error")
		case len(m.Diagnostics) > 0:
			mark, verdict = t.paint(yellow, "✓"), "valid, "+count(len(m.Diagnostics), "warning")
		}
		verdict = cmp.Or(string(m.Dialect), "unknown dialect") + ", " + verdict
		t.printf("%s %s  %s\n", mark, diag.Printable(m.Path), t.paint(dim, verdict))
	}
	for _, s := range c.skipped {
		t.remarkf("- %s  skipped, %s", diag.Printable(s.Path), s.Reason)
	}
	if len(c.files) > 1 || c.errors+c.warnings > 0 {
		left := ""
		if len(c.skipped) > 0 {
			left = "; " + count(len(c.skipped), "file") + " skipped"
		}
		t.printf("%s checked: %s, %s%s\n", count(len(c.files)-c.attached, "manifest"),
			count(c.errors, "error"), count(c.warnings, "warning"), left)
	}
	if c.errors+c.warnings > 0 {
		t.remarkf("for the meaning of a code, run: ambit explain CODE")
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

func (t *terminal) reportJSON(c *validation) error {
	report := struct {
		Valid    bool         `json:"valid"`
		Errors   int          `json:"errors"`
		Warnings int          `json:"warnings"`
		Files    []fileReport `json:"files"`
		Skipped  []skipped    `json:"skipped"`
	}{c.errors == 0, c.errors, c.warnings, nil, notNil(c.skipped)}
	report.Files = each(c.files, func(m *manifest.Manifest) fileReport {
		return fileReport{m.Path, string(m.Dialect), m.Valid(), m.Digest(), notNil(m.Diagnostics)}
	})
	return t.document(report)
}

var entryLine = regexp.MustCompile(`(?m)^[ \t]*entry[ \t]*=[ \t]*(.*?)[ \t\r]*$`)

// findPrograms reports Covenant manifests whose script does not exist. It ignores missing compiled programs, because
// they can be built later.
func (c *validation) findPrograms(strict bool) {
	for _, m := range c.files {
		a := m.Agent()
		if a == nil || m.Dialect != agent.Covenant || a.Program == nil || a.Program.Runtime == agent.RustBin ||
			m.Path == stdinName {
			continue
		}
		file := filepath.FromSlash(a.Program.Entry)
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(m.Path), file)
		}
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			continue
		}
		r := diag.Open(m.Path, m.Source.Text, strict)
		at := diag.Place{}
		if found := entryLine.FindStringSubmatchIndex(m.Source.Text); found != nil {
			at = diag.Place{Start: found[2], End: found[3]}
		}
		r.Report(ruleOf("CV005"), at, "write the program, or correct the path", "there is no file %s", diag.Quote(a.Program.Entry))
		m.Diagnostics = append(m.Diagnostics, r.Finish()...)
		c.errors++
	}
}

// findScopes reports requested scopes that do not exist on a server in the catalogue.
func (c *validation) findScopes(strict bool) {
	for _, m := range c.files {
		if m.Agent() == nil || m.Dialect != agent.GPARS {
			continue
		}
		h, err := home.Find()
		if err != nil {
			return
		}
		r := diag.Open(m.Path, m.Source.Text, strict)
		tree, _ := doc.ParseJSON(r.Source, diag.Open(m.Path, m.Source.Text, false))
		for _, u := range unknownScopes(h, m.Agent()) {
			r.Report(ruleOf("GP031"), placeOfScope(tree.Root(), u), u.hint, "%s", u)
		}
		tree.Release()
		found := r.Finish()
		m.Diagnostics = append(m.Diagnostics, found...)
		c.errors += r.Errors()
		c.warnings += len(found) - r.Errors()
	}
}

// unknownScope is a scope that an agent requests, but that contains no tools.
type unknownScope struct{ server, scope, hint string }

func (u unknownScope) String() string {
	return fmt.Sprintf("the scope %s of %s does not cover any tools", diag.Quote(u.scope), diag.Printable(u.server))
}

// unknownScopes returns the requested scopes that neither the catalogue nor config.toml maps to tools. It leaves out
// servers that are not in the catalogue, because their scopes are unknown. If the files cannot be read, it returns nil.
func unknownScopes(h home.Home, a *agent.Agent) (all []unknownScope) {
	known, err := catalog.Open(h)
	scopes, scopesErr := policy.ReadScopes(h.Config())
	if err != nil || scopesErr != nil {
		return nil
	}
	for _, q := range a.Requirements {
		have := known.ScopesOf(q.Server)
		for _, scope := range q.Scopes {
			if len(have) > 0 && len(scopes.Map(known, q.Server, scope).Tools) == 0 {
				hint := cmp.Or(diag.DidYouMean(scope, have), "the server has "+diag.Words(have, "and"))
				all = append(all, unknownScope{q.Server, scope, hint})
			}
		}
	}
	return all
}

func placeOfScope(root doc.Value, u unknownScope) diag.Place {
	for _, list := range []string{"required_mcp_servers", "optional_mcp_servers"} {
		for server := range root.Get(list).Each() {
			for scope := range server.Get("permission_scopes").Each() {
				if server.Get("server_id").Text() == u.server && scope.Text() == u.scope {
					return scope.Place()
				}
			}
		}
	}
	return diag.Place{}
}

func ruleOf(code string) *manifest.Rule {
	all := manifest.Rules()
	return all[slices.IndexFunc(all, func(r *manifest.Rule) bool { return r.Code == code })]
}

// readSkills checks the skills that manifests list. Skills that are not in the manifest's folder are skipped.
func (c *validation) readSkills(ctx context.Context, strict bool) {
	for _, m := range slices.Clone(c.files) {
		a := m.Agent()
		if a == nil || a.Skills == nil || len(a.Skills.List) == 0 || m.Path == stdinName {
			continue
		}
		folder, err := host.SkillsFolder(m)
		if err != nil {
			c.skipped = append(c.skipped, skipped{m.Path, "skills outside the manifest folder were not checked"})
			continue
		}
		found, err := skill.Check(ctx, folder, a.Skills, host.SkillTools(a), strict)
		if err != nil {
			c.addUnreadable(folder.Name(), err)
		}
		folder.Close()
		for _, r := range found {
			c.add(&manifest.Manifest{Path: r.Source.Name, Dialect: m.Dialect, Source: r.Source, Diagnostics: r.Finish()})
			c.attached++
		}
	}
}

// shownProblems is the maximum number of problems that the text report shows for each file. Other reports contain all
// problems.
const shownProblems = 100

// printProblems prints the diagnostics of a manifest. Each diagnostic shows the source line:
//
//	path:4:16: error: what is wrong [MX010]
//	    4 |       "alias": "FS",
//	      |                ^^^^
//	      = hint: what to do
func (t *terminal) printProblems(w io.Writer, m *manifest.Manifest) {
	path := diag.Printable(m.Path)
	if strings.HasPrefix(strings.TrimSpace(path), "::") {
		path = "./" + path // CI systems treat a line that starts with :: as a command
	}
	for i, d := range m.Diagnostics {
		if i == shownProblems {
			left := count(len(m.Diagnostics)-i, "problem")
			fmt.Fprintf(w, "%s: %s not shown here; --json shows all\n", path, left)
			return
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		colour := red
		if d.Severity == diag.Warning {
			colour = yellow
		}
		fmt.Fprintf(w, "%s %s %s %s\n",
			t.paint(bold, fmt.Sprintf("%s:%d:%d:", path, d.Line, d.Column)),
			t.paint(colour, d.Severity.String()+":"), d.Message, t.paint(dim, "["+d.Code+"]"))
		if m.Source.Text != "" {
			f := m.Source.Frame(d)
			gutter := fmt.Sprintf("%5d | ", f.Line)
			blank := strings.Repeat(" ", len(gutter)-2) + "| "
			marks := strings.Repeat(" ", f.Before) + t.paint(colour, strings.Repeat("^", f.Marked))
			fmt.Fprintf(w, "%s%s\n%s%s\n", t.paint(dim, gutter), f.Text, t.paint(dim, blank), marks)
		}
		if d.Hint != "" {
			fmt.Fprintf(w, "      %s %s\n", t.paint(dim, "= hint:"), d.Hint)
		}
	}
}

// reportGitHub prints GitHub workflow commands. GitHub shows the messages next to the source lines.
func (t *terminal) reportGitHub(c *validation) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, m := range c.files {
		path := diag.Printable(property.Replace(m.Path))
		for _, d := range m.Diagnostics {
			message := d.Message
			if d.Hint != "" {
				message += "\nhint: " + d.Hint
			}
			t.printf("::%s file=%s,line=%d,col=%d,endLine=%d,endColumn=%d,title=%s::%s\n",
				d.Severity, path, d.Line, d.Column, d.EndLine, d.EndColumn, d.Code, data.Replace(message))
		}
	}
	return nil
}

// reportSARIF prints a SARIF 2.1.0 report with the parts that code scanners read.
func (t *terminal) reportSARIF(c *validation) error {
	type object = map[string]any
	text := func(s string) object { return object{"text": s} }
	rules, results, index := []object{}, []object{}, map[string]int{}
	for _, r := range slices.Concat(manifest.Rules(), skill.Rules) {
		index[r.Code] = len(rules)
		rules = append(rules, object{
			"id": r.Code, "shortDescription": text(r.Title), "fullDescription": text(r.Why),
			"help": text(cmp.Or(r.Fix, "ambit explain "+r.Code)), "defaultConfiguration": object{"level": r.Severity.String()},
		})
	}
	for _, m := range c.files {
		for _, d := range m.Diagnostics {
			message := d.Message
			if d.Hint != "" {
				message += " (hint: " + d.Hint + ")"
			}
			region := object{"startLine": d.Line, "startColumn": d.Column, "endLine": d.EndLine, "endColumn": d.EndColumn}
			place := object{"physicalLocation": object{"artifactLocation": object{"uri": fileURI(m.Path)}, "region": region}}
			if d.Pointer != "" {
				place["logicalLocations"] = []object{{"fullyQualifiedName": d.Pointer}}
			}
			results = append(results, object{
				"ruleId": d.Code, "ruleIndex": index[d.Code], "level": d.Severity.String(),
				"message": text(message), "locations": []object{place},
			})
		}
	}
	driver := object{"name": "ambit", "version": version, "rules": rules}
	run := object{"tool": object{"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
	const schema = "https://json.schemastore.org/sarif-2.1.0.json"
	return t.document(object{"$schema": schema, "version": "2.1.0", "runs": []object{run}})
}

// fileURI converts a path to a relative URI.
func fileURI(path string) string {
	query := url.QueryEscape(strings.ReplaceAll(path, `\`, "/"))
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(query)
}
