package gateway

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/guard"
	"github.com/ambit-run/ambit/internal/rawjson"
)

// guards hold the content of calls to the agent's rails.
type guards struct {
	rails   guard.Rails
	input   *guard.Input
	schemas map[*agent.Tool]shapes
	results []*guard.Schema // that every result fits
	known   func() ([]guard.Known, error)
	broken  error // why nothing can be checked, so that nothing passes
	// personal finds personal data alone.
	personal func() (*guard.Input, error)

	mu     sync.Mutex
	sought []guard.Known // the credentials that output looks for
	output *guard.Output // nil before the first scan
}

// shapes are the schemas that a tool declares.
type shapes struct{ in, out *guard.Schema }

func newGuards(a *agent.Agent, o Options) *guards {
	w := &guards{rails: guard.Merge(o.Operator, a.Guardrails), schemas: map[*agent.Tool]shapes{}, known: o.Known}
	w.input, w.broken = guard.NewInput(w.rails.Input)
	w.personal = sync.OnceValues(func() (*guard.Input, error) { return guard.NewInput(guard.InputRules{PII: w.rails.Input.PII}) })
	for i := range a.Tools {
		t := &a.Tools[i]
		w.schemas[t] = shapes{guard.NewSchema(t.InputSchema), guard.NewSchema(t.OutputSchema)}
	}
	for _, text := range w.rails.Schemas {
		w.results = append(w.results, guard.NewSchema(text))
	}
	return w
}

// guardIn holds the arguments to the tool's schema and to the rails. Personal
// data that is redacted here is seen by nobody further on.
func guardIn(g *Gateway, _ context.Context, p *passing) *call.Refusal {
	w := g.guards
	if w.broken != nil {
		return call.Refuse(guard.StageIn, call.InputInvalid, "the agent's rails cannot be used: %v", w.broken)
	}
	if stopped := guard.TooLong(len(p.Arguments)+len(p.Meta)+len(p.More), w.rails.MaxLength); stopped != nil {
		return stopped
	}
	if p.tool.InputSchema != "" {
		if stopped := w.schemas[p.tool].in.Input(p.Arguments); stopped != nil {
			return stopped
		}
	}
	// What travels beside the arguments reaches the server too.
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
			return call.Refuse(guard.StageIn, call.InputInvalid, "the arguments cannot be read after what was personal was redacted")
		}
		p.forwarded = forwarded
	}
	p.railed = true
	return nil
}

