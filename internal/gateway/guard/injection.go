package guard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/deny"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// Injections looks for prompt injection in the messages of servers, with the patterns of [deny.Defaults].
type Injections struct {
	action  agent.OnInjection
	list    *deny.List
	scratch sync.Pool
}

var builtin = sync.OnceValues(func() (*deny.List, error) { return deny.Compile(deny.Defaults()) })

// NewInjections returns a check that applies the action to injections. If the action is empty, the check finds nothing.
func NewInjections(action agent.OnInjection) (*Injections, error) {
	list, err := builtin()
	if err == nil && action != "" && !slices.Contains(agent.InjectionActions, string(action)) {
		err = fmt.Errorf("on_injection must be \"mark\", \"redact\" or \"deny\", not %q", action)
	}
	return &Injections{action: action, list: list, scratch: sync.Pool{New: func() any { return new(scratch) }}}, err
}

// Check looks for injections in the names and strings of a message. It marks the message, redacts the injections or
// refuses the message, depending on the action. A message without an injection is returned unchanged. The parameter
// holder is the name of the member that receives the mark: _meta, or data for a JSON-RPC error. Check stops early if
// ctx is cancelled.
func (i *Injections) Check(
	ctx context.Context, message jsontext.Value, holder string,
) (out jsontext.Value, findings []Finding, refusal *call.Refusal) {
	defer func() {
		if r := recover(); r != nil {
			out, refusal = nil, i.withheld("the result could not be searched for injections, so it is withheld")
		}
	}()
	if i.action == "" {
		return message, nil, nil
	}
	out = message
	// After a redaction, the words around the marker can form another injection, so search again.
	for range 4 {
		edits, err := i.find(ctx, out)
		if err != nil {
			return nil, findings, call.Refuse(StageOut, call.TimedOut, "the call was cancelled before its result was checked")
		}
		if len(edits) == 0 {
			return out, findings, nil
		}
		next, found, err := rewrite(out, edits, i.redactBase64)
		findings = append(findings, found...)
		switch {
		case err != nil || len(found) == 0:
			return nil, findings, i.withheld("the result contains an injection (%s) and is not valid JSON, so it is withheld", edits[0].rule)
		case i.action == agent.InjectionDeny:
			return nil, findings,
				i.withheld("the result contains an injection (%s at %q), so it is withheld", found[0].Rule, found[0].Pointer)
		case i.action == agent.InjectionMark:
			return mark(out, found, holder), findings, nil
		}
		out = next
	}
	return nil, findings, i.withheld("the result contains more injections than can be redacted, so it is withheld")
}

func (i *Injections) withheld(format string, args ...any) *call.Refusal {
	r := call.Refuse(StageOut, call.DeniedPattern, format, args...)
	r.Hint = "read the original data yourself; to pass such results on with a warning mark, set on_injection to \"mark\""
	r.Effect = call.EffectDone // the server has carried out the call, and only the result is withheld
	return r
}

// Redact replaces the injections in a text with markers.
func (i *Injections) Redact(ctx context.Context, text []byte) ([]byte, error) {
	for range 4 {
		hits, err := i.list.FindAll(ctx, text)
		if err != nil || len(hits) == 0 {
			return text, err
		}
		var clean []byte
		done := 0
		for _, h := range hits {
			if h.Start >= done {
				clean = append(append(clean, text[done:h.Start]...), deny.Marker(h.Pattern)...)
			}
			done = max(done, h.End)
		}
		text = append(clean, text[done:]...)
	}
	return []byte(deny.Marker("unreadable")), nil
}

// redactBase64 redacts the injections in base64 text. It returns nil if there are none.
func (i *Injections) redactBase64(text []byte) []byte {
	plain, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return nil
	}
	clean, err := i.Redact(context.Background(), plain)
	if err != nil || bytes.Equal(clean, plain) {
		return nil
	}
	return base64.StdEncoding.AppendEncode(nil, clean)
}

// find returns an edit for each injection in a document.
func (i *Injections) find(ctx context.Context, doc []byte) (edits []edit, err error) {
	s := i.scratch.Get().(*scratch)
	defer i.scratch.Put(s)
	s.visitValues(doc, func(start, end int, _ bool, _ []byte) bool {
		windows(doc[start:end], func(at int, text []byte) bool {
			base, escaped := start+at, false
			if bytes.IndexByte(text, '\\') >= 0 && s.view.JSON(text) {
				text, escaped = s.view.Text, true
			}
			var hits []deny.Hit
			if hits, err = i.list.FindAll(ctx, text); err != nil {
				return false
			}
			for _, h := range hits {
				if escaped {
					h.Start, h.End = s.view.Range(h.Start, h.End)
				}
				if n := len(edits); n > 0 && base+h.Start < edits[n-1].end {
					edits[n-1].end = max(edits[n-1].end, base+h.End)
					continue
				}
				edits = append(edits, edit{Injection, h.Pattern, base + h.Start, base + h.End})
			}
			return true
		})
		return err == nil
	})
	return edits, err
}

const (
	maxMarks   = 20  // maximum number of findings in a mark
	maxPointer = 256 // maximum length of a pointer in a mark
)

// mark adds the findings to a message. It returns the message unchanged if the message cannot hold them.
func mark(message jsontext.Value, found []Finding, holder string) jsontext.Value {
	type place struct {
		Rule    string `json:"rule"`
		Pointer string `json:"pointer"`
	}
	var places []place
	for _, f := range found {
		p := place{f.Rule, f.Pointer}
		if len(p.Pointer) > maxPointer {
			p.Pointer = ""
		}
		if len(places) < maxMarks && !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	value, err := json.Marshal(map[string]any{"findings": places})
	if err != nil || message.Kind() != '{' {
		return message
	}
	start, end := rawjson.Find(message, holder)
	switch held := message[start:end]; {
	case start == end:
		return withMember(message, holder, withMember([]byte("{}"), call.Untrusted, value))
	case held.Kind() == '{':
		return slices.Concat(message[:start], withMember(held, call.Untrusted, value), message[end:])
	case holder == "_meta":
		return slices.Concat(message[:start], withMember([]byte("{}"), call.Untrusted, value), message[end:])
	}
	return message
}

// withMember returns an object with one more member. It replaces a member of the same name.
func withMember(object jsontext.Value, name string, value []byte) jsontext.Value {
	if start, end := rawjson.Find(object, name); start != end {
		return slices.Concat(object[:start], value, object[end:])
	}
	open := bytes.IndexByte(object, '{') + 1
	comma := ","
	if bytes.HasPrefix(bytes.TrimLeft(object[open:], " \t\r\n"), []byte("}")) {
		comma = ""
	}
	return slices.Concat(object[:open], []byte(`"`+name+`":`), value, []byte(comma), object[open:])
}

// stricter returns the stricter of two actions.
func stricter(a, b agent.OnInjection) agent.OnInjection {
	rank := func(o agent.OnInjection) int { return slices.Index(agent.InjectionActions, string(o)) }
	return slices.MaxFunc([]agent.OnInjection{a, b}, func(a, b agent.OnInjection) int { return cmp.Compare(rank(a), rank(b)) })
}

// Injections describes what happens to results that contain an injection.
func (r Rails) Injections() string {
	switch r.OnInjection {
	case agent.InjectionMark:
		return "results that match ambit's built-in patterns are marked"
	case agent.InjectionRedact:
		return "redacted in every result that matches ambit's built-in patterns"
	case agent.InjectionDeny:
		return "results that match ambit's built-in patterns are withheld"
	}
	return "not searched for in results"
}
