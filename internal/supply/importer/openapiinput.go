package importer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
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

// add adds a property to the input, and returns its name and its placeholder. The parameter wire is the name in the
// API. In the new name, characters that a placeholder cannot contain are replaced. The last result is false if no
// usable name remains.
func (in *input) add(wire string, must bool, schema map[string]any, modifier string) (name, placeholder string, ok bool) {
	name = strings.Trim(notProperty.ReplaceAllString(wire, "_"), "_.-")
	if name != "" && '0' <= name[0] && name[0] <= '9' || name == "credential" || strings.HasPrefix(name, "credential.") {
		name = "p_" + name
	}
	if name = cut(name, 60); name == "" || in.scrub(wire) != wire {
		return "", "", false
	}
	for base, n := name, 2; in.properties[name] != nil; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	if name != wire { // describe the original name, so that a model can distinguish created< and created>
		schema["description"] = strings.TrimSpace(fmt.Sprintf("%s The API calls it %s.", text(schema["description"]), clean(wire)))
	}
	in.properties[name] = schema
	if must {
		in.required = append(in.required, name)
	}
	return name, "{" + name + modifier + "}", true
}

var notProperty = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// modifier returns the modifier of a placeholder for a value that may be absent.
func modifier(must bool) string {
	if must {
		return ""
	}
	return agent.Optional
}

// parameters returns the parameters of an operation. An object in the query is sent as one parameter per member, unless
// the style of the object is deepObject.
func (in *input) parameters(shared, own []any) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, item := range slices.Concat(shared, own) {
		p := in.resolve(item)
		schema := in.resolve(p["schema"])
		members := object(schema["properties"])
		if text(p["in"]) != "query" || len(members) == 0 || text(p["style"]) == "deepObject" {
			all[text(p["in"])+" "+text(p["name"])] = p
			continue
		}
		needed := texts(schema["required"])
		for _, name := range sorted(members) {
			all["query "+name] = map[string]any{
				"in": "query", "name": name, "schema": members[name],
				"required": truth(p["required"]) && slices.Contains(needed, name),
			}
		}
	}
	return all
}

// addParameters adds the path, query and header parameters of an operation to the input and to the action. An optional
// parameter becomes an optional part of the request.
func (in *input) addParameters(what, path string, shared, own []any, act *findagent.Action) (query string, ok bool) {
	all := in.parameters(shared, own)
	names := map[string]string{} // the placeholders of the path
	var pairs []string
	for _, key := range sorted(all) {
		p := all[key]
		wire, where := text(p["name"]), text(p["in"])
		must := truth(p["required"]) || where == "path"
		schema, separator := in.parameterSchema(p)
		as := modifier(must)
		if where == "query" && separator == "" && p["content"] == nil && (isKind(schema, "array") || isKind(schema, "object")) {
			as = agent.Repeated
		}
		used := false
		switch where {
		case "path":
			if !strings.Contains(path, "{"+wire+"}") {
				continue
			}
			_, names[wire], used = in.add(wire, must, schema, "")
		case "query":
			var placeholder string
			if _, placeholder, used = in.add(wire, must, schema, as); used {
				if text(p["style"]) == "deepObject" && isKind(schema, "array") {
					wire += "[]"
				}
				pairs = append(pairs, url.QueryEscape(wire)+"="+placeholder)
			}
		case "header":
			if !httpguts.ValidHeaderFieldName(wire) || reservedHeaders[http.CanonicalHeaderKey(wire)] || hasHeader(act, wire) {
				continue
			}
			var placeholder string
			if _, placeholder, used = in.add(wire, must, schema, as); used {
				act.Headers[wire] = placeholder
			}
		case "cookie":
			if must {
				in.note(Dropped, what, "the operation requires the cookie %s, but ambit does not send cookies", wire)
				return "", false
			}
			continue
		}
		switch {
		case used:
		case must || where == "":
			in.note(Dropped, what, "a required parameter has no usable name, or its reference leads nowhere")
			return "", false
		default:
			in.note(Dropped, what, "an optional parameter is left out, because its name is not usable")
		}
	}
	if in.path, ok = in.fillPath(what, path, names); !ok {
		return "", false
	}
	if len(pairs) > 0 {
		query = "?" + strings.Join(pairs, "&")
	}
	return query, true
}