// impersonal are arguments that the rails did not let through, without what is
// personal; nil if that cannot be told.
func (w *guards) impersonal(arguments jsontext.Value) jsontext.Value {
	if len(w.rails.Input.PII) == 0 {
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

// request holds the parameters of a request that is no call to the rails, and
// redacts them like arguments.
func (w *guards) request(f *call.Forward, note func([]guard.Finding)) *call.Refusal {
	if w.broken != nil {
		return call.Refuse(guard.StageIn, call.InputInvalid, "the agent's rails cannot be used: %v", w.broken)
	}
	if len(f.Params) == 0 {
		return nil
	}
	if stopped := guard.TooLong(len(f.Params), w.rails.MaxLength); stopped != nil {
		return stopped
	}
	out, found, stopped := w.input.Check(f.Params)
	note(found)
	if stopped == nil {
		f.Params = out
	}
	return stopped
}

// guardOut lets nothing out that can be read in two ways, no secret and no wrong
// shape.
func guardOut(g *Gateway, _ context.Context, p *passing) *call.Refusal {
	raw, stopped := g.guards.say(p.result.Raw, p.note)
	if stopped == nil && p.result.Failure != nil {
		p.result.Failure, stopped = g.guards.say(p.result.Failure, func([]guard.Finding) {})
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

// say is what a server says, as it may leave. Its members decide what becomes of
// it, here and at the client, so each is there once: who reads the first and who
// reads the last see the same.
func (w *guards) say(raw jsontext.Value, note func([]guard.Finding)) (jsontext.Value, *call.Refusal) {
	if rawjson.Twice(raw) {
		return nil, call.Refuse(guard.StageOut, call.OutputInvalid, "the server's answer has a member twice, and can be read in two ways")
	}
	return w.scan(raw, note)
}

// hush takes secrets out of a refusal, which may tell what a server said.
func (w *guards) hush(r *call.Refusal) *call.Refusal {
	if _, err := w.scanner(); err != nil {
		told := *r
		told.Message, told.Hint = untold+", and cannot be searched for one: "+err.Error(), vaultHint
		return &told
	}
	message, hint := w.hushed(r.Message), w.hushed(r.Hint)
	if message == r.Message && hint == r.Hint {
		return r
	}
	told := *r // others may hold the same one
	told.Message, told.Hint = message, hint
	return &told
}

// hushed is a text without secrets. What cannot be scanned, or is to be withheld,
// is not told.
func (w *guards) hushed(text string) string {
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return untold
	}
	scanned, stopped := w.scan(quoted, func([]guard.Finding) {})
	if stopped != nil {
		return untold
	}
	if bytes.Equal(scanned, quoted) {
		return text
	}
	told, err := jsontext.AppendUnquote(nil, scanned)
	if err != nil {
		return untold
	}
	return string(told)
}

// vaultHint is where to look if it is not known what is a secret.
const vaultHint = "ambit doctor tells what is wrong with the vault"

const untold = "what went wrong is not told, since it may hold a secret"

// scan takes secrets out of an answer, or the answer itself.
func (w *guards) scan(raw jsontext.Value, note func([]guard.Finding)) (jsontext.Value, *call.Refusal) {
	scanner, err := w.scanner()
	if err != nil {
		stopped := call.Refuse(guard.StageOut, call.SecretLeak, "the result cannot be scanned for secrets, so it is withheld: %v", err)
		stopped.Hint = vaultHint
		return nil, stopped
	}
	raw, found, stopped := scanner.Check(raw)
	note(found)
	return raw, stopped
}

// hear lets a client hear what a server says meanwhile, without secrets. What
// cannot be scanned, or can be read in two ways, is not said.
func (w *guards) hear(tell func(string, jsontext.Value)) func(string, jsontext.Value) {
	if tell == nil {
		return nil
	}
	return func(method string, params jsontext.Value) {
		if len(params) > 0 {
			var stopped *call.Refusal
			if params, stopped = w.say(params, func([]guard.Finding) {}); stopped != nil {
				return
			}
		}
		tell(method, params)
	}
}

// client is a client that servers reach only through the scan.
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

// guardedAsker asks without telling secrets.
type guardedAsker struct {
	guards *guards
	call.Asker
}

func (a guardedAsker) Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	if len(params) > 0 {
		var stopped *call.Refusal
		if params, stopped = a.guards.say(params, func([]guard.Finding) {}); stopped != nil {
			return nil, stopped
		}
	}
	return a.Asker.Ask(ctx, method, params)
}

// Guard is a client as servers may reach it: whatever they tell or ask it is
// scanned first.
func (g *Gateway) Guard(c *call.Client) *call.Client { return g.guards.client(c) }

// Hush is a refusal without the secrets that a server may have named.
func (g *Gateway) Hush(r *call.Refusal) *call.Refusal { return g.guards.hush(r) }

// scanner knows the agent's credentials as they are at this moment, and those
// that somebody may hold from before: whoever handed one out remembered it first.
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
	output, err := guard.NewOutput(guard.OutputRules{OnLeak: w.rails.OnLeak, Known: known})
	if err == nil {
		w.output, w.sought = output, known
	}
	return output, err
}

// shape holds a result to the schema of the tool and to those of the rails.
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

// content is the value that a result holds: its structured content, or else its
// text, as JSON where it is.
func content(raw jsontext.Value) jsontext.Value {
	if v := rawjson.Lookup(raw, "structuredContent"); v != nil {
		return v
	}
	list := rawjson.Lookup(raw, "content")
	if len(list) > 0 && !list.IsValid() {
		return list // which of its texts is meant cannot be told, and no schema lets it pass
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

// maxNotes bounds what the journal says about findings.
const maxNotes = 20

// note remembers for the journal what was found: which rule and where, never
// what.
func (p *passing) note(found []guard.Finding) {
	for _, f := range found {
		if len(p.notes) == maxNotes {
			return
		}
		p.notes = append(p.notes, strings.TrimSpace(string(f.Kind)+" "+f.Rule+" at "+f.Pointer))
	}
}
