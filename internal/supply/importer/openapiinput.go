package importer

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/internal/manifest/findagent"
)

// input is the input of a tool.
type input struct {
	*api
	path       string
	properties map[string]any
	required   []string
}

func newInput(a *api) *input { return &input{api: a, properties: map[string]any{}} }

func (in *input) schema() map[string]any {
	s := map[string]any{"type": "object", "properties": in.properties, "additionalProperties": false}
	if len(in.required) > 0 {
		slices.Sort(in.required)
		s["required"] = in.required
	}
	return s
}

var parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// parameters adds path, query and header parameters to the request. A template has no
// optional parts, so an optional parameter is kept only if its default can be sent.
func (in *input) parameters(what, path string, shared, own []any, act *findagent.Action) (query string, ok bool) {
	in.path = path
	all := map[string]map[string]any{}
	for _, item := range slices.Concat(shared, own) {
		p := in.resolve(item)
		all[text(p["in"])+" "+text(p["name"])] = p
	}
	var pairs []string
	for _, key := range sorted(all) {
		p := all[key]
		name, where := text(p["name"]), text(p["in"])
		inPath := where == "path"
		schema := in.clean(p["schema"], 0)
		if d := strings.TrimSpace(in.scrub(text(p["description"]))); d != "" {
			schema["description"] = cut(d, 500)
		}
		fallback, hasDefault := object(in.resolve(p["schema"]))["default"]
		hasDefault = hasDefault && sendable(fallback)
		must := truth(p["required"]) || inPath
		switch {
		case where == "cookie" || !inPath && where != "query" && where != "header":
			if must {
				in.note(Dropped, what, "it requires the cookie %s, and cookies are not sent", name)
				return "", false
			}
			continue
		case !parameterName.MatchString(name) || in.properties[name] != nil || in.scrub(name) != name:
			if must {
				in.note(Dropped, what, "a required parameter has no usable name")
				return "", false
			}
			in.note(Dropped, what, "an optional parameter without a usable name")
			continue
		case !must && !hasDefault, !must && (schema["type"] == "array" || schema["type"] == "object"):
			in.note(Dropped, what, "the optional parameter %s: a request's template has no optional parts", name)
			continue
		case where == "header" && !httpguts.ValidHeaderFieldName(name):
			continue
		}
		if must {
			in.required = append(in.required, name)
		}
		if hasDefault {
			schema["default"] = fallback
		}
		in.properties[name] = schema
		switch where {
		case "query":
			pairs = append(pairs, url.QueryEscape(name)+"={"+name+"}")
		case "header":
			act.Headers[name] = "{" + name + "}"
		}
	}
	for _, m := range pathParameter.FindAllStringSubmatch(path, -1) {
		if in.properties[m[1]] == nil {
			if !parameterName.MatchString(m[1]) {
				in.note(Dropped, what, "its path has a parameter without a usable name")
				return "", false
			}
			in.properties[m[1]] = map[string]any{"type": "string"}
			in.required = append(in.required, m[1])
			in.note(Guessed, what, "%s in its path is not described; it is assumed to be a string", m[1])
		}
	}
	in.path = plainPath(path)
	if len(pairs) > 0 {
		query = "?" + strings.Join(pairs, "&")
	}
	return query, true
}

var pathParameter = regexp.MustCompile(`\{([^{}]*)\}`)

// plainPath escapes invalid characters in an address, except in placeholders.
func plainPath(path string) string {
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "#")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return strings.NewReplacer(" ", "%20", "\\", "%5C").Replace(path)
}

// sendable are defaults that cannot be secrets.
func sendable(v any) bool {
	switch v := v.(type) {
	case bool:
		return true
	case json.Number:
		return len(v) <= 10
	case string:
		return harmless(v) || len(v) <= 12 && lowerWord.MatchString(v)
	}
	return false
}

var lowerWord = regexp.MustCompile(`^[a-z_]+$`)

// body adds a JSON body as one value, whose schema defines its optional parts.
func (in *input) body(what, method string, op map[string]any, act *findagent.Action) bool {
	if op["requestBody"] == nil || method == "get" || method == "head" {
		return true
	}
	body := in.resolve(op["requestBody"])
	content := object(body["content"])
	for _, kind := range sorted(content) {
		if base, _, _ := strings.Cut(kind, ";"); base != "application/json" && !strings.HasSuffix(base, "+json") {
			continue
		}
		schema := in.clean(object(content[kind])["schema"], 0)
		if d := strings.TrimSpace(in.scrub(text(body["description"]))); d != "" {
			schema["description"] = cut(d, 500)
		}
		name := "body"
		for in.properties[name] != nil {
			name += "_"
		}
		in.properties[name] = schema
		in.required = append(in.required, name)
		if !truth(body["required"]) {
			in.note(Guessed, what, "its body is optional, but the tool requires it")
		}
		act.Headers["Content-Type"], act.BodyTemplate = "application/json", "{"+name+"}"
		return true
	}
	in.note(Dropped, what, "its body is not JSON")
	return false
}