// reservedHeaders contains the headers that OpenAPI does not treat as parameters, and the headers that the HTTP client
// sets.
var reservedHeaders = map[string]bool{
	"Accept": true, "Content-Type": true, "Authorization": true, "Host": true, "Content-Length": true,
	"Transfer-Encoding": true, "Connection": true, "Accept-Encoding": true, "Expect": true, "Cookie": true,
}

func hasHeader(act *findagent.Action, name string) bool {
	for other := range act.Headers {
		if strings.EqualFold(other, name) {
			return true
		}
	}
	return false
}

// parameterSchema returns the schema of a parameter. If a list is sent as one string, the results are the schema of a
// string and the separator of the elements.
func (in *input) parameterSchema(p map[string]any) (schema map[string]any, separator string) {
	raw := p["schema"]
	for _, kind := range sorted(object(p["content"])) {
		raw = object(object(p["content"])[kind])["schema"]
	}
	schema = in.clean(raw, 0)
	var about []string
	if d := strings.TrimSpace(in.scrub(text(p["description"]))); d != "" {
		about = append(about, cut(d, 500))
	} else if d := text(schema["description"]); d != "" {
		about = append(about, d)
	}
	if d, ok := in.resolve(raw)["default"]; ok && sendable(d) {
		about = append(about, fmt.Sprintf("Default: %v.", d))
	}
	if isKind(schema, "array") && p["content"] == nil {
		explode, set := p["explode"].(bool)
		switch style := text(p["style"]); {
		case style == "pipeDelimited":
			separator = "|"
		case style == "spaceDelimited":
			separator = "a space"
		case text(p["in"]) != "query", set && !explode:
			separator = ","
		}
		if separator != "" {
			about = append(about, "Several values are separated by "+separator+".")
			schema = map[string]any{"type": "string"}
		}
	}
	if len(about) > 0 {
		schema["description"] = strings.Join(about, " ")
	}
	return schema, separator
}

// isKind reports whether a converted schema allows values of the given type.
func isKind(schema map[string]any, kind string) bool {
	if schema["type"] == kind || slices.Contains(list(schema["type"]), any(kind)) ||
		schema["type"] == nil && kind == "object" && schema["properties"] != nil {
		return true
	}
	for _, word := range []string{"allOf", "anyOf"} {
		for _, part := range list(schema[word]) {
			if isKind(object(part), kind) {
				return true
			}
		}
	}
	return false
}

