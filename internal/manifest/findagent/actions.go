package findagent

import (
	"encoding/json"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/tooluri"
)

// actionFields lists the fields that apply only to one type of action.
var actionFields = []struct {
	key, of string
}{
	{"method", "http"},
	{"url", "http"},
	{"headers", "http"},
	{"body_template", "http"},
	{"auth_ref", "http"},
	{"template", "prompt-template"},
	{"agent", "compose"},
	{"tool", "compose"},
}

// action parses a tool's action, whose placeholders can refer to the given inputs.
func (p *parser) action(v doc.Value, a *Action, in *inputs) {
	o := p.Object(v)
	a.Type, _ = o.Enum("type", read.Required, actionTypes)
	p.httpAction(o, a, in)
	if template, ok := o.Text("template", a.Type == "prompt-template"); ok {
		a.Template = template
		p.checkTemplate(v.Get("template"), inPrompt, in, nil)
	}
	if name, ok := o.String("agent", a.Type == "compose"); ok {
		if a.Agent = name; !isWord(name, isName, isName) {
			p.Report(ruleAgentName, v.Get("agent").Place(), "", "%s is not a valid agent name", diag.Quote(name))
		}
	}
	if name, ok := o.String("tool", a.Type == "compose"); ok {
		if a.Tool = name; !tooluri.IsName(name) {
			p.Report(ruleToolName, v.Get("tool").Place(), "", "%s is not a tool name", diag.Quote(name))
		}
	}
	o.Done()
	if a.Type != "" {
		for _, f := range actionFields {
			if m := v.Get(f.key); m.Ok() && f.of != a.Type {
				p.Report(ruleOtherAction, m.KeyPlace(), "", "%s has no effect on an action of type %s", diag.Quote(f.key),
					diag.Quote(a.Type))
			}
		}
	}
}

func (p *parser) httpAction(o *read.Object, a *Action, in *inputs) {
	need := read.Presence(a.Type == "http")
	a.Method, _ = o.Enum("method", need, methods)
	host := ""
	if url := o.Get("url", need); p.Is(url, doc.String) {
		a.URL = url.Text()
		host = p.checkURL(url, in)
	}
	s := p.authRef(o, a, host)
	whole := s != nil && s.json && !s.scopes // {credential} stands for all of the JSON
	placed := false
	a.Headers = p.headers(o, in, func(field string, at diag.Place) {
		placed = true
		switch {
		case !o.Value().Get("auth_ref").Ok():
			p.Report(ruleCredentialNone, at, "", "the action has no auth_ref, so {credential} has no value")
		case field != "" && s != nil && !s.json:
			p.Report(ruleCredentialField, at, "", "the credential has no fields, because its slot is not of type json")
		case field == "" && whole:
			p.Report(ruleCredentialWhole, at, "", "{credential} stands for all of the JSON, including its secret fields")
		}
	})
	if whole && !placed {
		p.Report(ruleCredentialWhole, o.Value().Get("auth_ref").Place(), "",
			"no header names a field of the credential %s, so all of its JSON would be sent", diag.Quote(a.AuthRef))
	}
	if body, ok := o.String("body_template", read.Optional); ok {
		a.BodyTemplate = body
		p.checkBody(o.Value().Get("body_template"), a, in)
	}
}

// authRef returns the credential slot that auth_ref names, or nil if there is none. It reports a slot that does not
// allow the action's host.
func (p *parser) authRef(o *read.Object, a *Action, host string) *slot {
	ref, ok := o.Text("auth_ref", read.Optional)
	if !ok {
		return nil
	}
	a.AuthRef = ref
	v := o.Value().Get("auth_ref")
	s := p.slots[ref]
	if s == nil {
		p.dangling = true
		p.Report(ruleAuthRef, v.Place(), p.DidYouMean(ref, names(p.slots)), "there is no credential slot %s", diag.Quote(ref))
		return nil
	}
	s.used = true
	if host != "" && len(s.hosts) > 0 && !agent.Covers(s.hosts, host) {
		p.Report(ruleAudience, v.Place(), "", "the credential %s is allowed only for %s, not for %s",
			diag.Quote(ref), listHosts(s.hosts), diag.Quote(host))
	}
	return s
}

