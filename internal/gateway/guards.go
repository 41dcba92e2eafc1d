package gateway

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/flow"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// guards applies the agent's guardrails to arguments and results.
type guards struct {
	rules   guard.Rails
	input   *guard.Input
	schemas map[*agent.Tool]shapes
	results []guard.Schema // every result must match these schemas
	known   func() ([]guard.Known, error)
	inject  *guard.Injections
	broken  error // if set, the guardrails cannot be used and every call is refused
	// personal returns an Input that looks only for personal data.
	personal func() (*guard.Input, error)

	mu     sync.Mutex
	sought []guard.Known // the credentials that output looks for
	output *guard.Output // finds the credentials in sought; nil before the first scan
}

type shapes struct{ in, out guard.Schema }

func newGuards(a *agent.Agent, o Options) *guards {
	w := &guards{rules: guard.Merge(o.Operator, a.Guardrails), schemas: map[*agent.Tool]shapes{}, known: o.Known}
	w.input, w.broken = guard.NewInput(w.rules.Input)
	var err error
	if w.inject, err = guard.NewInjections(w.rules.OnInjection); w.broken == nil {
		w.broken = err
	}
	w.personal = sync.OnceValues(func() (*guard.Input, error) {
		return guard.NewInput(guard.InputRules{PII: w.rules.Input.PII})
	})
	for i := range a.Tools {
		t := &a.Tools[i]
		w.schemas[t] = shapes{guard.NewSchema(t.InputSchema), guard.NewSchema(t.OutputSchema)}
	}
	for _, text := range w.rules.Schemas {
		w.results = append(w.results, guard.NewSchema(text))
	}
	return w
}

// guardIn checks the arguments against the tool's schema and the guardrails. It redacts personal data in everything
// that the server receives.
func guardIn(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	w := g.guards
	if stopped := w.checkSize(len(p.Arguments) + len(p.Meta) + len(p.More)); stopped != nil {
		return stopped
	}
	if p.tool.InputSchema != "" {
		if stopped := w.schemas[p.tool].in.Input(ctx, p.Arguments); stopped != nil {
			return stopped
		}
	}
	// Check the metadata and the additional params too, because they also go to the server.
	redacted := false
	for _, part := range []*jsontext.Value{&p.Meta, &p.More, &p.Arguments} {
		var stopped *call.Refusal
		if redacted, stopped = w.check(ctx, part, p.note); stopped != nil {
			return stopped
		}
	}
	if redacted {
		forwarded := p.Arguments.Clone()
		if err := forwarded.Canonicalize(exactNumbers...); err != nil {
			return call.Refuse(guard.StageIn, call.InputInvalid,
				"the arguments cannot be parsed after personal data was redacted")
		}
		p.forwarded = forwarded
	}
	p.checked = true
	return nil
}

// checkSize returns a refusal if the request is too long. If the guardrails cannot be used, it refuses every request.
func (w *guards) checkSize(size int) *call.Refusal {
	if w.broken != nil {
		return call.Refuse(guard.StageIn, call.InputInvalid, "the agent's guardrails cannot be used: %v", w.broken)
	}
	return guard.TooLong(size, w.rules.MaxLength)
}

// check applies the guardrails to one part of a request and redacts the part's personal data.
func (w *guards) check(
	ctx context.Context, part *jsontext.Value, note func([]guard.Finding),
) (redacted bool, stopped *call.Refusal) {
	if len(*part) == 0 {
		return false, nil
	}
	out, found, stopped := w.input.Check(ctx, *part)
	if note(found); stopped == nil {
		*part = out
	}
	return len(found) > 0, stopped
}

// withoutPersonal removes personal data from arguments that have not passed the guardrails. It returns nil if the
// arguments cannot be checked.
func (w *guards) withoutPersonal(arguments jsontext.Value) jsontext.Value {
	if len(w.rules.Input.PII) == 0 {
		return arguments
	}
	in, err := w.personal()
	if err != nil || len(arguments) > maxScanned {
		return nil
	}
	out, _, stopped := in.Check(context.Background(), arguments)
	if stopped != nil {
		return nil
	}
	return out
}

// request applies the guardrails to the params of a forwarded request and redacts their personal data.
func (w *guards) request(ctx context.Context, f *call.Forward, note func([]guard.Finding)) *call.Refusal {
	if stopped := w.checkSize(len(f.Params)); stopped != nil {
		return stopped
	}
	_, stopped := w.check(ctx, &f.Params, note)
	return stopped
}

