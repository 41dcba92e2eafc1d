package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
)

// maxTools is the maximum number of tools in a FindAgent manifest.
const maxTools = 40

// api holds the state while an OpenAPI description is converted.
type api struct {
	*builder
	root map[string]any
	base string // scheme, host and path prefix of every operation
	host string
	m    findagent.Manifest
	// slots maps security schemes to credential slots. The slot is nil if the scheme is not supported.
	slots map[string]*slot
	// following contains the references that are being followed. It is used to detect cycles. schemasLeft is the number
	// of schemas that can still be added to the current tool.
	following   map[string]bool
	schemasLeft int
}

type slot struct {
	findagent.CredentialSlot
	header, value string // the header to send; empty for a bearer token
	used          bool
}

// openAPI converts an OpenAPI description. Operations become http tools. Security schemes become credential slots for
// the host of the API.
func (b *builder) openAPI(name string, root map[string]any) (*Result, error) {
	if v := text(root["openapi"]); !strings.HasPrefix(v, "3.") {
		return nil, fail("convert the file to OpenAPI 3 first", "only OpenAPI 3 is supported")
	}
	info := object(root["info"])
	title := cmp.Or(text(info["title"]), name)
	b.withholdDefaults(root)
	a := &api{builder: b, root: root, slots: map[string]*slot{}, following: map[string]bool{}}
	a.m = b.findAgent(title, text(info["description"]),
		fmt.Sprintf("Use your tools to work with the API %s. Choose the tool that fits the request, "+
			"take the values for its parameters from the user and never invent them, and report what the API returned. Ask "+
			"before you change or delete anything.", title))
	a.m.Kind = string(agent.MCPTool)
	a.m.ExamplePrompts = []string{cut("What can you do with "+a.m.Name+"?", 200)}
	a.m.Delivery = &findagent.Delivery{Stdio: &findagent.Stdio{}}
	b.note(Guessed, "system_prompt", "the prompt is generic; adapt it to your agent")
	b.note(Guessed, "example_prompts", "write one to five example requests")
	a.server()
	a.schemes()
	a.operations()
	if len(a.m.Tools) == 0 {
		return nil, fail("", "no operation can be converted to a tool%s", b.reasons())
	}
	for _, name := range sorted(a.slots) {
		if s := a.slots[name]; s != nil && s.used {
			a.m.CredentialSlots = append(a.m.CredentialSlots, s.CredentialSlot)
		}
	}
	out, err := encode(a.m)
	return &Result{
		Source: "an OpenAPI description", Dialect: agent.FindAgent, Name: agent.Slug(a.m.Name), Text: out, Next: "inspect",
	}, err
}

// server sets the address of the API to the first public address in the description.
func (a *api) server() {
	servers := list(a.root["servers"])
	for i, item := range servers {
		o := object(item)
		raw := text(o["url"])
		vars := object(o["variables"])
		for _, v := range sorted(vars) {
			raw = strings.ReplaceAll(raw, "{"+v+"}", text(object(vars[v])["default"]))
		}
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(raw, "{}") ||
			!strings.Contains(u.Hostname(), ".") {
			continue
		}
		if u.Scheme == "http" {
			a.note(Guessed, "servers", "the address begins with http://; https:// is used instead")
		}
		kept, ok := a.cleanURL("servers", "https://"+u.Host+u.EscapedPath())
		if !ok || !usable(u.Hostname()) {
			continue
		}
		a.base, a.host = strings.TrimSuffix(kept, "/"), strings.ToLower(u.Hostname())
		if len(servers) > 1 {
			a.note(Dropped, "servers", "only address %d of %d is used", i+1, len(servers))
		}
		return
	}
	a.base, a.host = "https://api.example.com", "api.example.com"
	a.note(Guessed, "servers",
		"the description has no public address, so replace api.example.com in every tool and credential slot")
}

// usable reports whether host is a public host name, as required for the hosts of a credential slot.
func usable(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && !slices.Contains([]string{"local", "internal", "localhost", "localdomain", "lan", "home", "corp"},
		last) && (last[0] < '0' || last[0] > '9')
}

// schemes converts security schemes to credential slots.
func (a *api) schemes() {
	all := object(object(a.root["components"])["securitySchemes"])
	for _, name := range sorted(all) {
		o := a.resolve(all[name])
		ref := slotRef(name)
		s := &slot{CredentialSlot: findagent.CredentialSlot{
			Ref: ref, Label: cut(cmp.Or(a.scrub(name), "Credential"), 80), Env: variable(ref), AllowedHosts: []string{a.host},
			Type: "secret", Description: cut(a.scrub(text(o["description"])), 500),
		}}
		for _, other := range sorted(a.slots) {
			if t := a.slots[other]; t != nil && (t.Ref == s.Ref || t.Env == s.Env) {
				s.Ref += fmt.Sprintf("_%d", len(a.slots)+1)
				s.Env = variable(s.Ref)
			}
		}
		kind, scheme := text(o["type"]), strings.ToLower(text(o["scheme"]))
		switch {
		case kind == "http" && scheme == "bearer":
		case kind == "http" && scheme == "basic":
			s.header, s.value = "Authorization", "Basic {credential}"
			a.note(Guessed, "slot "+s.Ref, "set the value to user:password, encoded in base64")
		case kind == "apiKey" && text(o["in"]) == "header" && httpguts.ValidHeaderFieldName(text(o["name"])):
			s.header, s.value = text(o["name"]), "{credential}"
		case kind == "oauth2" || kind == "openIdConnect":
			a.note(Guessed, "slot "+s.Ref, "get an access token and set it as the value, because ambit does not sign in")
		default:
			a.note(Dropped, "security scheme "+name, "the scheme is not supported: ambit sends credentials only in a header")
			s = nil
		}
		a.slots[name] = s
	}
}

