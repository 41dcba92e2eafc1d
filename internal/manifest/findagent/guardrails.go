package findagent

import (
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/jsonschema"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// Bounds on deny_patterns, which are matched against every call.
const (
	maxPatterns     = 100
	maxPatternBytes = 1000
)

func (p *parser) guardrails(o *read.Object) *Guardrails {
	v := o.Get("guardrails", read.Optional)
	if !p.Is(v, doc.Object) {
		return nil
	}
	g := &Guardrails{}
	rails := p.Object(v)
	if in := rails.Get("input", read.Optional); p.Is(in, doc.Object) {
		g.Input = p.inputRails(in)
	}
	if out := rails.Get("output", read.Optional); p.Is(out, doc.Object) {
		g.Output = p.outputRails(out)
	}
	if actions := rails.Get("actions", read.Optional); p.Is(actions, doc.Object) {
		g.Actions = make(map[string]ActionRails, actions.Len())
		for a := range actions.Each() {
			g.Actions[a.Key()] = p.actionRails(a)
		}
	}
	rails.Done()
	return g
}

func (p *parser) inputRails(v doc.Value) *InputRails {
	o := p.Object(v)
	in := &InputRails{}
	in.MaxLength, _ = o.Int("max_length", read.Optional, 1, read.MaxInt)
	if list := o.List("deny_patterns", read.Optional); list.Len() > maxPatterns {
		p.Report(ruleDenyLimit, list.Head(), "", "there are %d patterns; there can be at most %d", list.Len(), maxPatterns)
	} else {
		if list.Len() > 0 {
			in.DenyPatterns = p.Room(list.Len())
		}
		for d := range p.Strings(list) {
			if p.denyPattern(d) {
				in.DenyPatterns = append(in.DenyPatterns, d.Text())
			}
		}
	}
	categories := o.List("pii_redaction", read.Optional)
	if categories.Len() > 0 {
		in.PIIRedaction = p.Room(min(categories.Len(), len(agent.PIICategories)))
	}
	for c := range p.Strings(categories) {
		switch {
		case !p.OneOf(c, agent.PIICategories):
		case slices.Contains(in.PIIRedaction, c.Text()):
			p.Report(diag.Repeated, c.Place(), "", "%s is already in the list", diag.Quote(c.Text()))
		default:
			in.PIIRedaction = append(in.PIIRedaction, c.Text())
		}
	}
	o.Done()
	return in
}

// denyPattern reads a pattern as the guard will: letter case does not count.
func (p *parser) denyPattern(v doc.Value) bool {
	expr := v.Text()
	if len(expr) > maxPatternBytes {
		p.Report(ruleDenyLimit, v.Place(), "", "the pattern has %d bytes; it can have at most %d", len(expr), maxPatternBytes)
		return false
	}
	if goodPatterns.has(expr) {
		return true
	}
	re, err := jsonschema.ParsePattern(expr, syntax.Perl|syntax.FoldCase)
	switch {
	case err != nil:
		what, hint := jsonschema.PatternProblem(expr, err)
		p.Report(ruleDenyPattern, v.Place(), hint, "the pattern %s %s", diag.Quote(expr), what)
	case expr == "":
		p.Report(ruleDenyAll, v.Place(), "", "an empty pattern would deny every call")
	case jsonschema.MatchesEmpty(re):
		p.Report(ruleDenyAll, v.Place(), "", "the pattern %s matches the empty text, so it would deny every call", diag.Quote(expr))
	default:
		goodPatterns.add(expr)
		return true
	}
	return false
}

// goodPatterns are patterns that were found good: the same few appear in many
// manifests, and reading one costs as much as all the rest of its manifest's
// guardrails.
var goodPatterns patternSet

// patternSet is a bounded set; when it is full it starts again.
type patternSet struct {
	mu  sync.Mutex
	set map[string]bool
}

const maxGoodPatterns = 256

func (s *patternSet) has(expr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set[expr]
}

func (s *patternSet) add(expr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil || len(s.set) >= maxGoodPatterns {
		s.set = make(map[string]bool)
	}
	s.set[strings.Clone(expr)] = true // a clone, not to keep a whole manifest
}

func (p *parser) outputRails(v doc.Value) *OutputRails {
	o := p.Object(v)
	out := &OutputRails{}
	if scan, ok := o.Bool("secret_leak_scan", read.Optional); ok {
		if out.SecretLeakScan = &scan; !scan {
			p.Report(ruleLeakScanOff, v.Get("secret_leak_scan").Place(), "", "secret_leak_scan is mandatory and cannot be set to false")
		}
	}
	out.Schema = p.schema(o.Get("schema", read.Optional))
	out.OnLeak, _ = o.Enum("on_leak", read.Optional, []string{"redact", "block"})
	o.Done()
	return out
}

// actionRails reads the rails of the tool that v is keyed by.
func (p *parser) actionRails(v doc.Value) ActionRails {
	var a ActionRails
	in := p.tools.get(v.Key())
	if in == nil {
		p.Report(rulePolicyTool, v.KeyPlace(), p.meant(v.Key(), p.tools.names), "there is no tool %s", diag.Quote(v.Key()))
	}
	o := p.Object(v)
	a.Approval, _ = o.Enum("approval", read.Optional, []string{"none", "human"})
	if amount := o.Get("max_amount", read.Optional); amount.Ok() {
		a.MaxAmount = p.maxAmount(amount)
		if in != nil && !in.has("amount") {
			p.Report(ruleNoAmount, amount.KeyPlace(), "", `the tool's input has no "amount", so every call will be refused`)
		}
	}
	if rate, ok := o.String("rate_limit", read.Optional); ok {
		a.RateLimit = rate
		if _, ok := parseRate(rate); !ok {
			p.Report(ruleRate, v.Get("rate_limit").Place(), rateHint(rate), "%s is not a rate", diag.Quote(rate))
		}
	}
	if idempotent, ok := o.Bool("idempotent", read.Optional); ok {
		a.Idempotent = &idempotent
	}
	o.Done()
	return a
}

// parseRate reads N/unit.
func parseRate(s string) (agent.Rate, bool) {
	n, unit, _ := strings.Cut(s, "/")
	per, ok := agent.RateUnits[unit]
	if !ok || len(n) > 9 || !isWord(n, func(c byte) bool { return isDigit(c) && c != '0' }, isDigit) {
		return agent.Rate{}, false
	}
	calls, _ := strconv.ParseInt(n, 10, 64) // nine digits
	return agent.Rate{Count: calls, Per: per}, true
}

// Other ways to write the windows of a rate.
var rateWords = map[string]string{
	"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour", "d": "day",
}

func rateHint(s string) string {
	n, unit, ok := strings.Cut(strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(s, " ", ""), "per", "/")), "/")
	unit = strings.TrimSuffix(strings.TrimPrefix(unit, "1"), "s")
	if known := rateWords[unit]; known != "" {
		unit = known
	}
	if fixed := n + "/" + unit; ok {
		if _, ok := parseRate(fixed); ok {
			return "write " + diag.Quote(fixed)
		}
	}
	return ""
}

