package action

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

const (
	typeJSON = "application/json"
	typeForm = "application/x-www-form-urlencoded"
	typeText = "text/plain; charset=utf-8"
)

// body fills a body's template and returns its default content type.
func (a arguments) body(template, contentType string) ([]byte, string, error) {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	kind = strings.TrimSpace(kind)
	if kind == "" && looksLikeJSON(template) {
		kind = typeJSON
	}
	var esc escape
	switch {
	case isJSON(kind):
		text, err := a.jsonBody(template)
		return text, typeJSON, err
	case kind == typeForm:
		esc = percent
	case kind == "application/xml", kind == "text/xml", kind == "text/html", strings.HasSuffix(kind, "+xml"):
		esc = xmlText
	case strings.HasPrefix(kind, "multipart/"):
		esc = oneLine
	default:
		esc = plain
	}
	text, err := a.fill(template, esc)
	return []byte(text), typeText, err
}

func isJSON(kind string) bool {
	return kind == typeJSON || kind == "text/json" || strings.HasSuffix(kind, "+json")
}

// looksLikeJSON guesses the type of a body without a content type. A form or text can start with a
// placeholder.
func looksLikeJSON(template string) bool {
	template = strings.TrimLeft(template, " \t\r\n")
	if template == "" || template[0] != '{' && template[0] != '[' {
		return false
	}
	found, _ := agent.Placeholders(template)
	return len(found) == 0 || found[0].Start > 0
}

// jsonBody fills a JSON template: a placeholder without quotes becomes the value, a placeholder inside
// quotes its text.
func (a arguments) jsonBody(template string) ([]byte, error) {
	found, _ := agent.Placeholders(template)
	var b bytes.Buffer
	at, quoted := 0, false
	for _, p := range found {
		before := template[at:p.Start]
		b.WriteString(before)
		quoted = inString(before, quoted)
		at = p.End
		v, err := a.value(p.Name)
		if err != nil {
			return nil, err
		}
		if quoted {
			if v, err = stringContent(v, a.missing(p.Name)); err != nil {
				return nil, err
			}
		}
		b.Write(v)
	}
	b.WriteString(template[at:])
	if !jsontext.Value(b.Bytes()).IsValid() {
		return nil, call.Refuse(stage, call.InputInvalid, "the body is not JSON with these values")
	}
	return b.Bytes(), nil
}

// inString reports whether a JSON string is open after some text.
func inString(text string, quoted bool) bool {
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == '\\' && quoted:
			i++
		}
	}
	return quoted
}

// stringContent returns a value as the content of a JSON string.
func stringContent(v jsontext.Value, missing error) (jsontext.Value, error) {
	text, err := textOf(v, missing)
	if err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, missing
	}
	return quoted[1 : len(quoted)-1], nil
}

func xmlText(text string) (string, error) {
	var b bytes.Buffer
	err := xml.EscapeText(&b, []byte(text))
	return b.String(), err
}

// oneLine refuses values that could end a part of a multipart body.
func oneLine(text string) (string, error) {
	if strings.ContainsAny(text, "\r\n\"") {
		return "", call.Refuse(stage, call.InputInvalid, "a value for a multipart body contains a line break or quote")
	}
	return text, nil
}