var notRef = regexp.MustCompile(`[^A-Za-z0-9_]+`)

func slotRef(name string) string {
	ref := strings.Trim(notRef.ReplaceAllString(name, "_"), "_")
	if ref == "" || ref[0] < 'A' || '0' <= ref[0] && ref[0] <= '9' {
		ref = "credential_" + ref
	}
	return strings.ToLower(ref)
}

var methods = []string{"get", "head", "post", "put", "patch", "delete"}

func (a *api) operations() {
	paths := object(a.root["paths"])
	left := 0
	for _, path := range sorted(paths) {
		item := a.resolve(paths[path])
		for _, method := range methods {
			op := object(item[method])
			if op == nil {
				continue
			}
			if len(a.m.Tools) == maxTools {
				left++
				continue
			}
			if t, ok := a.tool(path, method, item, op); ok {
				a.m.Tools = append(a.m.Tools, t)
			}
		}
	}
	if left > 0 {
		a.note(Dropped, "operations",
			"%d operations are left out, because an agent can have at most %d tools: create a second agent for them",
			left, maxTools)
	}
}

var notName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// tool converts one operation to a tool. The second result is false if the operation cannot be converted.
func (a *api) tool(path, method string, item, op map[string]any) (findagent.Tool, bool) {
	name := strings.Trim(notName.ReplaceAllString(cmp.Or(text(op["operationId"]), method+"_"+strings.Trim(path, "/{}")),
		"_"), "_")
	name = cut(name, 100)
	for base, n := name, 2; slices.ContainsFunc(a.m.Tools, func(t findagent.Tool) bool { return t.Name == name }); n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	what := "operation " + strings.ToUpper(method) + " " + path
	if tokenLike(path) && a.scrub(path) != path {
		a.note(Dropped, "operation", "an operation is left out, because its path seems to contain a secret")
		return findagent.Tool{}, false
	}
	t := findagent.Tool{
		Name: name, Description: cut(strings.TrimSpace(a.scrub(cmp.Or(text(op["description"]), text(op["summary"]),
			strings.ToUpper(method)+" "+path))), 1000),
	}
	if t.Description == "" {
		t.Description = name
	}
	act := &findagent.Action{Type: "http", Method: strings.ToUpper(method), Headers: map[string]string{}}
	if !a.authorize(what, op, act) {
		return t, false
	}
	a.schemasLeft = maxSchemas
	in := newInput(a)
	query, ok := in.addParameters(what, path, list(item["parameters"]), list(op["parameters"]), act)
	if !ok || !in.addBody(what, method, op, act) {
		return t, false
	}
	act.URL = a.base + in.path + query
	if len(act.Headers) == 0 {
		act.Headers = nil
	}
	schema, err := json.Marshal(in.schema())
	if err != nil || len(schema) > maxSchema {
		a.note(Dropped, what, "the schema of the input is too large for a manifest")
		return t, false
	}
	t.InputSchema, t.Action = schema, act
	yes := true
	switch method {
	case "get", "head":
		t.Annotations = &agent.Annotations{ReadOnly: &yes}
	case "delete":
		t.Annotations = &agent.Annotations{Destructive: &yes}
	}
	return t, true
}

// maxSchema is the maximum size of an input schema in bytes. maxSchemas is the maximum number of schemas within an
// input schema. Without this limit, a few references could expand to very many schemas.
const (
	maxSchema  = 60 << 10
	maxSchemas = 1000
)

// authorize adds a credential to an action, for the first security requirement that ambit supports. It returns false if
// the operation needs a credential that ambit cannot send.
func (a *api) authorize(what string, op map[string]any, act *findagent.Action) bool {
	required, set := op["security"].([]any)
	if !set {
		required = list(a.root["security"])
	}
	if len(required) == 0 {
		return true
	}
	for _, item := range required {
		need := object(item)
		if len(need) == 0 {
			return true // authentication is optional
		}
		names := sorted(need)
		s := a.slots[names[0]]
		if len(names) > 1 || s == nil {
			continue
		}
		s.used, act.AuthRef = true, s.Ref
		if s.header != "" {
			act.Headers[s.header] = s.value
		}
		return true
	}
	a.note(Dropped, what, "the operation needs credentials that ambit cannot send in one header")
	return false
}