// guardOut redacts the secrets in a result and looks for injections. It returns a refusal if the result has duplicate
// keys, must be withheld, or does not match the schemas that apply to it.
func guardOut(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if p.intended {
		ctx = context.WithoutCancel(ctx) // the call had an effect, so keep its answer even if the call was cancelled
	}
	raw, stopped := g.guards.answer(ctx, p.result.Raw, inResult, p.note)
	if stopped == nil && p.result.Failure != nil {
		p.result.Failure, stopped = g.guards.answer(ctx, p.result.Failure, inError, discard)
	}
	if stopped == nil {
		p.result.Raw = raw
		if !p.result.IsError {
			stopped = g.guards.checkSchemas(p.tool, raw)
		}
	}
	if stopped != nil {
		stopped.Effect = call.EffectDone
		if !p.intended {
			stopped.Effect = call.NoEffect // a call without an intent only reads data
		}
	}
	return stopped
}

// These members of a message receive the mark about an injection.
const (
	inResult = "_meta"
	inError  = "data"
)

// answer redacts the secrets in a server's answer. It marks, redacts or refuses an answer that contains an injection.
// It refuses an answer with duplicate keys, because parsers do not agree on which value of a duplicate key to use.
func (w *guards) answer(
	ctx context.Context, raw jsontext.Value, holder string, note func([]guard.Finding),
) (jsontext.Value, *call.Refusal) {
	if rawjson.Twice(raw) {
		return nil, call.Refuse(guard.StageOut, call.OutputInvalid,
			"the server's answer has a duplicate key, so it is ambiguous")
	}
	raw, stopped := w.scan(ctx, raw, note)
	if stopped != nil {
		return nil, stopped
	}
	clean, found, stopped := w.inject.Check(ctx, raw, holder)
	note(found)
	if stopped != nil || len(found) == 0 || w.rules.OnInjection != agent.InjectionRedact {
		return clean, stopped
	}
	return w.scan(ctx, clean, note) // with the marker, the text can look like a secret
}

// redact removes secrets from a refusal, because a refusal can quote a server. If results with injections are redacted or
// withheld, it removes injections too.
func (w *guards) redact(r *call.Refusal) *call.Refusal {
	if _, err := w.scanner(); err != nil {
		hidden := *r
		hidden.Message, hidden.Hint = withheld+", and the scan for secrets failed: "+err.Error(), hintOf(err)
		return &hidden
	}
	message, hint := w.redacted(r.Message), w.redacted(r.Hint)
	if message == r.Message && hint == r.Hint {
		return r
	}
	clean := *r // copy the refusal, because other calls can share it
	clean.Message, clean.Hint = message, hint
	return &clean
}

// redacted returns the text without secrets. If the text cannot be scanned, it returns a fixed message instead.
func (w *guards) redacted(text string) string {
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return withheld
	}
	if w.rules.OnInjection == agent.InjectionRedact || w.rules.OnInjection == agent.InjectionDeny {
		clean, err := w.inject.Redact(context.Background(), []byte(text))
		if err == nil && string(clean) != text {
			return w.redacted(string(clean))
		}
	}
	scanned, stopped := w.scan(context.Background(), quoted, discard)
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
	vaultHint = "to find the problem with the vault, run: ambit doctor"
	withheld  = "the error is withheld, because it may contain a secret"
)

// hintOf returns the hint for an error of Options.Known. An error without a hint of its own comes from the vault.
func hintOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		return e.Hint()
	}
	return vaultHint
}

// scan redacts the secrets in an answer and, depending on the guardrails, the personal data. It returns a refusal if
// the whole answer must be withheld.
func (w *guards) scan(
	ctx context.Context, raw jsontext.Value, note func([]guard.Finding),
) (jsontext.Value, *call.Refusal) {
	scanner, err := w.scanner()
	if err != nil {
		stopped := call.Refuse(guard.StageOut, call.SecretLeak,
			"the result cannot be scanned for secrets, so it is withheld: %v", err)
		stopped.Hint = hintOf(err)
		return nil, stopped
	}
	raw, found, stopped := scanner.Check(raw)
	note(found)
	if stopped != nil || w.rules.OnResult != agent.ResultRedact || len(w.rules.Input.PII) == 0 || len(raw) == 0 {
		return raw, stopped
	}
	personal, err := w.personal()
	if err == nil {
		raw, found, stopped = personal.Check(ctx, raw)
		note(found)
	}
	if err != nil || stopped != nil {
		return nil, call.Refuse(guard.StageOut, call.OutputInvalid,
			"the result may contain personal data that cannot be redacted, so it is withheld")
	}
	return raw, nil
}

