package guard

import (
	"cmp"
	_ "embed"
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

// Operator contains the guardrails that the operator sets for every agent, in guardrails.json. The file has the
// same fields as the guardrails of a manifest, plus deny_defaults:
//
//	{
//	  "input": {
//	    "max_length": 100000, "deny_patterns": ["(?i)drop table"], "deny_defaults": true, "pii_redaction": ["iban"]
//	  },
//	  "output": {"on_leak": "block", "on_result": "redact", "on_injection": "redact", "schema": {…}},
//	  "flow": {"mode": "ask", "tools": {"post_message": "off"}},
//	  "approval": {"tools": ["send_message"], "agents": ["mail"]}
//	}
type Operator struct {
	agent.Guardrails
	// DenyDefaults switches the built-in patterns on or off. If DenyDefaults is nil, the built-in patterns are on only
	// for agents that have other deny patterns. Results are searched for the built-in patterns if OnInjection is set,
	// or if DenyDefaults is nil or true.
	DenyDefaults *bool
	// Flow contains the rules for calls whose arguments come from untrusted text.
	Flow FlowRules
	// Approval contains the rules for calls that a person must approve, in addition to those in the manifest.
	Approval ApprovalRules
}

// ApprovalRules is the member "approval" of guardrails.json. It is useful for agents that other people wrote, and for
// dialects whose manifests cannot require approval.
type ApprovalRules struct {
	// Tools contains names of tools, such as write_file or filesystem/write_file. A person must approve every call to
	// these tools, by any agent.
	Tools []string
	// Agents contains names of agents. A person must approve every call of these agents that has an effect.
	Agents []string
}

// Asks reports whether the rules require a person to approve the agent's calls to the tool.
func (r ApprovalRules) Asks(agentName string, t *agent.Tool) bool {
	return slices.ContainsFunc(r.Tools, func(name string) bool { return Names(name, t) }) ||
		t.SideEffect != agent.Read && slices.Contains(r.Agents, agentName)
}

// Names reports whether a name in the operator's guardrails refers to the tool. The name can be the tool's own name,
// its name after the alias of its server, as in filesystem/write_file, or its URI.
func Names(name string, t *agent.Tool) bool {
	if name == t.Name || t.URI != nil && name == t.URI.String() {
		return true
	}
	on, ok := t.Binding.(agent.OnServer)
	return ok && name == on.Alias+"/"+t.Name
}

// FlowRules is the member "flow" of guardrails.json:
//
//	{"flow": {"mode": "ask", "strict": false, "tools": {"post_message": "off"}, "agents": {"mail": "deny"}}}
type FlowRules struct {
	// Mode is FlowAsk, FlowDeny, FlowOff, or empty for FlowAsk. Tools and Agents override the mode for single tools and
	// agents, by name. The mode of a tool takes precedence.
	Mode          string
	Tools, Agents map[string]string
	// If Strict is set, every destination and identifier without a known origin is treated as untrusted.
	Strict bool
}

// The modes of FlowRules. With FlowOff, the calls of a tool are not checked and its results are not recorded.
const (
	FlowAsk  = "ask"
	FlowDeny = "deny"
	FlowOff  = "off"
)

var flowModes = []string{FlowAsk, FlowDeny, FlowOff}

// Rails contains the guardrails of one agent.
type Rails struct {
	// MaxLength is the maximum size of the arguments in bytes; 0 means no limit.
	MaxLength int64
	Input     InputRules
	// OnLeak is the action for a result that contains a secret.
	OnLeak agent.OnLeak
	// OnResult decides whether the categories in Input.PII are also redacted from results.
	OnResult agent.OnResult
	// OnInjection is the action for a result that contains an injection. If it is empty, results are not searched.
	OnInjection agent.OnInjection
	// Schemas lists the JSON Schemas that every result must match.
	Schemas []string
}

// Merge combines the guardrails of the operator and of a manifest. A manifest can only tighten the operator's
// guardrails. The result has the lower size limit, the patterns and categories of both, and both schemas. It blocks
// leaks if the operator or the manifest does. The same applies to redacting personal data from results. For injections,
// the stricter action wins.
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
	r.OnResult = cmp.Or(operator.OnResult, manifest.OnResult)
	r.OnInjection = stricter(operator.OnInjection, manifest.OnInjection)
	if r.OnInjection == "" && (operator.DenyDefaults == nil || *operator.DenyDefaults) {
		r.OnInjection = agent.InjectionMark
	}
	for _, s := range []string{operator.OutputSchema, manifest.OutputSchema} {
		if s != "" && !slices.Contains(r.Schemas, s) {
			r.Schemas = append(r.Schemas, s)
		}
	}
	return r
}

