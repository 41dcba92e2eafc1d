package gateway

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// guards check the content of calls against the agent's guardrails.
type guards struct {
	rules   guard.Rails
	input   *guard.Input
	schemas map[*agent.Tool]shapes
	results []*guard.Schema // every result must match these
	known   func() ([]guard.Known, error)
	broken  error // why the guardrails cannot be used; every call is then refused
	// personal finds only personal data.
	personal func() (*guard.Input, error)

	mu     sync.Mutex
	sought []guard.Known // the credentials that output searches for
	output *guard.Output // nil before the first scan
}

// shapes are the schemas that a tool declares.
type shapes struct{ in, out *guard.Schema }

func newGuards(a *agent.Agent, o Options) *guards {
	w := &guards{rules: guard.Merge(o.Operator, a.Guardrails), schemas: map[*agent.Tool]shapes{}, known: o.Known}
	w.input, w.broken = guard.NewInput(w.rules.Input)
	w.personal = sync.OnceValues(func() (*guard.Input, error) { return guard.NewInput(guard.InputRules{PII: w.rules.Input.PII}) })
	for i := range a.Tools {
		t := &a.Tools[i]
		w.schemas[t] = shapes{guard.NewSchema(t.InputSchema), guard.NewSchema(t.OutputSchema)}
	}
	for _, text := range w.rules.Schemas {
		w.results = append(w.results, guard.NewSchema(text))
	}
	return w
}

// guardIn checks the arguments against the tool's schema and the guardrails. No
// later stage sees personal data that is redacted here.
func guardIn(g *Gateway, _ context.Context, p *inflight) *call.Refusal {
	w := g.guards
	if w.broken != nil {
		return call.Refuse(guard.StageIn, call.InputInvalid, "the agent's guardrails cannot be used: %v", w.broken)
	}
	if stopped := guard.TooLong(len(p.Arguments)+len(p.Meta)+len(p.More), w.rules.MaxLength); stopped != nil {
		return stopped
	}
	if p.tool.InputSchema != "" {
		if stopped := w.schemas[p.tool].in.Input(p.Arguments); stopped != nil {
			return stopped
		}
	}
	// Metadata and further params reach the server too.
	for _, beside := range []*jsontext.Value{&p.Meta, &p.More} {
		if len(*beside) == 0 {
			continue
		}
		out, found, stopped := w.input.Check(*beside)
		if p.note(found); stopped != nil {
			return stopped
		}
		*beside = out
	}
	out, found, stopped := w.input.Check(p.Arguments)
	p.note(found)
	if stopped != nil {
		return stopped
	}
	if len(found) > 0 {
		p.Arguments = out
		forwarded := out.Clone()
		if err := forwarded.Canonicalize(exactNumbers...); err != nil {
			return call.Refuse(guard.StageIn, call.InputInvalid,
				"the arguments cannot be parsed after personal data was redacted")
		}
		p.forwarded = forwarded
	}
	p.checked = true
	return nil
}

// impersonal removes personal data from arguments that the guardrails refused. It
// returns nil if that fails.
func (w *guards) impersonal(arguments jsontext.Value) jsontext.Value {
	if len(w.rules.Input.PII) == 0 {
		return arguments
	}
	in, err := w.personal()
	if err != nil || len(arguments) > maxScanned {
		return nil
	}
	out, _, stopped := in.Check(arguments)
	if stopped != nil {
		return nil
	}
	return out
}

// request checks the params of a forwarded request against the guardrails, and redacts
// them like arguments.
func (w *guards) request(f *call.Forward, note func([]guard.Finding)) *call.Refusal {
	if w.broken != nil {
		return call.Refuse(guard.StageIn, call.InputInvalid, "the agent's guardrails cannot be used: %v", w.broken)
	}
	if len(f.Params) == 0 {
		return nil
	}
	if stopped := guard.TooLong(len(f.Params), w.rules.MaxLength); stopped != nil {
		return stopped
	}
	out, found, stopped := w.input.Check(f.Params)
	note(found)
	if stopped == nil {
		f.Params = out
	}
	return stopped
}

// guardOut refuses results that are ambiguous, contain a secret or do not match their
// schema.
func guardOut(g *Gateway, _ context.Context, p *inflight) *call.Refusal {
	raw, stopped := g.guards.answer(p.result.Raw, p.note)
	if stopped == nil && p.result.Failure != nil {
		p.result.Failure, stopped = g.guards.answer(p.result.Failure, func([]guard.Finding) {})
	}
	if stopped == nil {
		p.result.Raw = raw
		if !p.result.IsError {
			stopped = g.guards.shape(p.tool, raw)
		}
	}
	if stopped != nil {
		stopped.Effect = call.EffectDone
		if !p.intended {
			stopped.Effect = call.NoEffect // a read
		}
	}
	return stopped
}

// answer checks and redacts an answer of a server. It refuses duplicate keys: parsers
// that keep the first and parsers that keep the last would see different answers.
func (w *guards) answer(raw jsontext.Value, note func([]guard.Finding)) (jsontext.Value, *call.Refusal) {
	if rawjson.Twice(raw) {
		return nil, call.Refuse(guard.StageOut, call.OutputInvalid,
			"the server's answer has a duplicate key, so it is ambiguous")
	}
	return w.scan(raw, note)
}

