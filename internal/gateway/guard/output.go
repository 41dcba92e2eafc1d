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

// OutputRules contains the guardrails for results. The zero value scans results and redacts secrets.
type OutputRules struct {
	// OnLeak is the action for a result that contains a secret. The zero value redacts the secret.
	OnLeak agent.OnLeak
	// Known lists the credentials that ambit stores. The scan finds them in several encodings.
	Known []Known
}

// Known is a credential that ambit stores.
type Known struct {
	// Name is the name of the credential slot or variable. It appears in findings and placeholders.
	Name  string
	Value string
}

// Output checks the results of calls.
type Output struct {
	block bool
	known *secret.Known
	views sync.Pool
}

// NewOutput compiles the rules. The scan for secrets cannot be switched off.
func NewOutput(rules OutputRules) (*Output, error) {
	o := &Output{block: rules.OnLeak == agent.LeakBlock}
	if rules.OnLeak != "" && rules.OnLeak != agent.LeakRedact && rules.OnLeak != agent.LeakBlock {
		return nil, fmt.Errorf("on_leak must be \"redact\" or \"block\", not %q", rules.OnLeak)
	}
	values := make([]secret.Value, len(rules.Known))
	for i, k := range rules.Known {
		values[i] = secret.Value{Name: label(k.Name), Secret: k.Value}
	}
	known, err := secret.NewKnown(values)
	if err != nil {
		return nil, fmt.Errorf("cannot prepare the search for credentials: %w", err)
	}
	o.known = known
	o.views.New = func() any { return new(view.View) }
	return o, nil
}

// label converts the name of a credential to a form that is safe in JSON and in placeholders. It shortens the name to
// 64 bytes and replaces unusual characters with underscores.
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

// Check returns a result with its secrets redacted. It scans the whole JSON text, including base64 in the text. If
// there is no secret, Check returns the same slice. Check refuses a result that it cannot scan. If OnLeak is
// [agent.LeakBlock], it also refuses every result that contains a secret.
func (o *Output) Check(result jsontext.Value) (out jsontext.Value, findings []Finding, refusal *call.Refusal) {
	defer func() {
		if r := recover(); r != nil {
			out, refusal = nil, withheld("the result could not be scanned for secrets, so it is withheld")
		}
	}()
	out = result
	// After a redaction, the remaining text can look like another secret, so scan the result again.
	for range 4 {
		var edits []edit
		matches, cut := o.scan(out)
		for _, m := range matches {
			edits = append(edits, edit{Secret, m.Rule, m.Start, m.End})
		}
		if len(edits) == 0 {
			var err error
			if edits, err = o.findSplit(out, cut); err != nil {
				return nil, findings, withheld("the result could not be scanned for secrets, so it is withheld: %v", err)
			}
		}
		if len(edits) == 0 {
			return out, findings, nil
		}
		next, found, err := rewrite(out, edits, o.redactBase64)
		findings = append(findings, found...)
		switch {
		case err != nil:
			return nil, findings, withheld("the result contains a secret that could not be redacted, so it is withheld: %v", err)
		case len(found) == 0:
			return nil, findings, withheld("the result contains a secret at an unknown position, so it is withheld")
		case o.block:
			return nil, findings,
				withheld("the result contains a secret (%s at %q), so it is withheld", found[0].Rule, found[0].Pointer)
		}
		out = next
	}
	return nil, findings, withheld("the result contains secrets that could not be redacted completely, so it is withheld")
}

func withheld(format string, args ...any) *call.Refusal {
	r := call.Refuse(StageOut, call.SecretLeak, format, args...)
	r.Effect = call.EffectDone // the server has carried out the call, and only the result is withheld
	return r
}

// scan returns the positions of the secrets in a JSON document. The second result reports whether a string ends with the
// beginning of a token.
func (o *Output) scan(doc []byte) (matches []secret.Match, cut bool) {
	if len(doc) <= maxWhole {
		return o.scanWindow(doc, nil)
	}
	var values secret.Values
	windows(doc, func(at int, part []byte) bool {
		found, endsEarly := o.scanWindow(part, &values)
		for _, m := range found {
			m.Start, m.End = m.Start+at, m.End+at
			matches = append(matches, m)
		}
		cut = cut || endsEarly
		return true
	})
	return secret.Standard().AddCopies(doc, &values, secret.Merge(matches)), cut
}

func (o *Output) scanWindow(doc []byte, values *secret.Values) (matches []secret.Match, cut bool) {
	e := secret.Standard()
	v := o.views.Get().(*view.View)
	defer o.views.Put(v)
	if !v.JSON(doc) {
		return e.ScanJSON(doc, o.known, values)
	}
	matches, cut = e.ScanJSON(v.Text, o.known, values)
	for i := range matches {
		matches[i].Start, matches[i].End = v.Range(matches[i].Start, matches[i].End)
	}
	return matches, cut
}

// redactBase64 decodes base64 text, redacts the secrets in it, and encodes it again. It returns nil if it finds no
// secret.
func (o *Output) redactBase64(text []byte) []byte {
	plain, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return nil
	}
	matches := secret.Standard().Scan(plain, o.known, nil)
	if len(matches) == 0 {
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
