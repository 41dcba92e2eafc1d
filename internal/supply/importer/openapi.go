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

// maxTools is the limit of a FindAgent manifest.
const maxTools = 40

// api is an OpenAPI description that is being converted.
type api struct {
	*builder
	root map[string]any
	base string // scheme, host and path of every operation
	host string
	m    findagent.Manifest
	// slots are the credential slots by security scheme; nil for an unsupported
	// scheme.
	slots map[string]*slot
	// open are the references that are being followed. schemasLeft is the number of schemas
	// that a tool may still have.
	open        map[string]bool
	schemasLeft int
}

type slot struct {
	findagent.CredentialSlot
	header, value string // how it is sent, if not as a bearer token
	used          bool
}

// openAPI converts operations to http tools, and security schemes to credential slots
// for the API's host.
func (b *builder) openAPI(name string, root map[string]any) (*Result, error) {
	if v := text(root["openapi"]); !strings.HasPrefix(v, "3.") {
		return nil, fail("convert it to OpenAPI 3 first", "only OpenAPI 3 is supported")
	}
	info := object(root["info"])
	title := cmp.Or(text(info["title"]), name)
	b.withholdDefaults(root)
	a := &api{builder: b, root: root, slots: map[string]*slot{}, open: map[string]bool{}}
	a.m = b.findAgent(title, text(info["description"]), fmt.Sprintf("You work with the API %s with your tools. Choose the tool that fits the request, "+
		"take the values for its parameters from the user and never invent them, and report what the API returned. Ask before you change or delete anything.", title))
	a.m.Kind = string(agent.MCPTool)
	a.m.ExamplePrompts = []string{cut("What can you do with "+a.m.Name+"?", 200)}
	a.m.Delivery = &findagent.Delivery{Stdio: &findagent.Stdio{}}
	b.note(Guessed, "system_prompt", "a general one is filled in")
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
	return &Result{Source: "an OpenAPI description", Dialect: agent.FindAgent, Name: agent.Slug(a.m.Name), Text: out, Next: "inspect"}, err
}

// server uses the first public https address.
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
		if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(raw, "{}") || !strings.Contains(u.Hostname(), ".") {
			continue
		}
		if u.Scheme == "http" {
			a.note(Guessed, "servers", "the address is plain http; https is used instead")
		}
		kept, ok := a.address("servers", "https://"+u.Host+u.EscapedPath())
		if !ok || !usable(u.Hostname()) {
			continue
		}
		a.base, a.host = strings.TrimSuffix(kept, "/"), strings.ToLower(u.Hostname())
		if len(servers) > 1 {
			a.note(Dropped, "servers", "address %d of %d is used", i+1, len(servers))
		}
		return
	}
	a.base, a.host = "https://api.example.com", "api.example.com"
	a.note(Guessed, "servers", "there is no public address: replace api.example.com in every tool and slot")
}

// usable reports whether a credential may be bound to a host.
func usable(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && !slices.Contains([]string{"local", "internal", "localhost", "localdomain", "lan", "home", "corp"}, last) && (last[0] < '0' || last[0] > '9')
}

// schemes converts security schemes to slots.
func (a *api) schemes() {
	all := object(object(a.root["components"])["securitySchemes"])
	for _, name := range sorted(all) {
		o := a.resolve(all[name])
		ref := slotRef(name)
		s := &slot{CredentialSlot: findagent.CredentialSlot{
			Ref: ref, Label: cut(cmp.Or(a.scrub(name), "Credential"), 80), Env: variable(ref), AllowedHosts: []string{a.host}, Type: "secret", Description: cut(a.scrub(text(o["description"])), 500),
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
			a.note(Guessed, "slot "+s.Ref, "the value is user:password in base64")
		case kind == "apiKey" && text(o["in"]) == "header" && httpguts.ValidHeaderFieldName(text(o["name"])):
			s.header, s.value = text(o["name"]), "{credential}"
		case kind == "oauth2" || kind == "openIdConnect":
			a.note(Guessed, "slot "+s.Ref, "get an access token and set it: ambit does not sign in")
		default:
			a.note(Dropped, "security scheme "+name, "credentials are sent in a header only")
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
		a.note(Dropped, "operations", "%d are left out: an agent has at most %d tools; create a second agent for the rest", left, maxTools)
	}
}

var notName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// tool converts one operation.
func (a *api) tool(path, method string, item, op map[string]any) (findagent.Tool, bool) {
	name := strings.Trim(notName.ReplaceAllString(cmp.Or(text(op["operationId"]), method+"_"+strings.Trim(path, "/{}")), "_"), "_")
	name = cut(name, 100)
	for base, n := name, 2; slices.ContainsFunc(a.m.Tools, func(t findagent.Tool) bool { return t.Name == name }); n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	what := "operation " + strings.ToUpper(method) + " " + path
	if tokenLike(path) && a.scrub(path) != path {
		a.note(Dropped, "operation", "its path contains something that looks like a secret")
		return findagent.Tool{}, false
	}
	t := findagent.Tool{Name: name, Description: cut(strings.TrimSpace(a.scrub(cmp.Or(text(op["description"]), text(op["summary"]), strings.ToUpper(method)+" "+path))), 1000)}
	if t.Description == "" {
		t.Description = name
	}
	act := &findagent.Action{Type: "http", Method: strings.ToUpper(method), Headers: map[string]string{}}
	if !a.authorize(what, op, act) {
		return t, false
	}
	a.schemasLeft = maxSchemas
	in := newInput(a)
	query, ok := in.parameters(what, path, list(item["parameters"]), list(op["parameters"]), act)
	if !ok || !in.body(what, method, op, act) {
		return t, false
	}
	act.URL = a.base + in.path + query
	if len(act.Headers) == 0 {
		act.Headers = nil
	}
	schema, err := json.Marshal(in.schema())
	if err != nil || len(schema) > maxSchema {
		a.note(Dropped, what, "its input is too large to describe")
		return t, false
	}
	t.InputSchema, t.Action = schema, act
	yes := true
	switch method {
	case "get", "head":
		t.Annotations = &findagent.Annotations{ReadOnlyHint: &yes}
	case "delete":
		t.Annotations = &findagent.Annotations{DestructiveHint: &yes}
	}
	return t, true
}

// maxSchema is a manifest's limit. maxSchemas limits the schemas within one, since a
// few references can expand to very many.
const (
	maxSchema  = 60 << 10
	maxSchemas = 1000
)

// authorize uses the first supported security requirement.
func (a *api) authorize(what string, op map[string]any, act *findagent.Action) bool {
	required, said := op["security"].([]any)
	if !said {
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
	a.note(Dropped, what, "its credential cannot be sent in one header")
	return false
}