// redact removes secrets from a refusal, which may quote a server.
func (w *guards) redact(r *call.Refusal) *call.Refusal {
	if _, err := w.scanner(); err != nil {
		hidden := *r
		hidden.Message, hidden.Hint = withheld+", and the scan for secrets failed: "+err.Error(), vaultHint
		return &hidden
	}
	message, hint := w.redacted(r.Message), w.redacted(r.Hint)
	if message == r.Message && hint == r.Hint {
		return r
	}
	clean := *r // other calls may share the refusal
	clean.Message, clean.Hint = message, hint
	return &clean
}

// redacted removes secrets from a text. It replaces a text that cannot be scanned or
// must be withheld.
func (w *guards) redacted(text string) string {
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return withheld
	}
	scanned, stopped := w.scan(quoted, func([]guard.Finding) {})
	if stopped != nil {
		return withheld
	}
	if bytes.Equal(scanned, quoted) {
		return text
	}
	clean, err := jsontext.AppendUnquote(nil, scanned)
	if err != nil {
		return withheld
	}
	return string(clean)
}

const (
	vaultHint = "find the problem with the vault: ambit doctor"
	withheld  = "the error is withheld, because it may contain a secret"
)

// scan redacts the secrets in an answer, or withholds the answer.
func (w *guards) scan(raw jsontext.Value, note func([]guard.Finding)) (jsontext.Value, *call.Refusal) {
	scanner, err := w.scanner()
	if err != nil {
		stopped := call.Refuse(guard.StageOut, call.SecretLeak,
			"the result cannot be scanned for secrets, so it is withheld: %v", err)
		stopped.Hint = vaultHint
		return nil, stopped
	}
	raw, found, stopped := scanner.Check(raw)
	note(found)
	return raw, stopped
}

// hear returns a function that forwards a server's notifications without secrets. It
// drops notifications that cannot be scanned or are ambiguous.
func (w *guards) hear(notify func(string, jsontext.Value)) func(string, jsontext.Value) {
	if notify == nil {
		return nil
	}
	return func(method string, params jsontext.Value) {
		if len(params) > 0 {
			var stopped *call.Refusal
			if params, stopped = w.answer(params, func([]guard.Finding) {}); stopped != nil {
				return
			}
		}
		notify(method, params)
	}
}

// client returns a client that receives scanned messages from servers.
func (w *guards) client(c *call.Client) *call.Client {
	if c == nil {
		return nil
	}
	guarded := *c
	guarded.Notify = w.hear(c.Notify)
	if c.Asker != nil {
		guarded.Asker = guardedAsker{w, c.Asker}
	}
	return &guarded
}

// guardedAsker removes secrets from a server's questions.
type guardedAsker struct {
	guards *guards
	call.Asker
}

func (a guardedAsker) Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	if len(params) > 0 {
		var stopped *call.Refusal
		if params, stopped = a.guards.answer(params, func([]guard.Finding) {}); stopped != nil {
			return nil, stopped
		}
	}
	return a.Asker.Ask(ctx, method, params)
}

// Guard returns a client that receives scanned notifications and questions from servers.
func (g *Gateway) Guard(c *call.Client) *call.Client { return g.guards.client(c) }

// Hush returns a refusal without the secrets that a server may have named.
func (g *Gateway) Hush(r *call.Refusal) *call.Refusal { return g.guards.redact(r) }

// scanner searches for the agent's current credentials and for earlier ones that
// were handed out.
func (w *guards) scanner() (*guard.Output, error) {
	var known []guard.Known
	if w.known != nil {
		var err error
		if known, err = w.known(); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.output != nil && slices.Equal(known, w.sought) {
		return w.output, nil
	}
	output, err := guard.NewOutput(guard.OutputRules{OnLeak: w.rules.OnLeak, Known: known})
	if err == nil {
		w.output, w.sought = output, known
	}
	return output, err
}

// shape checks a result against the schemas of the tool and of the guardrails.
func (w *guards) shape(t *agent.Tool, raw jsontext.Value) *call.Refusal {
	if t.OutputSchema == "" && len(w.results) == 0 {
		return nil
	}
	value := content(raw)
	if t.OutputSchema != "" {
		if stopped := w.schemas[t].out.Output(value); stopped != nil {
			return stopped
		}
	}
	for _, s := range w.results {
		if stopped := s.Output(value); stopped != nil {
			return stopped
		}
	}
	return nil
}

// content returns the value of a result: its structured content, or else its text,
// parsed if it is JSON.
func content(raw jsontext.Value) jsontext.Value {
	if v := rawjson.Lookup(raw, "structuredContent"); v != nil {
		return v
	}
	list := rawjson.Lookup(raw, "content")
	if len(list) > 0 && !list.IsValid() {
		return list // it is ambiguous, and matches no schema
	}
	first := jsontext.Value(nil)
	d := jsontext.NewDecoder(bytes.NewBuffer(list))
	if t, err := d.ReadToken(); err == nil && t.Kind() == '[' && d.PeekKind() == '{' {
		if v, err := d.ReadValue(); err == nil {
			first = rawjson.Lookup(v, "text")
		}
	}
	if first == nil {
		return jsontext.Value("null")
	}
	text, err := jsontext.AppendUnquote(nil, first)
	if err == nil && rawjson.Valid(text) {
		return text
	}
	return first
}

// maxNotes bounds the findings in the journal.
const maxNotes = 20

// note records findings for the journal: rule and position, never the value.
func (p *inflight) note(found []guard.Finding) {
	for _, f := range found {
		if len(p.notes) == maxNotes {
			return
		}
		p.notes = append(p.notes, strings.TrimSpace(string(f.Kind)+" "+f.Rule+" at "+f.Pointer))
	}
}