// listHosts formats hosts for a message. It lists at most three hosts and says how many others there are.
func listHosts(hosts []string) string {
	const few = 3
	quoted := make([]string, 0, few+1)
	for i, h := range hosts {
		if i == few {
			quoted = append(quoted, countOf(len(hosts)-few, "other"))
			break
		}
		quoted = append(quoted, diag.Quote(h))
	}
	return diag.Words(quoted, "or")
}

// ownHeaders contains the headers that the HTTP connection sets itself.
var ownHeaders = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true, "connection": true, "upgrade": true,
	"te": true, "trailer": true, "keep-alive": true, "proxy-connection": true, "proxy-authorization": true,
	"expect": true,
}

const contentType = "content-type"

func (p *parser) headers(o *read.Object, in *inputs, use func(string, diag.Place)) map[string]string {
	v := o.Get("headers", read.Optional)
	if !p.Is(v, doc.Object) {
		return nil
	}
	headers := make(map[string]string, v.Len())
	var names read.Seen
	for h := range v.Each() {
		name := h.Key()
		folded := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			p.Report(ruleHeaderName, h.KeyPlace(), "", "%s is not the name of a header", diag.Quote(name))
		case ownHeaders[folded]:
			p.Report(ruleHeaderName, h.KeyPlace(), "remove the header; the HTTP connection sets it",
				"the header %s is reserved for the HTTP connection", diag.Quote(name))
		case !names.Add(folded):
			p.Report(ruleDuplicateHeader, h.KeyPlace(), "", "the header %s is set twice", diag.Quote(name))
		}
		if !p.Is(h, doc.String) {
			continue
		}
		if !httpguts.ValidHeaderFieldValue(h.Text()) {
			p.Report(ruleHeaderValue, h.Place(), "", "the header %s contains a line break or control character",
				diag.Quote(name))
		}
		found := p.checkTemplate(h, inHeader, in, use)
		if len(found) > 0 && folded == contentType {
			p.Report(ruleContentType, h.Place(), "", "%s contains a placeholder", diag.Quote(name))
		}
		if len(found) == 0 && h.Text() != "" && secretlike.Name(name) {
			at := h.Place()
			p.Source.Mask(at.Start, at.End)
			p.Report(ruleLiteralCredential, at, "",
				"the header %s usually holds a credential, but the manifest contains the value itself", diag.Quote(name))
		}
		headers[name] = h.Text()
	}
	return headers
}

// checkBody checks the placeholders of a body, and whether a JSON body is valid.
func (p *parser) checkBody(v doc.Value, a *Action, in *inputs) {
	kind := kindOfBody(a)
	at, ok := placeOf[kind]
	if !ok {
		at = inBody
	}
	found := p.checkTemplate(v, at, in, nil)
	if a.Method == "GET" || a.Method == "HEAD" {
		p.Report(ruleBodyUnsent, v.KeyPlace(), "", "a %s request must not have a body", a.Method)
	}
	switch {
	case kind == agent.JSONBody && !json.Valid(fillPlaceholders(v.Text(), found)):
		p.Report(ruleBodyJSON, v.Place(), "", "the body is not JSON after its placeholders are replaced")
	case kind == agent.UnknownBody && len(found) > 0:
		p.Report(ruleBodyEscape, v.Place(), "", "ambit cannot escape values in a body of this content type")
	}
}

// kindOfBody returns how the values in the body of an action are escaped.
func kindOfBody(a *Action) agent.BodyKind {
	return agent.KindOfBody(agent.HTTP{Headers: a.Headers}.ContentType(), a.BodyTemplate)
}

// fillPlaceholders replaces each placeholder with a sample value. The sample value is a character if the placeholder is
// inside a JSON string, and null otherwise.
func fillPlaceholders(s string, found []agent.Placeholder) []byte {
	out := make([]byte, 0, len(s))
	pos, quoted := 0, false
	for _, ph := range found {
		out, quoted = appendText(out, s[pos:ph.Start], quoted)
		if quoted {
			out = append(out, 'x')
		} else {
			out = append(out, "null"...)
		}
		pos = ph.End
	}
	return append(out, s[pos:]...)
}

// appendText appends a piece of JSON to a buffer. If quoted is true, the piece begins inside a JSON string. The second
// result reports whether the piece also ends inside a JSON string.
func appendText(out []byte, s string, quoted bool) ([]byte, bool) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		}
	}
	return append(out, s...), quoted
}