// guardNotify returns a function that forwards a notification after the same checks as for a result. The function drops
// notifications that must be withheld, cannot be scanned or have duplicate keys.
func (w *guards) guardNotify(
	ctx context.Context, notify func(string, jsontext.Value), note func(string, []guard.Finding),
) func(string, jsontext.Value) {
	if notify == nil {
		return nil
	}
	return func(method string, params jsontext.Value) {
		found := func(f []guard.Finding) { note(method, f) }
		if params, stopped := w.answer(ctx, params, inResult, found); stopped == nil {
			notify(method, params)
		}
	}
}

// client returns a copy of c that applies the guardrails to all messages from servers.
func (w *guards) client(ctx context.Context, c *call.Client, note func(string, []guard.Finding)) *call.Client {
	if c == nil {
		return nil
	}
	guarded := *c
	guarded.Notify = w.guardNotify(ctx, c.Notify, note)
	if c.Asker != nil {
		guarded.Asker = guardedAsker{w, note, c.Asker}
	}
	return &guarded
}

// guardedAsker applies the guardrails to a server's requests to the client.
type guardedAsker struct {
	guards *guards
	note   func(message string, found []guard.Finding)
	call.Asker
}

func (a guardedAsker) Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	found := func(f []guard.Finding) { a.note(method, f) }
	params, stopped := a.guards.answer(ctx, params, inResult, found)
	if stopped != nil {
		return nil, stopped
	}
	return a.Asker.Ask(ctx, method, params)
}

// Guard returns a copy of c for a server connection that belongs to this client alone. On such a connection, a server
// can send notifications and requests that belong to no call. The copy applies the guardrails to them and adds them to
// the flow memory of the client's principal.
func (g *Gateway) Guard(c *call.Client) *call.Client {
	if c != nil {
		c = g.observeUnrequested(c.Principal, c, flow.Source{Tool: "a message from a server"}).client(c)
	}
	return g.guards.client(context.Background(), c, discardIn)
}

// Redact removes secrets from a refusal, because a refusal can contain text from a server.
func (g *Gateway) Redact(r *call.Refusal) *call.Refusal { return g.guards.redact(r) }

// scanner returns a scanner for the credentials that Options.Known currently returns. It creates a new scanner only
// if the credentials have changed.
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

// checkSchemas checks a result against the tool's schema and the guardrails' schemas.
func (w *guards) checkSchemas(t *agent.Tool, raw jsontext.Value) *call.Refusal {
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

// content returns the part of a result that schemas describe. This is structuredContent or, if that is missing, the
// first text. A text that is valid JSON is parsed.
func content(raw jsontext.Value) jsontext.Value {
	if v := rawjson.Lookup(raw, "structuredContent"); v != nil {
		return v
	}
	list := rawjson.Lookup(raw, "content")
	if len(list) > 0 && !list.IsValid() {
		return list // invalid JSON matches no schema
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

// maxNotes limits the number of findings in a journal record.
const maxNotes = 20

// note stores findings for the journal. A note contains the rule and the position of the value, but never the value
// itself.
func (p *inflight) note(found []guard.Finding) { p.noteIn("", found) }

// noteIn is like note, but for a message other than the result, such as a notification. Each note includes the name of
// the message.
func (p *inflight) noteIn(message string, found []guard.Finding) {
	p.notesMu.Lock()
	defer p.notesMu.Unlock()
	for _, f := range found {
		if len(p.notes) == maxNotes {
			return
		}
		note := strings.TrimSpace(string(f.Kind) + " " + f.Rule + " at " + f.Pointer)
		if message != "" {
			note += " of " + message
		}
		p.notes = append(p.notes, note)
	}
}

// noted returns all notes.
func (p *inflight) noted() string {
	p.notesMu.Lock()
	defer p.notesMu.Unlock()
	return strings.Join(p.notes, "; ")
}

// discard and discardIn drop findings that belong to no call.
func discard([]guard.Finding)           {}
func discardIn(string, []guard.Finding) {}
