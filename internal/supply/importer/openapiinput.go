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

// input holds the state while the input schema of a tool is built.
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

// addParameters adds the path, query and header parameters of an operation to the input and to the action. Because the
// template of a request has no optional parts, an optional parameter is added only if its default can be sent.
func (in *input) addParameters(what, path string, shared, own []any, act *findagent.Action) (query string, ok bool) {
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
				in.note(Dropped, what, "the operation requires the cookie %s, but ambit does not send cookies", name)
				return "", false
			}
			continue
		case !parameterName.MatchString(name) || in.properties[name] != nil || in.scrub(name) != name:
			if must {
				in.note(Dropped, what, "the name of a required parameter is not usable")
				return "", false
			}
			in.note(Dropped, what, "an optional parameter is left out, because its name is not usable")
			continue
		case !must && !hasDefault, !must && (schema["type"] == "array" || schema["type"] == "object"):
			in.note(Dropped, what, "the optional parameter %s is left out, because request templates have no optional parts",
				name)
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
				in.note(Dropped, what, "the name of a parameter in the path is not usable")
				return "", false
			}
			in.properties[m[1]] = map[string]any{"type": "string"}
			in.required = append(in.required, m[1])
			in.note(Guessed, what, "the parameter %s in the path is not described, so it is assumed to be a string", m[1])
		}
	}
	in.path = plainPath(path)
	if len(pairs) > 0 {
		query = "?" + strings.Join(pairs, "&")
	}
	return query, true
}

var pathParameter = regexp.MustCompile(`\{([^{}]*)\}`)

// plainPath returns a path that can be appended to the base address. It removes the query and the fragment, and
// escapes spaces and backslashes.
func plainPath(path string) string {
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "#")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return strings.NewReplacer(" ", "%20", "\\", "%5C").Replace(path)
}

// sendable reports whether a default value is certainly not a secret.
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

// addBody adds a JSON body to the input, as one property with the schema of the body. It returns false if the
// operation has a body that is not JSON.
func (in *input) addBody(what, method string, op map[string]any, act *findagent.Action) bool {
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
			in.note(Guessed, what, "the body is optional in the API, but the tool requires it")
		}
		act.Headers["Content-Type"], act.BodyTemplate = "application/json", "{"+name+"}"
		return true
	}
	in.note(Dropped, what, "the body of the request is not JSON")
	return false
}

// resolve follows references within the document, starting at v, and returns the referenced object. It returns v
// itself if v is an object without a reference. It returns an empty object if v is not an object.
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
		a.note(Dropped, "references", "references to other documents are ignored")
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

// numberWords lists the numeric schema keywords that are copied. typeNames lists the valid values of the schema keyword
// "type".
var (
	numberWords = []string{
		"minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
		"maxProperties",
	}
	typeNames = []string{"string", "number", "integer", "boolean", "array", "object", "null"}
)

const deepest = 6

// clean copies a schema. It copies a keyword only if JSON Schema and all versions of OpenAPI 3 define the keyword in
// the same way. Examples and defaults are dropped, because they often contain real secrets.
func (a *api) clean(v any, depth int) map[string]any {
	out := map[string]any{}
	ref := text(object(v)["$ref"])
	if a.schemasLeft--; a.schemasLeft < 0 || depth > deepest || ref != "" && a.following[ref] {
		return out // an empty schema allows any value
	}
	a.following[ref] = true
	defer delete(a.following, ref)
	o := a.resolve(v)
	a.copyType(o, out)
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
	a.copyProperties(o, out, depth)
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

// copyType copies the type and the enum from one schema to another.
func (a *api) copyType(o, out map[string]any) {
	var kinds []any
	for _, t := range append(texts([]any{o["type"]}), texts(o["type"])...) {
		if slices.Contains(typeNames, t) && !slices.Contains(kinds, any(t)) {
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

// copyProperties copies the properties from one schema to another, except read-only properties.
func (a *api) copyProperties(o, out map[string]any, depth int) {
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

// withholdDefaults calls withhold for every example or default in v that looks like a secret.
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
