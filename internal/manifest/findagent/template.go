package findagent

import (
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/jsonschema"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// inputs contains the names of the properties that can fill the placeholders of a tool. The names are loaded on first
// use.
type inputs struct {
	schema doc.Value
	known  bool
	open   bool
	names  []string
	seen   read.Seen
}

func (in *inputs) load() {
	if in.known {
		return
	}
	in.known = true
	switch in.schema.Kind() {
	case doc.Absent:
	case doc.Object:
		in.names, in.open = jsonschema.Properties(in.schema)
	default:
		in.open = true // the wrong type was already reported
	}
	for _, name := range in.names {
		in.seen.Add(name)
	}
}

// hasInput reports whether the tool's input can have a property with this name.
func (in *inputs) hasInput(name string) bool {
	in.load()
	return in.open || in.seen.Has(name)
}

// credential is the placeholder for the credential of an action.
const credential = "credential"

// place is a part of an action that can contain placeholders.
type place uint8

const (
	inURL place = iota
	inHeader
	inBody
	inForm
	inJSON
	inPrompt
)

// placeOf maps the kind of a body to the place of its placeholders. Other bodies have no fields or members.
var placeOf = map[agent.BodyKind]place{agent.FormBody: inForm, agent.JSONBody: inJSON}

// isPart reports whether a placeholder with a modifier is the whole value of a query parameter, header, form field or
// JSON member, or is the whole body. Only these parts of a request can be left out or repeated.
func (at place) isPart(s string, ph agent.Placeholder) bool {
	if _, whole := agent.Whole(strings.TrimSpace(s)); whole && ph.Modifier == agent.Optional {
		return at != inPrompt && at != inURL
	}
	begin := 0
	switch at {
	case inJSON:
		_, quoted := appendText(nil, s[:ph.Start], false)
		return ph.Modifier == agent.Optional && !quoted
	case inURL:
		if begin = strings.IndexByte(s, '?') + 1; begin == 0 || begin > ph.Start {
			return false
		}
	case inForm:
	default:
		return false
	}
	begin += strings.LastIndexByte(s[begin:ph.Start], '&') + 1
	return strings.IndexByte(s[begin:], '=') == ph.Start-begin-1 && (ph.End == len(s) || s[ph.End] == '&')
}

// strictBraces reports whether every brace must belong to a placeholder. Bodies and prompts can also contain braces as
// ordinary text.
func (at place) strictBraces() bool { return at == inURL || at == inHeader }

// checkTemplate checks the placeholders in a value and returns them. The callback, if any, is called for each
// {credential} or {credential.FIELD} in a header.
func (p *parser) checkTemplate(
	v doc.Value, at place, in *inputs, use func(field string, at diag.Place),
) []agent.Placeholder {
	found, stray := agent.Placeholders(v.Text())
	if at.strictBraces() {
		p.strayBraces(v, stray)
	}
	for _, ph := range found {
		name, field, _ := strings.Cut(ph.Name, ".")
		where := func() diag.Place { return v.Within(ph.Start, ph.End) }
		switch {
		case !at.strictBraces() && hasDoubleBraces(v.Text(), ph):
			p.Report(ruleBraces, where(), "write "+strings.Trim(diag.Quote("{"+ph.Name+"}"), `"`),
				"a placeholder must have single braces")
		case ph.Modifier != "" && (name == credential || !at.isPart(v.Text(), ph)):
			p.Report(rulePart, where(), "", "%s must be the whole value of a query parameter, "+
				"header, form field or JSON member, or the whole body",
				diag.Quote(v.Text()[ph.Start:ph.End]))
		case name == credential:
			if at != inHeader {
				p.Report(ruleCredentialPlace, where(), "", "a credential is allowed only in a header")
			} else if use != nil {
				use(field, where())
			}
		case in.hasInput(ph.Name):
		case !in.schema.Ok():
			p.Report(ruleUnbound, where(), "add an input_schema with the property "+diag.Quote(ph.Name),
				"%s has no value, because the tool has no input_schema", diag.Quote("{"+ph.Name+"}"))
		default:
			p.Report(ruleUnbound, where(), p.DidYouMean(ph.Name, in.names),
				"%s has no value, because input_schema has no such property", diag.Quote("{"+ph.Name+"}"))
		}
	}
	return found
}

// hasDoubleBraces reports whether a placeholder is written with double braces.
func hasDoubleBraces(s string, ph agent.Placeholder) bool {
	return ph.Start > 0 && s[ph.Start-1] == '{' && ph.End < len(s) && s[ph.End] == '}'
}

// strayBraces reports braces that do not belong to a placeholder. A pair of braces is reported only once.
func (p *parser) strayBraces(v doc.Value, stray []int) {
	s := v.Text()
	skip := -1
	for _, i := range stray {
		if i == skip {
			continue
		}
		end := strings.IndexAny(s[i+1:], "{}") + i + 1 // the index of the next brace; equal to i if there is none
		switch {
		case s[i] == '}':
			p.Report(ruleBraces, v.Within(i, i+1), "", "the closing brace has no opening brace")
		case end == i || s[end] == '{' && end > i+1:
			p.Report(ruleBraces, v.Within(i, i+1), "", "the brace is not closed")
		case s[end] == '}':
			skip = end
			p.Report(ruleBraces, v.Within(i, end+1), "", "%s is not a placeholder", diag.Quote(s[i:end+1]))
		default: // two opening braces, usually followed by two closing braces
			if closing := strings.Index(s[end:min(end+200, len(s))], "}}"); closing > 0 {
				skip = end + closing + 1
			}
			p.Report(ruleBraces, v.Within(i, end+1), "", "a placeholder must have single braces")
		}
	}
}
