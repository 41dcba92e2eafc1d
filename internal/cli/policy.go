package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

func newPolicy(t *terminal) *cobra.Command {
	return group(&cobra.Command{Use: "policy"}, newPolicyCheck(t), newPolicyTest(t), newPolicyInit(t))
}

// schemaFile returns the path of the schema for a policy file.
func schemaFile(file string) string { return strings.TrimSuffix(file, ".cedar") + ".cedarschema" }

func newPolicyCheck(t *terminal) *cobra.Command {
	var strict bool
	cmd := verb("check [FILE]", atMost(1, "one file, or none"), func(ctx context.Context, args []string) error {
		report, err := t.policyCheck(ctx, args)
		if err != nil {
			return err
		}
		for _, p := range report.Problems {
			report.OK = report.OK && p.Severity != policy.Error && !strict
		}
		return t.judge(report.OK, report, func() { t.policyChecked(report) })
	})
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	return cmd
}

// policyReport is the result of "ambit policy check". With --json, it is printed as the JSON document.
type policyReport struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`
	Rules    int              `json:"rules"`
	Problems []policy.Problem `json:"problems"`
	Notes    []string         `json:"notes"`
}

// policyCheck checks the given policy file. If no file is given, it checks the policy file in the home folder.
func (t *terminal) policyCheck(ctx context.Context, named []string) (policyReport, error) {
	report := policyReport{File: t.home.Policy(), OK: true, Problems: []policy.Problem{}, Notes: []string{}}
	if len(named) > 0 {
		report.File = named[0]
	}
	text, err := readBounded(report.File)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(named) == 0:
		report.Notes = append(report.Notes, "there is no policy file, so "+
			"GPARS agents are granted nothing, and other agents are limited only by their manifests")
		return report, nil
	case err != nil:
		return report, unreadable(report.File, err)
	}
	rules, err := policy.Parse(report.File, text)
	if err != nil {
		p := policy.Problem{Code: policy.NotCedar, Severity: policy.Error, Message: err.Error()}
		if at, ok := errors.AsType[*policy.SyntaxError](err); ok {
			p.Line, p.Message = at.Line, "the file is not valid Cedar: "+at.What
		}
		p.Hint = "fix the file; until then, ambit uses the last valid rules, but after a restart it allows nothing"
		report.Problems = append(report.Problems, p)
		return report, nil
	}
	report.Rules = rules.Len()
	known, err := t.checkAgainst(ctx, &report)
	if err != nil {
		return report, err
	}
	report.Problems = append(report.Problems, rules.Check(known)...)
	if rules.LooksAtArguments() {
		report.Notes = append(report.Notes, policy.Mapping...)
	}
	return report, nil
}

// checkAgainst returns the data for checking policy rules: the schema, the installed agents and the scopes. If the
// schema is invalid, checkAgainst adds a problem to the report.
func (t *terminal) checkAgainst(ctx context.Context, report *policyReport) (c policy.Checking, err error) {
	schema := schemaFile(report.File)
	switch text, err := readBounded(schema); {
	case err == nil:
		if c.Declared, err = policy.ParseSchema(schema, text); err != nil {
			report.Problems = append(report.Problems, policy.Problem{
				Code: policy.NotASchema, Severity: policy.Error, Message: err.Error(),
				Hint: "delete the file and run: ambit policy init",
			})
		}
	case !errors.Is(err, fs.ErrNotExist):
		return c, unreadable(schema, err)
	}
	if c.Scopes, err = policy.ReadScopes(t.home.Config()); err == nil {
		c.Catalogue, err = catalog.Open(t.home)
	}
	if err != nil {
		return c, no("fix the file named in the message", "%w", err)
	}
	folders, err := knownFolders(ctx, t.home)
	if err != nil {
		return c, err
	}
	found, err := agentsIn(manifest.Options{}, folders...)
	c.Agents = each(found, func(f daemon.Found) policy.Known {
		return policy.Known{Name: f.Name, Agent: f.Manifest.Agent()}
	})
	return c, err
}

func (t *terminal) policyChecked(r policyReport) {
	for _, p := range r.Problems {
		style := yellow
		if p.Severity == policy.Error {
			style = red
		}
		place := diag.Printable(r.File)
		if p.Line > 0 {
			place = fmt.Sprintf("%s:%d", place, p.Line)
		}
		severity, code := t.paint(style, string(p.Severity)+":"), t.paint(dim, "["+p.Code+"]")
		t.printf("%s: %s %s %s\n", place, severity, diag.Printable(p.Message), code)
		if p.Hint != "" {
			t.printf("  %s %s\n", t.paint(dim, "hint:"), diag.Printable(p.Hint))
		}
	}
	if r.OK {
		t.printf("%s %s in %s\n", t.paint(green, "ok:"), count(r.Rules, "rule"), diag.Printable(r.File))
	}
	for _, note := range r.Notes {
		t.remarkf("note: %s", note)
	}
}

func newPolicyTest(t *terminal) *cobra.Command {
	var file string
	cmd := verb("test FILE", exactly(1, "a file with test cases"), func(_ context.Context, args []string) error {
		s, err := policy.ReadSuite(args[0])
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return unreadable(args[0], err)
		}
		if err != nil {
			return usage("docs/policy.md describes the format of the file", "%w", err)
		}
		if file != "" {
			s.Policy = file
		}
		// Without this check, a missing policy file would be treated as a policy without rules.
		if _, err := os.Stat(s.Policy); s.Policy != "" && err != nil {
			return unreadable(s.Policy, err)
		}
		o := policyOptions(t.home)
		o.Log = func(message string) { t.alertf("%s", diag.Printable(message)) }
		return t.policyTested(s.Run(o))
	})
	cmd.Flags().StringVar(&file, "policy", "", "test this policy `file` instead of the one named in the test cases")
	return cmd
}

func (t *terminal) policyTested(outcomes []policy.Outcome) error {
	bad := slices.DeleteFunc(slices.Clone(outcomes), func(o policy.Outcome) bool { return o.OK })
	failed := len(bad)
	doc := map[string]any{"ok": failed == 0, "passed": len(outcomes) - failed, "failed": failed, "cases": outcomes}
	return t.judge(failed == 0, doc, func() {
		style := green
		for _, o := range bad {
			style = red
			t.printf("%s %s: %s\n", t.paint(red, "failed:"), diag.Printable(o.Name), diag.Printable(o.Problem))
			for _, r := range o.Reasons {
				t.printf("  %s\n", diag.Printable(r.Detail))
			}
		}
		t.printf("%s\n", t.paint(style, fmt.Sprintf("%s, %d failed", count(len(outcomes), "case"), failed)))
	})
}

func newPolicyInit(t *terminal) *cobra.Command {
	var printSchema bool
	cmd := verb("init", exactly(0, "no arguments"), func(context.Context, []string) error {
		if printSchema {
			return t.say(map[string]any{"schema": policy.Schema}, "%s", policy.Schema)
		}
		return t.policyInit()
	})
	cmd.Flags().BoolVar(&printSchema, "print-schema", false, "print the schema and write nothing")
	return cmd
}

func (t *terminal) policyInit() error {
	if err := t.checkOwner("only the owner may write a policy"); err != nil {
		return err
	}
	written, kept := []string{}, []string{}
	rules, schema := t.home.Policy(), schemaFile(t.home.Policy())
	for _, f := range []struct{ name, text string }{{rules, policy.Starter}, {schema, policy.Schema}} {
		made, err := makeFile(f.name, f.text)
		switch {
		case err != nil:
			return err
		case made:
			written = append(written, f.name)
		default:
			kept = append(kept, f.name)
		}
	}
	return t.show(map[string]any{"policy": rules, "schema": schema, "written": written, "kept": kept}, func() {
		for _, file := range written {
			t.printf("%s %s\n", t.paint(green, "written:"), file)
		}
		for _, file := range kept {
			t.printf("%s %s\n", t.paint(dim, "kept:"), file)
		}
	})
}

// makeFile creates a file if it does not exist. It reports whether it created the file.
func makeFile(file, text string) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(text)
	return true, errors.Join(err, f.Close())
}
