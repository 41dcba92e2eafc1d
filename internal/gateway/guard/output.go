package guard

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// The names of the stages in refusals.
const (
	StageIn  = "guard in"
	StageOut = "guard out"
)

// OutputRules are the guardrails of results. The zero rules scan and redact.
type OutputRules struct {
	// OnLeak is the action on a secret; empty means redact.
	OnLeak agent.OnLeak
	// Known are the credentials that ambit holds. The scan finds them in any encoding.
	Known []Known
}

// Known is a credential that ambit holds.
type Known struct {
	// Name is the name of the slot or variable. It appears in findings and placeholders.
	Name  string
	Value string
}

// Output checks results.
type Output struct {
	block bool
	known *secret.Known
	views sync.Pool
}

// NewOutput compiles rules. The scan itself cannot be switched off.
func NewOutput(rules OutputRules) (*Output, error) {
	o := &Output{block: rules.OnLeak == agent.LeakBlock}
	if rules.OnLeak != "" && rules.OnLeak != agent.LeakRedact && rules.OnLeak != agent.LeakBlock {
		return nil, fmt.Errorf("on_leak must be redact or block, not %q", rules.OnLeak)
	}
	values := make([]secret.Value, len(rules.Known))
	for i, k := range rules.Known {
		values[i] = secret.Value{Name: label(k.Name), Secret: k.Value}
	}
	known, err := secret.NewKnown(values)
	if err != nil {
		return nil, fmt.Errorf("credentials to search for: %w", err)
	}
	o.known = known
	o.views.New = func() any { return new(view.View) }
	return o, nil
}

// label returns a name that is valid in a JSON string and a placeholder.
func label(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name[:min(len(name), 64)])
	if name == "" {
		return "credential"
	}
	return name
}

// Check scans a whole result: text, structured content, errors, resources and decoded
// base64. A clean result is returned as the same slice. Depending on the rules, each
// secret is replaced by its name or the result is refused. A result that cannot be
// scanned is refused.
func (o *Output) Check(result jsontext.Value) (out jsontext.Value, findings []Finding, refusal *call.Refusal) {
	defer func() {
		if r := recover(); r != nil {
			out, refusal = nil, withheld("the result could not be scanned for secrets, so it is withheld")
		}
	}()
	out = result
	// The text around a redacted secret can look like another secret, so the result is
	// scanned again.
	for range 4 {
		matches, err := o.scan(out)
		if err != nil {
			return nil, findings, withheld("the result could not be scanned for secrets, so it is withheld: %v", err)
		}
		edits := make([]edit, len(matches))
		for i, m := range matches {
			edits[i] = edit{Secret, m.Rule, m.Start, m.End}
		}
		if len(edits) == 0 {
			if edits, err = o.split(out); err != nil {
				return nil, findings, withheld("the result could not be scanned for secrets, so it is withheld: %v", err)
			}
		}
		if len(edits) == 0 {
			return out, findings, nil
		}
		next, found, err := rewrite(out, edits, o.blob)
		findings = append(findings, found...)
		switch {
		case err != nil:
			return nil, findings, withheld("the result contains a secret and could not be redacted, so it is withheld: %v", err)
		case len(found) == 0:
			return nil, findings, withheld("the result contains a secret whose position is unknown, so it is withheld")
		case o.block:
			return nil, findings,
				withheld("the result contains a secret (%s at %q), so it is withheld", found[0].Rule, found[0].Pointer)
		}
		out = next
	}
	return nil, findings, withheld("the result contains secrets that redaction does not remove, so it is withheld")
}

func withheld(format string, args ...any) *call.Refusal {
	r := call.Refuse(StageOut, call.SecretLeak, format, args...)
	r.Effect = call.EffectDone // the call was made; only its result is withheld
	return r
}

// scan finds the secrets in a JSON text, as ranges of the text.
func (o *Output) scan(doc []byte) ([]secret.Match, error) {
	e, err := secret.Standard()
	if err != nil {
		return nil, err
	}
	v := o.views.Get().(*view.View)
	defer o.views.Put(v)
	if !v.JSON(doc) {
		return e.Scan(doc, o.known, nil)
	}
	matches, err := e.Scan(v.Text, o.known, nil)
	for i := range matches {
		matches[i].Start, matches[i].End = v.Range(matches[i].Start, matches[i].End)
	}
	return matches, err
}

// blob redacts secrets inside of base64 and encodes the result again.
func (o *Output) blob(text []byte) []byte {
	plain, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return nil
	}
	e, err := secret.Standard()
	if err != nil {
		return nil
	}
	matches, err := e.Scan(plain, o.known, nil)
	if err != nil || len(matches) == 0 {
		return nil
	}
	var clean []byte
	done := 0
	for _, m := range matches {
		clean = append(append(clean, plain[done:m.Start]...), placeholder(Secret, m.Rule)...)
		done = m.End
	}
	return base64.StdEncoding.AppendEncode(nil, append(clean, plain[done:]...))
}
