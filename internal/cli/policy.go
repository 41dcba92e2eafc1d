package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

func newPolicy(t *terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policy",
		GroupID: groupDecide,
		Short:   "Write, check and test your own rules for what agents may do",
		Long: "Write, check and test your own rules for what agents may do: policy.cedar in AMBIT_HOME, in Cedar. A GPARS agent\n" +
			"may do what a rule permits and none forbids. For every other agent the manifest is the permit, and rules can only\n" +
			"forbid. A rule counts from the next call on, also in a daemon that runs.",
	}
	return group(cmd, newPolicyCheck(t), newPolicyTest(t), newPolicyInit(t))
}

// schemaFile is where the schema of a policy file is.
func schemaFile(file string) string { return strings.TrimSuffix(file, ".cedar") + ".cedarschema" }

func newPolicyCheck(t *terminal) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the rules: syntax, types, missing has, unused and shadowed ones",
		Long: "Check the rules: they are parsed and compared with the schema, and every argument counts as one that may be\n" +
			"absent. Rules that apply to nothing registered here, and rules that others leave nothing to decide, are reported too.\n" +
			"Exits 1 if there are errors, with --strict also if there are warnings.",
		Example: "  ambit policy check\n  ambit policy check new-policy.cedar --strict --json",
		Args:    atMost(1, "one file, or none"),
		RunE: func(_ *cobra.Command, args []string) error {
			h := t.home
			file := h.Policy()
			if len(args) == 1 {
				file = args[0]
			}
			return t.policyCheck(h, file, len(args) == 1, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	return cmd
}

// policyReport is what a check says.
type policyReport struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`
	Rules    int              `json:"rules"`
	Problems []policy.Problem `json:"problems"`
	Notes    []string         `json:"notes"`
}

func (t *terminal) policyCheck(h home.Home, file string, named, strict bool) error {
	report := policyReport{File: file, OK: true, Problems: []policy.Problem{}, Notes: []string{}}
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		report.Notes = append(report.Notes, "there is no policy: GPARS agents are granted nothing, and other agents are limited by their manifests alone")
		return t.policyChecked(report)
	case err != nil:
		return unreadable(file, err)
	}
	rules, err := policy.Parse(file, text)
	if err != nil {
		report.OK = false
		line, message := 0, err.Error()
		if at, ok := errors.AsType[*policy.SyntaxError](err); ok {
			line, message = at.Line, "it is not valid Cedar: "+at.What
		}
		report.Problems = append(report.Problems, policy.Problem{Code: policy.NotCedar, Severity: policy.Error, Line: line, Message: message, Hint: "fix it; until then a running ambit applies the last good rules, and one that starts allows nothing"})
		return t.policyChecked(report)
	}
	report.Rules = rules.Len()
	known, err := t.checking(h, schemaFile(file), &report)
	if err != nil {
		return err
	}
	report.Problems = append(report.Problems, rules.Check(known)...)
	for _, p := range report.Problems {
		report.OK = report.OK && p.Severity != policy.Error && !strict
	}
	if rules.LooksAtArguments() {
		report.Notes = append(report.Notes, policy.Mapping...)
	}
	return t.policyChecked(report)
}

// checking returns what the rules are compared with: the schema, the registered agents and
// the scopes.
func (t *terminal) checking(h home.Home, schema string, report *policyReport) (policy.Checking, error) {
	var c policy.Checking
	switch text, err := os.ReadFile(schema); {
	case err == nil:
		if c.Declared, err = policy.ParseSchema(schema, text); err != nil {
			report.Problems = append(report.Problems, policy.Problem{Code: policy.NotASchema, Severity: policy.Error, Message: err.Error(), Hint: "take the file away, and ambit policy init writes it anew"})
		}
	case !errors.Is(err, fs.ErrNotExist):
		return c, unreadable(schema, err)
	}
	var err error
	if c.Scopes, err = policy.ReadScopes(h.Config()); err != nil {
		return c, no("fix the file", "%w", err)
	}
	if c.Catalogue, err = catalog.Open(h); err != nil {
		return c, no("fix the file", "%w", err)
	}
	folders, err := agentFolders(h, "")
	if err != nil {
		return c, err
	}
	found, err := daemon.Find(folders...)
	if err != nil {
		return c, err
	}
	for i := range found {
		if m := found[i].Manifest; m != nil && m.Agent() != nil {
			c.Agents = append(c.Agents, policy.Known{Name: found[i].Name, Agent: m.Agent()})
		}
	}
	return c, nil
}

func (t *terminal) policyChecked(r policyReport) error {
	var err error
	if t.json {
		err = t.document(r)
	} else {
		for _, p := range r.Problems {
			style := yellow
			if p.Severity == policy.Error {
				style = red
			}
			place := diag.Printable(r.File)
			if p.Line > 0 {
				place = fmt.Sprintf("%s:%d", place, p.Line)
			}
			t.printf("%s: %s %s %s\n", place, t.paint(style, string(p.Severity)+":"), diag.Printable(p.Message), t.paint(dim, "["+p.Code+"]"))
			if p.Hint != "" {
				t.printf("  %s %s\n", t.paint(dim, "hint:"), diag.Printable(p.Hint))
			}
		}
		if r.OK {
			t.printf("%s %s in %s\n", t.paint(green, "ok:"), count(r.Rules, "rule"), diag.Printable(r.File))
		}
		for _, note := range r.Notes {
			t.notef("%s", t.paint(dim, "note: "+note))
		}
	}
	if err == nil && !r.OK {
		return errNo
	}
	return err
}

func newPolicyTest(t *terminal) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "test FILE",
		Short:   "Test the rules with a file of calls and expected verdicts",
		Long:    "Compare the verdicts of the rules with a file of calls and expected verdicts, which docs/policy.md describes.\nExits 1 if one differs.",
		Example: "  ambit policy test policy-cases.toml\n  ambit policy test policy-cases.toml --policy new-policy.cedar",
		Args:    exactly(1, "a file of cases"),
		RunE: func(_ *cobra.Command, args []string) error {
			h := t.home
			s, err := policy.ReadSuite(args[0])
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return unreadable(args[0], err)
			}
			if err != nil {
				return usage("docs/policy.md describes the file", "%w", err)
			}
			if file != "" {
				s.Policy = file
			}
			// Without its rules, every case would be judged by none.
			if _, err := os.Stat(s.Policy); s.Policy != "" && err != nil {
				return unreadable(s.Policy, err)
			}
			o := policyOptions(h)
			o.Log = func(message string) { t.alertf("%s", diag.Printable(message)) }
			return t.policyTested(s.Run(o))
		},
	}
	cmd.Flags().StringVar(&file, "policy", "", "test this `file` of rules instead of the one that the cases name")
	return cmd
}

func (t *terminal) policyTested(outcomes []policy.Outcome) error {
	failed := 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.OK {
			continue
		}
		failed++
		if t.json {
			continue
		}
		t.printf("%s %s: %s\n", t.paint(red, "failed:"), diag.Printable(o.Name), diag.Printable(o.Problem))
		for _, r := range o.Reasons {
			t.printf("  %s\n", diag.Printable(r.Detail))
		}
	}
	var err error
	if t.json {
		err = t.document(map[string]any{"ok": failed == 0, "passed": len(outcomes) - failed, "failed": failed, "cases": outcomes})
	} else {
		style := green
		if failed > 0 {
			style = red
		}
		t.printf("%s\n", t.paint(style, fmt.Sprintf("%s, %d failed", count(len(outcomes), "case"), failed)))
	}
	if err == nil && failed > 0 {
		return errNo
	}
	return err
}

func newPolicyInit(t *terminal) *cobra.Command {
	var printSchema bool
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Write a policy to start from, and the schema of what rules can speak of",
		Long:    "Write policy.cedar and policy.cedarschema in AMBIT_HOME. Existing files are left as they are.",
		Example: "  ambit policy init\n  ambit policy init --print-schema",
		Args:    exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if printSchema {
				return t.say(map[string]any{"schema": policy.Schema}, "%s", policy.Schema)
			}
			h := t.home
			return t.policyInit(h)
		},
	}
	cmd.Flags().BoolVar(&printSchema, "print-schema", false, "print the schema and write nothing")
	return cmd
}

func (t *terminal) policyInit(h home.Home) error {
	if err := t.checkOwner("only the owner may write a policy"); err != nil {
		return err
	}
	written, kept := []string{}, []string{}
	for _, one := range []struct{ file, text string }{{h.Policy(), policy.Starter}, {schemaFile(h.Policy()), policy.Schema}} {
		made, err := makeFile(one.file, one.text)
		switch {
		case err != nil:
			return err
		case made:
			written = append(written, one.file)
		default:
			kept = append(kept, one.file)
		}
	}
	return t.show(map[string]any{"policy": h.Policy(), "schema": schemaFile(h.Policy()), "written": written, "kept": kept}, func() {
		for _, file := range written {
			t.printf("%s %s\n", t.paint(green, "written:"), file)
		}
		for _, file := range kept {
			t.printf("%s %s\n", t.paint(dim, "kept:"), file)
		}
	})
}

// makeFile writes a file that is not there yet, and reports whether it did.
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
