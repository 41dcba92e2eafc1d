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

// mostTools is what a FindAgent manifest may have.
const mostTools = 40

// api is an OpenAPI description on its way into a manifest.
type api struct {
	*builder
	root map[string]any
	base string // scheme, host and path that every operation stands below
	host string
	m    findagent.Manifest
	// slots are the credential slots by the name of their security scheme;
	// nil for a scheme that cannot be used.
	slots map[string]*slot
	// open are the references that are being followed, and room is how many
	// schemas a tool may still have.
	open map[string]bool
	room int
}

type slot struct {
	findagent.CredentialSlot
	header, value string // how it is sent, if not as a bearer token
	used          bool
}

// openAPI makes http tools of operations, and credential slots of security
// schemes, bound to the host of the API.
func (b *builder) openAPI(name string, root map[string]any) (*Result, error) {
	if v := text(root["openapi"]); !strings.HasPrefix(v, "3.") {
		return nil, fail("convert it to OpenAPI 3 first", "only OpenAPI 3 is understood")
	}
	info := object(root["info"])
	title := cmp.Or(text(info["title"]), name)
	b.holdDefaults(root)
	a := &api{builder: b, root: root, slots: map[string]*slot{}, open: map[string]bool{}}
	a.m = b.findAgent(title, text(info["description"]), fmt.Sprintf("You work with the API %s through the tools that you have. Choose the one tool that fits what you are asked for, "+
		"take the values for its parameters from the person and never make them up, and tell what the API answered. Ask before you change or delete anything.", title))
	a.m.Kind = string(agent.MCPTool)
	a.m.ExamplePrompts = []string{cut("What can you do with "+a.m.Name+"?", 200)}
	a.m.Delivery = &findagent.Delivery{Stdio: &findagent.Stdio{}}
	b.note(Guessed, "system_prompt", "a general one is filled in")
	b.note(Guessed, "example_prompts", "write one to five that show what to ask for")
	a.server()
	a.schemes()
	a.operations()
	if len(a.m.Tools) == 0 {
		return nil, fail("", "no operation in it can be made a tool%s", b.because())
	}
	for _, name := range sorted(a.slots) {
		if s := a.slots[name]; s != nil && s.used {
			a.m.CredentialSlots = append(a.m.CredentialSlots, s.CredentialSlot)
		}
	}
	out, err := encode(a.m)
	return &Result{Source: "an OpenAPI description", Dialect: agent.FindAgent, Name: agent.Slug(a.m.Name), Text: out, Next: "inspect"}, err
}

// server takes the first address that is one of a public host over https.
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
			a.note(Guessed, "servers", "the address is plain http; https is taken instead")
		}
		kept, ok := a.address("servers", "https://"+u.Host+u.EscapedPath())
		if !ok || !usable(u.Hostname()) {
			continue
		}
		a.base, a.host = strings.TrimSuffix(kept, "/"), strings.ToLower(u.Hostname())
		if len(servers) > 1 {
			a.note(Dropped, "servers", "address %d of %d is taken", i+1, len(servers))
		}
		return
	}
	a.base, a.host = "https://api.example.com", "api.example.com"
	a.note(Guessed, "servers", "it names no public address: api.example.com stands for it in every tool and slot")
}

// usable are hosts that a credential may be bound to.
func usable(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && !slices.Contains([]string{"local", "internal", "localhost", "localdomain", "lan", "home", "corp"}, last) && (last[0] < '0' || last[0] > '9')
}

// schemes makes slots of the ways to sign in.
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
			a.note(Guessed, "slot "+s.Ref, "somebody has to get an access token and set it: ambit does not sign in")
		default:
			a.note(Dropped, "security scheme "+name, "a credential is sent only in a header")
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
			if len(a.m.Tools) == mostTools {
				left++
				continue
			}
			if t, ok := a.tool(path, method, item, op); ok {
				a.m.Tools = append(a.m.Tools, t)
			}
		}
	}
	if left > 0 {
		a.note(Dropped, "operations", "%d of them: an agent has at most %d tools; make a second agent for the rest", left, mostTools)
	}
}

var notName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// tool makes one operation a tool.
func (a *api) tool(path, method string, item, op map[string]any) (findagent.Tool, bool) {
	name := strings.Trim(notName.ReplaceAllString(cmp.Or(text(op["operationId"]), method+"_"+strings.Trim(path, "/{}")), "_"), "_")
	name = cut(name, 100)
	for base, n := name, 2; slices.ContainsFunc(a.m.Tools, func(t findagent.Tool) bool { return t.Name == name }); n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	what := "operation " + strings.ToUpper(method) + " " + path
	if tokenLike(path) && a.scrub(path) != path {
		a.note(Dropped, "operation", "its path holds what looks like a secret")
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
	a.room = mostSchemas
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

// maxSchema is what a manifest takes, and mostSchemas how many there may be
// within one: references can make very many out of few.
const (
	maxSchema   = 60 << 10
	mostSchemas = 1000
)

// authorize picks the first way to sign in that can be used.
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
			return true // also without
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