// maxAmount reads a cap: a number for one call, or an object.
func (p *parser) maxAmount(v doc.Value) *MaxAmount {
	m := &MaxAmount{}
	if v.Is(doc.Number) {
		m.PerCall = p.amount(v)
		return m
	}
	if !v.Is(doc.Object) {
		hint := ""
		if v.Is(doc.String) && isDecimal(v.Text()) {
			hint = "write the number without quotes"
		}
		p.Report(ruleAmount, v.Place(), hint, `"max_amount" must be a number or an object, not %s`, v.Kind())
		return nil
	}
	o := p.Object(v)
	if per := o.Get("per_call", read.Optional); per.Ok() {
		m.PerCall = p.amount(per)
	}
	if per := o.Get("per_day", read.Optional); per.Ok() {
		m.PerDay = p.amount(per)
	}
	if currency, ok := o.String("currency", read.Optional); ok {
		if m.Currency = currency; len(currency) != 3 || !isWord(currency, isUpper, isUpper) {
			p.Report(ruleAmount, v.Get("currency").Place(), `write its three capital letters, such as "EUR"`, "%s is not a currency", diag.Quote(currency))
		}
	}
	o.Done()
	if !v.Get("per_call").Ok() && !v.Get("per_day").Ok() {
		p.Report(ruleAmount, v.Head(), `add "per_call" or "per_day"`, "max_amount caps nothing")
	}
	return m
}

// amount reads a decimal, written as a number or as a text.
func (p *parser) amount(v doc.Value) string {
	switch {
	case (v.Is(doc.Number) || v.Is(doc.String)) && isDecimal(v.Text()):
		return v.Text()
	case v.Is(doc.Number) && strings.HasPrefix(v.Text(), "-"):
		p.Report(ruleAmount, v.Place(), "", "an amount cannot be negative")
	case v.Is(doc.Number):
		p.Report(ruleAmount, v.Place(), "write all digits out", "an amount has no exponent")
	case v.Is(doc.String):
		p.Report(ruleAmount, v.Place(), `write it as "100.00"`, "%s is not a decimal", diag.Quote(v.Text()))
	default:
		p.Report(ruleAmount, v.Place(), "", "%s must be a number or a decimal text, not %s", diag.Quote(v.Key()), v.Kind())
	}
	return ""
}

// isDecimal takes 0, 12 and 12.50: digits without a sign, an exponent or
// leading zeros, at most 40 characters.
func isDecimal(s string) bool {
	whole, fraction, dot := strings.Cut(s, ".")
	return len(s) <= 40 && isWord(whole, isDigit, isDigit) && (whole == "0" || whole[0] != '0') &&
		(!dot || isWord(fraction, isDigit, isDigit))
}
