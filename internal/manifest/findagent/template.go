package findagent

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/jsonschema"
)

// inputs are the properties that can fill a tool's placeholders, computed on first
// use.
type inputs struct {
	schema doc.Value
	known  bool
	open   bool
	names  []string
	many   map[string]bool
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
		in.open = true // it was reported already
	}
	if len(in.names) > 16 {
		in.many = make(map[string]bool, len(in.names))
		for _, n := range in.names {
			in.many[n] = true
		}
	}
}

// has reports whether the tool's input can have a property of that name.
func (in *inputs) has(name string) bool {
	in.load()
	if in.many != nil {
		return in.open || in.many[name]
	}
	return in.open || slices.Contains(in.names, name)
}

// credential is the placeholder for the value of an action's slot.
const credential = "credential"

// place is the part of an action that contains a template.
type place uint8

const (
	inURL place = iota
	inHeader
	inBody
	inPrompt
)

// exact reports whether every brace there belongs to a placeholder. Elsewhere
// braces can be part of the text.
func (at place) exact() bool { return at == inURL || at == inHeader }

// template checks the placeholders of v and returns them. It reports, for each
// {credential} or {credential.FIELD} in a header, to use.
func (p *parser) template(v doc.Value, at place, in *inputs, use func(field string, at diag.Place)) []agent.Placeholder {
	found, stray := agent.Placeholders(v.Text())
	if at.exact() {
		p.strayBraces(v, stray)
	}
	for _, ph := range found {
		name, field, _ := strings.Cut(ph.Name, ".")
		where := func() diag.Place { return v.Within(ph.Start, ph.End) }
		switch {
		case !at.exact() && doubled(v.Text(), ph):
			p.Report(ruleBraces, where(), "write "+strings.Trim(diag.Quote("{"+ph.Name+"}"), `"`), "placeholders have single braces")
		case name == credential:
			if at != inHeader {
				p.Report(ruleCredentialPlace, where(), "", "a credential is put only into a header")
			} else if use != nil {
				use(field, where())
			}
		case in.has(ph.Name):
		case !in.schema.Ok():
			p.Report(ruleUnbound, where(), "add an input_schema with the property "+diag.Quote(ph.Name),
				"nothing fills %s: the tool has no input_schema", diag.Quote("{"+ph.Name+"}"))
		default:
			p.Report(ruleUnbound, where(), p.meant(ph.Name, in.names),
				"nothing fills %s: input_schema has no such property", diag.Quote("{"+ph.Name+"}"))
		}
	}
	return found
}

// doubled reports whether a placeholder has double braces.
func doubled(s string, ph agent.Placeholder) bool {
	return ph.Start > 0 && s[ph.Start-1] == '{' && ph.End < len(s) && s[ph.End] == '}'
}

// strayBraces reports the braces that belong to no placeholder, each pair once.
func (p *parser) strayBraces(v doc.Value, stray []int) {
	s := v.Text()
	skip := -1
	for _, i := range stray {
		if i == skip {
			continue
		}
		end := strings.IndexAny(s[i+1:], "{}") + i + 1 // i if there is none
		switch {
		case s[i] == '}':
			p.Report(ruleBraces, v.Within(i, i+1), "", "a closing brace without an opening one")
		case end == i || s[end] == '{' && end > i+1:
			p.Report(ruleBraces, v.Within(i, i+1), "", "the brace is not closed")
		case s[end] == '}':
			skip = end
			p.Report(ruleBraces, v.Within(i, end+1), "", "%s is not a placeholder", diag.Quote(s[i:end+1]))
		default: // two opening ones, and as a rule two closing ones
			if closing := strings.Index(s[end:min(end+200, len(s))], "}}"); closing > 0 {
				skip = end + closing + 1
			}
			p.Report(ruleBraces, v.Within(i, end+1), "", "placeholders have single braces")
		}
	}
}