// fillPath returns the path of the operation with the placeholders of the tool. A parameter that the description omits
// becomes a string.
func (in *input) fillPath(what, path string, names map[string]string) (string, bool) {
	usable := true
	filled := pathParameter.ReplaceAllStringFunc(plainPath(path), func(found string) string {
		wire := found[1 : len(found)-1]
		if names[wire] == "" {
			in.note(Guessed, what, "the parameter %s in the path is not described, so it is assumed to be a string", wire)
			var ok bool
			_, names[wire], ok = in.add(wire, true, map[string]any{"type": "string"}, "")
			usable = usable && ok
		}
		return names[wire]
	})
	if !usable {
		in.note(Dropped, what, "the name of a parameter in the path is not usable")
	}
	return filled, usable
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

// addBody adds the body of an operation to the input. JSON or text becomes one property with the schema of the body. A
// form becomes one property for each field. addBody returns false for any other format.
func (in *input) addBody(what, method string, op map[string]any, act *findagent.Action) bool {
	if op["requestBody"] == nil || method == "get" || method == "head" {
		return true
	}
	body := in.resolve(op["requestBody"])
	content := object(body["content"])
	kind, key := bodyKind(content)
	media := object(content[key])
	if kind == formType {
		return in.addForm(what, media, act)
	}
	schema := in.clean(media["schema"], 0)
	switch {
	case kind == "" && len(content) > 0:
		types := strings.Join(sorted(content), ", ")
		if strings.Contains(types, "multipart/") {
			in.note(Dropped, what, "the operation uploads files as %s, which ambit does not send", types)
		} else {
			in.note(Dropped, what, "the operation needs a body of the type %s, but ambit sends only JSON, forms and text", types)
		}
		return false
	case kind == "":
		in.note(Dropped, what, "the body of the operation is not described, or its reference leads nowhere")
		return false
	case kind == textType || key == "*/*" && isKind(schema, "string"):
		kind, schema["type"] = textType, "string"
	}
	if d := strings.TrimSpace(in.scrub(text(body["description"]))); d != "" {
		schema["description"] = cut(d, 500)
	}
	must := truth(body["required"])
	_, act.BodyTemplate, _ = in.add("body", must, schema, modifier(must))
	act.Headers["Content-Type"] = kind
	return true
}

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
	textType = "text/plain"
)

// bodyKind chooses the format of a body. The results are the content type to send, and the key of the chosen format in
// content. Both are empty if ambit can send none of the formats.
func bodyKind(content map[string]any) (kind, key string) {
	best := 0
	for _, k := range sorted(content) {
		base, _, _ := strings.Cut(strings.ToLower(k), ";")
		rank, send := 0, jsonType
		switch base = strings.TrimSpace(base); {
		case base == jsonType:
			rank = 5
		case strings.HasSuffix(base, "+json") && httpguts.ValidHeaderFieldValue(base):
			rank, send = 4, base
		case base == formType:
			rank, send = 3, base
		case base == "*/*" || base == "application/*":
			rank = 2
		case base == textType:
			rank, send = 1, base
		}
		if rank > best {
			best, kind, key = rank, send, k
		}
	}
	return kind, key
}

// addForm adds the fields of a form to the input and to the action. In a request, a list or an object is sent as
// several fields.
func (in *input) addForm(what string, media map[string]any, act *findagent.Action) bool {
	fields, required := map[string]any{}, []string{}
	collect(in.clean(media["schema"], 0), fields, &required)
	var pairs []string
	for _, wire := range sorted(fields) {
		schema := object(fields[wire])
		must := slices.Contains(required, wire)
		as, key := modifier(must), wire
		if isKind(schema, "array") || isKind(schema, "object") {
			as = agent.Repeated
			if text(object(object(media["encoding"])[wire])["style"]) == "deepObject" && isKind(schema, "array") &&
				!isKind(object(schema["items"]), "object") {
				key += "[]"
			}
		}
		_, placeholder, ok := in.add(wire, must, schema, as)
		switch {
		case ok:
			pairs = append(pairs, url.QueryEscape(key)+"="+placeholder)
		case must:
			in.note(Dropped, what, "the name of a required field is not usable")
			return false
		default:
			in.note(Dropped, what, "an optional field is left out, because its name is not usable")
		}
	}
	if len(pairs) == 0 {
		in.note(Dropped, what, "the operation sends a form whose fields are not described")
		return false
	}
	act.Headers["Content-Type"], act.BodyTemplate = formType, strings.Join(pairs, "&")
	return true
}

// collect adds the properties of a converted schema to fields, and the names of required properties to required.
func collect(schema map[string]any, fields map[string]any, required *[]string) {
	for name, field := range object(schema["properties"]) {
		fields[name] = field
	}
	names, _ := schema["required"].([]string)
	*required = append(*required, names...)
	for _, part := range list(schema["allOf"]) {
		collect(object(part), fields, required)
	}
}