// resolve follows references within the document.
func (a *api) resolve(v any) map[string]any {
	for range 20 {
		o := object(v)
		ref := text(o["$ref"])
		if ref == "" {
			if o == nil {
				return map[string]any{}
			}
			return o
		}
		v = a.find(ref)
	}
	return map[string]any{}
}

func (a *api) find(ref string) any {
	rest, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		a.note(Dropped, "references", "a reference to another document is not fetched")
		return nil
	}
	var at any = a.root
	for part := range strings.SplitSeq(rest, "/") {
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		at = object(at)[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}

// keywords of a schema that are copied if they have the right type, and those that
// contain further schemas.
var (
	numberWords = []string{"minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
	types       = []string{"string", "number", "integer", "boolean", "array", "object", "null"}
)

const deepest = 6

// clean returns a schema with the keywords that JSON Schema and every OpenAPI 3 share.
// It drops examples and defaults, where people paste real values.
func (a *api) clean(v any, depth int) map[string]any {
	out := map[string]any{}
	ref := text(object(v)["$ref"])
	if a.schemasLeft--; a.schemasLeft < 0 || depth > deepest || ref != "" && a.open[ref] {
		return out // anything: a recursive schema is described once
	}
	a.open[ref] = true
	defer delete(a.open, ref)
	o := a.resolve(v)
	a.typed(o, out)
	for _, word := range numberWords {
		if n, ok := o[word].(json.Number); ok && !strings.HasPrefix(n.String(), "-") {
			if whole := !strings.ContainsAny(n.String(), ".eE"); whole || word == "minimum" || word == "maximum" {
				if word != "multipleOf" || n.String() != "0" {
					out[word] = n
				}
			}
		}
	}
	if d := strings.TrimSpace(a.scrub(text(o["description"]))); d != "" {
		out["description"] = cut(d, 300)
	}
	if f := text(o["format"]); lowerWord.MatchString(strings.ReplaceAll(f, "-", "_")) {
		out["format"] = f
	}
	if p := text(o["pattern"]); p != "" && len(p) < 200 && a.scrub(p) == p {
		if _, err := regexp.Compile(p); err == nil {
			out["pattern"] = p
		}
	}
	if items, ok := o["items"]; ok {
		out["items"] = a.clean(items, depth+1)
	}
	a.members(o, out, depth)
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		var parts []any
		for _, item := range list(o[word]) {
			parts = append(parts, a.clean(item, depth+1))
		}
		if len(parts) > 0 {
			out[word] = parts
		}
	}
	return out
}

// typed copies the type and the choice of values.
func (a *api) typed(o, out map[string]any) {
	var kinds []any
	for _, t := range append(texts([]any{o["type"]}), texts(o["type"])...) {
		if slices.Contains(types, t) && !slices.Contains(kinds, any(t)) {
			kinds = append(kinds, t)
		}
	}
	if truth(o["nullable"]) && len(kinds) > 0 && !slices.Contains(kinds, any("null")) {
		kinds = append(kinds, "null")
	}
	switch len(kinds) {
	case 0:
	case 1:
		out["type"] = kinds[0]
	default:
		out["type"] = kinds
	}
	var choice []any
	for _, e := range list(o["enum"]) {
		if s, isText := e.(string); isText && a.scrub(s) != s {
			continue
		}
		if !slices.ContainsFunc(choice, func(c any) bool { return c == e }) && scalar(e) {
			choice = append(choice, e)
		}
	}
	if len(choice) > 0 {
		if truth(o["nullable"]) && !slices.Contains(choice, nil) {
			choice = append(choice, nil)
		}
		out["enum"] = choice
	}
}

func scalar(v any) bool {
	switch v.(type) {
	case nil, string, bool, json.Number:
		return true
	}
	return false
}

// members copies the properties of an object.
func (a *api) members(o, out map[string]any, depth int) {
	props := object(o["properties"])
	if len(props) == 0 {
		return
	}
	kept := map[string]any{}
	var readOnly []string
	for _, name := range sorted(props) {
		p := a.resolve(props[name])
		if truth(p["readOnly"]) {
			readOnly = append(readOnly, name)
			continue
		}
		kept[name] = a.clean(props[name], depth+1)
	}
	out["properties"] = kept
	var required []string
	for _, name := range texts(o["required"]) {
		if kept[name] != nil && !slices.Contains(readOnly, name) && !slices.Contains(required, name) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		out["required"] = required
	}
}

// withholdDefaults withholds every example and default that looks like a secret.
func (b *builder) withholdDefaults(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, item := range v {
			if s, ok := item.(string); ok && (k == "example" || k == "default" || k == "value") && tokenLike(s) {
				b.withhold(s)
			}
			b.withholdDefaults(item)
		}
	case []any:
		for _, item := range v {
			b.withholdDefaults(item)
		}
	}
}
