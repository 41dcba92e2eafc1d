package findagent

import (
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/jsonschema"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// The number and length of deny_patterns are limited, because every pattern is matched against every call.
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
		p.Report(ruleDenyLimit, list.Head(), "", "there are %d patterns, but at most %d are allowed", list.Len(), maxPatterns)
	} else {
		if list.Len() > 0 {
			in.DenyPatterns = p.MakeStrings(list.Len())
		}
		for d := range p.Strings(list) {
			if p.denyPattern(d) {
				in.DenyPatterns = append(in.DenyPatterns, d.Text())
			}
		}
	}
	isCategory := func(v doc.Value) bool { return p.OneOf(v, agent.PIICategories) }
	in.PIIRedaction = p.Distinct(o.List("pii_redaction", read.Optional), isCategory)
	o.Done()
	return in
}

// denyPattern reports whether a value is a usable pattern. If not, it records a diagnostic. Like the runtime,
// denyPattern treats patterns as case-insensitive.
func (p *parser) denyPattern(v doc.Value) bool {
	expr := v.Text()
	if len(expr) > maxPatternBytes {
		p.Report(ruleDenyLimit, v.Place(), "", "the pattern has %d bytes, but at most %d are allowed", len(expr),
			maxPatternBytes)
		return false
	}
	if goodPatterns.has(expr) {
		return true
	}
	var machine *regexp.Regexp
	_, err := jsonschema.ParsePattern(expr, syntax.Perl|syntax.FoldCase)
	if err == nil {
		machine, err = regexp.Compile("(?i)" + expr)
	}
	switch {
	case err != nil:
		what, hint := jsonschema.PatternProblem(expr, err)
		p.Report(ruleDenyPattern, v.Place(), hint, "the pattern %s %s", diag.Quote(expr), what)
	case expr == "":
		p.Report(ruleDenyAll, v.Place(), "", "an empty pattern would deny every call")
	case machine.MatchString(""):
		p.Report(ruleDenyAll, v.Place(), "", "the pattern %s matches the empty string, so it would deny every call",
			diag.Quote(expr))
	default:
		goodPatterns.add(expr)
		return true
	}
	return false
}

// goodPatterns caches usable patterns, because the same few patterns appear in many manifests. Compiling one pattern
// takes as long as parsing all other guardrails of a manifest.
var goodPatterns patternSet

// patternSet is a set of at most maxGoodPatterns patterns. When the set is full, it is emptied.
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
	s.set[strings.Clone(expr)] = true // clone expr, because a substring would keep the whole manifest in memory
}

func (p *parser) outputRails(v doc.Value) *OutputRails {
	o := p.Object(v)
	out := &OutputRails{}
	if scan, ok := o.Bool("secret_leak_scan", read.Optional); ok {
		if out.SecretLeakScan = &scan; !scan {
			p.Report(ruleLeakScanOff, v.Get("secret_leak_scan").Place(), "",
				"secret_leak_scan is mandatory and cannot be set to false")
		}
	}
	out.Schema = p.schema(o.Get("schema", read.Optional))
	out.OnLeak, _ = o.Enum("on_leak", read.Optional, []string{"redact", "block"})
	out.OnResult, _ = o.Enum("on_result", read.Optional, []string{"redact"})
	out.OnInjection, _ = o.Enum("on_injection", read.Optional, agent.InjectionActions)
	o.Done()
	return out
}

// actionRails parses the guardrails of one tool. In the manifest, the tool's name is the key, and v is the value.
func (p *parser) actionRails(v doc.Value) ActionRails {
	var a ActionRails
	in := p.tools[v.Key()]
	if in == nil {
		p.Report(rulePolicyTool, v.KeyPlace(), p.DidYouMean(v.Key(), names(p.tools)), "there is no tool %s",
			diag.Quote(v.Key()))
	}
	o := p.Object(v)
	a.Approval, _ = o.Enum("approval", read.Optional, []string{"none", "human"})
	if amount := o.Get("max_amount", read.Optional); amount.Ok() {
		a.MaxAmount = p.maxAmount(amount)
		if in != nil && !in.hasInput("amount") {
			p.Report(ruleNoAmount, amount.KeyPlace(), "", `the tool's input has no "amount", so ambit will refuse every call`)
		}
	}
	if rate, ok := o.String("rate_limit", read.Optional); ok {
		a.RateLimit = rate
		if _, ok := parseRate(rate); !ok {
			p.Report(ruleRate, v.Get("rate_limit").Place(), rateHint(rate), "%s is not a valid rate", diag.Quote(rate))
		}
	}
	if idempotent, ok := o.Bool("idempotent", read.Optional); ok {
		a.Idempotent = &idempotent
	}
	o.Done()
	return a
}

// parseRate parses a rate of the form N/unit, such as 10/hour.
func parseRate(s string) (agent.Rate, bool) {
	n, unit, _ := strings.Cut(s, "/")
	per, ok := agent.RateUnits[unit]
	if !ok || len(n) > 9 || !isWord(n, func(c byte) bool { return isDigit(c) && c != '0' }, isDigit) {
		return agent.Rate{}, false
	}
	calls, _ := strconv.ParseInt(n, 10, 64) // nine digits cannot overflow
	return agent.Rate{Count: calls, Per: per}, true
}

// rateWords maps common abbreviations to the units of a rate.
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

// maxAmount parses max_amount. The value is an object or a number. A number is the maximum amount per call.
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
			p.Report(ruleAmount, v.Get("currency").Place(), `write a code of three capital letters, such as "EUR"`,
				"%s is not a currency", diag.Quote(currency))
		}
	}
	o.Done()
	if !v.Get("per_call").Ok() && !v.Get("per_day").Ok() {
		p.Report(ruleAmount, v.Head(), `add "per_call" or "per_day"`, "max_amount has no limit")
	}
	return m
}

// amount parses a decimal that is written as a number or as a string.
func (p *parser) amount(v doc.Value) string {
	switch {
	case (v.Is(doc.Number) || v.Is(doc.String)) && isDecimal(v.Text()):
		return v.Text()
	case v.Is(doc.Number) && strings.HasPrefix(v.Text(), "-"):
		p.Report(ruleAmount, v.Place(), "", "an amount cannot be negative")
	case v.Is(doc.Number):
		p.Report(ruleAmount, v.Place(), "write all digits: 1000, not 1e3", "an amount cannot have an exponent")
	case v.Is(doc.String):
		p.Report(ruleAmount, v.Place(), `write a decimal such as "100.00"`, "%s is not a decimal", diag.Quote(v.Text()))
	default:
		p.Report(ruleAmount, v.Place(), "", "%s must be a number or a decimal string, not %s", diag.Quote(v.Key()), v.Kind())
	}
	return ""
}

// isDecimal reports whether a string is a decimal such as 0, 12 or 12.50. Signs, exponents, leading zeros and more
// than 40 characters are not allowed.
func isDecimal(s string) bool {
	whole, fraction, dot := strings.Cut(s, ".")
	return len(s) <= 40 && isWord(whole, isDigit, isDigit) && (whole == "0" || whole[0] != '0') &&
		(!dot || isWord(fraction, isDigit, isDigit))
}
