package guard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/jsonschema"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// Operator has the guardrails that the operator sets for every agent, in guardrails.json.
// The fields are those of a manifest's guardrails:
//
//	{
//	  "input": {
//	    "max_length": 100000, "deny_patterns": ["(?i)drop table"], "deny_defaults": true, "pii_redaction": ["iban"]
//	  },
//	  "output": {"on_leak": "block", "schema": {…}}
//	}
type Operator struct {
	agent.Guardrails
	// DenyDefaults switches the built-in patterns on or off. With nil they are on for
	// agents that have deny patterns.
	DenyDefaults *bool
}

// Rails are the guardrails of one agent.
type Rails struct {
	// MaxLength bounds the bytes of arguments; 0 means no bound.
	MaxLength int64
	Input     InputRules
	// OnLeak is the action on a result that contains a secret.
	OnLeak agent.OnLeak
	// Schemas must all match a result.
	Schemas []string
}

// Merge combines two sets of guardrails. The manifest can only tighten those of the
// operator: the result has the lower bound, all patterns, all categories, both schemas,
// and block rather than redact.
func Merge(operator Operator, manifest agent.Guardrails) Rails {
	r := Rails{OnLeak: agent.LeakRedact, MaxLength: operator.MaxLength}
	if n := manifest.MaxLength; n > 0 && (r.MaxLength == 0 || n < r.MaxLength) {
		r.MaxLength = n
	}
	r.Input.Deny = union(operator.DenyPatterns, manifest.DenyPatterns)
	r.Input.PII = union(operator.PII, manifest.PII)
	r.Input.DenyDefaults = len(r.Input.Deny) > 0
	if operator.DenyDefaults != nil {
		r.Input.DenyDefaults = *operator.DenyDefaults
	}
	if operator.OnLeak == agent.LeakBlock || manifest.OnLeak == agent.LeakBlock {
		r.OnLeak = agent.LeakBlock
	}
	for _, s := range []string{operator.OutputSchema, manifest.OutputSchema} {
		if s != "" && !slices.Contains(r.Schemas, s) {
			r.Schemas = append(r.Schemas, s)
		}
	}
	return r
}

// union returns the elements of both lists, in order, without duplicates.
func union(a, b []string) []string {
	var out []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// The rules that apply only to guardrails.json.
var (
	ruleOperatorPattern = diag.NewError("GR001", "a deny pattern cannot be used",
		"Deny patterns are matched against every call in linear time; this pattern cannot be.",
		"write it in RE2's syntax, without look-around and backreferences")
	ruleOperatorScan = diag.NewError("GR002", "the secret scan cannot be switched off",
		"Every result is scanned for secrets; there is no setting for it.",
		"remove the field; on_leak sets the action for a result with a secret")
	ruleOperatorSchema = diag.NewError("GR003", "the output schema cannot be used",
		"Every result would be refused.", "fix the schema")
)

// Rules are the rules of guardrails.json, besides the shared ones.
var Rules = []*diag.Rule{ruleOperatorPattern, ruleOperatorScan, ruleOperatorSchema}

// FileError reports every mistake in guardrails.json.
type FileError struct {
	Name        string
	Diagnostics []diag.Diagnostic
}

func (e *FileError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s cannot be used, so no agent is started under it:", e.Name)
	for _, d := range e.Diagnostics {
		fmt.Fprintf(&b, "\n  line %d, column %d: %s: %s", d.Line, d.Column, d.Code, d.Message)
		if d.Hint != "" {
			b.WriteString(" (" + d.Hint + ")")
		}
	}
	return b.String()
}

// ParseOperator parses guardrails.json. An unknown field is a mistake, because a
// misspelt guardrail would have no effect. The error is a *[FileError].
func ParseOperator(name string, text []byte) (Operator, error) {
	rep := diag.Open(name, string(text), true)
	p := &operatorParser{read.Reader{Reporter: rep, Unknown: diag.UnknownField}}
	var o Operator
	if tree, ok := doc.ParseJSON(rep.Source, rep); ok {
		o = p.operator(tree.Root())
	}
	if rep.Errors() > 0 {
		return Operator{}, &FileError{name, rep.Finish()}
	}
	return o, nil
}

type operatorParser struct{ read.Reader }

func (p *operatorParser) operator(root doc.Value) (out Operator) {
	o := p.Object(root)
	o.String("$schema", read.Optional)
	if v := o.Get("input", read.Optional); p.Is(v, doc.Object) {
		in := p.Object(v)
		out.MaxLength, _ = in.Int("max_length", read.Optional, 1, read.MaxInt)
		for d := range p.Strings(in.List("deny_patterns", read.Optional)) {
			if err := deny.Check(d.Text()); err != nil {
				p.Report(ruleOperatorPattern, d.Place(), "", "the pattern %s: %v", diag.Quote(d.Text()), err)
			} else if deny.MatchesEmpty(d.Text()) {
				p.Report(ruleOperatorPattern, d.Place(), "", "the pattern %s matches the empty text, so it would deny every call", diag.Quote(d.Text()))
			}
			out.DenyPatterns = append(out.DenyPatterns, d.Text())
		}
		for c := range p.Strings(in.List("pii_redaction", read.Optional)) {
			switch {
			case !p.OneOf(c, agent.PIICategories):
			case slices.Contains(out.PII, c.Text()):
				p.Report(diag.Repeated, c.Place(), "", "%s is already in the list", diag.Quote(c.Text()))
			default:
				out.PII = append(out.PII, c.Text())
			}
		}
		if b, ok := in.Bool("deny_defaults", read.Optional); ok {
			out.DenyDefaults = &b
		}
		in.Done()
	}
	if v := o.Get("output", read.Optional); p.Is(v, doc.Object) {
		rails := p.Object(v)
		onLeak, _ := rails.Enum("on_leak", read.Optional, []string{string(agent.LeakRedact), string(agent.LeakBlock)})
		out.OnLeak = agent.OnLeak(onLeak)
		if scan, ok := rails.Bool("secret_leak_scan", read.Optional); ok && !scan {
			p.Report(ruleOperatorScan, v.Get("secret_leak_scan").Place(), "", "secret_leak_scan cannot be set to false")
		}
		if s := rails.Get("schema", read.Optional); s.Ok() && jsonschema.Check(s, ruleOperatorSchema, p.Reporter) {
			out.OutputSchema = s.Raw()
		}
		rails.Done()
	}
	o.Done()
	return out
}