func union(a, b []string) []string {
	var out []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

//go:embed rules.txt
var rulesText string

// Rules lists the diagnostic rules that apply only to guardrails.json.
var Rules = diag.ParseRules(rulesText)

var (
	ruleOperatorPattern = Rules.Get("GR001")
	ruleOperatorScan    = Rules.Get("GR002")
	ruleOperatorSchema  = Rules.Get("GR003")
)

// FileError reports every mistake in guardrails.json.
type FileError struct {
	Name        string
	Diagnostics []diag.Diagnostic
}

func (e *FileError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s cannot be used, so no agent can start:", e.Name)
	for i, d := range e.Diagnostics {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " line %d, column %d: %s: %s", d.Line, d.Column, d.Code, d.Message)
		if d.Hint != "" {
			b.WriteString(" (" + d.Hint + ")")
		}
	}
	return b.String()
}

// ParseOperator parses guardrails.json. It rejects unknown fields, because a misspelt guardrail would have no effect.
// The error is a *[FileError].
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
				p.Report(ruleOperatorPattern, d.Place(), "", "the pattern %s matches the empty string, so it denies every call",
					diag.Quote(d.Text()))
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
		onResult, _ := rails.Enum("on_result", read.Optional, []string{string(agent.ResultRedact)})
		out.OnResult = agent.OnResult(onResult)
		onInjection, _ := rails.Enum("on_injection", read.Optional, agent.InjectionActions)
		out.OnInjection = agent.OnInjection(onInjection)
		if scan, ok := rails.Bool("secret_leak_scan", read.Optional); ok && !scan {
			p.Report(ruleOperatorScan, v.Get("secret_leak_scan").Place(), "", "secret_leak_scan cannot be set to false")
		}
		if s := rails.Get("schema", read.Optional); s.Ok() && jsonschema.Check(s, ruleOperatorSchema, p.Reporter) {
			out.OutputSchema = s.Raw()
		}
		rails.Done()
	}
	if v := o.Get("flow", read.Optional); p.Is(v, doc.Object) {
		f := p.Object(v)
		out.Flow.Mode, _ = f.Enum("mode", read.Optional, flowModes)
		out.Flow.Strict, _ = f.Bool("strict", read.Optional)
		out.Flow.Tools = p.modes(f.Get("tools", read.Optional))
		out.Flow.Agents = p.modes(f.Get("agents", read.Optional))
		f.Done()
	}
	if v := o.Get("approval", read.Optional); p.Is(v, doc.Object) {
		a := p.Object(v)
		for name := range p.Strings(a.List("tools", read.Optional)) {
			out.Approval.Tools = append(out.Approval.Tools, name.Text())
		}
		for name := range p.Strings(a.List("agents", read.Optional)) {
			out.Approval.Agents = append(out.Approval.Agents, name.Text())
		}
		a.Done()
	}
	o.Done()
	return out
}

// modes reads an object that maps names to modes of FlowRules.
func (p *operatorParser) modes(v doc.Value) map[string]string {
	if !p.Is(v, doc.Object) {
		return nil
	}
	out := map[string]string{}
	for mode := range v.Each() {
		if p.Is(mode, doc.String) && p.OneOf(mode, flowModes) {
			out[mode.Key()] = mode.Text()
		}
	}
	return out
}
