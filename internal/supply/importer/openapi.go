package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
	"github.com/ambit-run/ambit/manifest"
)

// openAPISource is the value of Result.Source for an OpenAPI description.
const openAPISource = "an OpenAPI description"

// maxTools is the maximum number of tools in a FindAgent manifest.
const maxTools = 40

// api holds the state while an OpenAPI description is converted.
type api struct {
	*builder
	root map[string]any
	docs documents
	base string // the scheme, host and path prefix of the address of every operation
	host string
	m    findagent.Manifest
	// slots maps security schemes to credential slots. The slot is nil if the scheme is not supported.
	slots map[string]*slot
	// following contains the references that are being followed. It is used to detect cycles.
	following map[string]bool
	// schemasLeft is the number of schemas that can still be added to the current tool. bytesLeft is their maximum total
	// size.
	schemasLeft, bytesLeft int
	// deepest is the depth to which a schema is copied.
	deepest int
	// cleaned contains the converted schemas.
	cleaned map[converted]cleaned
	// names contains the names of the tools so far.
	names map[string]bool
}

type slot struct {
	findagent.CredentialSlot
	header, value string // the header to send; empty for a bearer token
	used          bool
}

// openAPI converts the OpenAPI description at a path. Operations become http tools. Security schemes become credential
// slots for the host of the API.
func (b *builder) openAPI(path, name string, root map[string]any) (*Result, error) {
	if v := text(root["openapi"]); !strings.HasPrefix(v, "3.") {
		return nil, fail("convert the file to OpenAPI 3 first", "only OpenAPI 3 is supported")
	}
	info := object(root["info"])
	title := cmp.Or(text(info["title"]), name)
	b.withholdDefaults(root)
	a := &api{
		builder: b, root: root, docs: documents{folder: filepath.Dir(path), files: map[string]any{}},
		slots: map[string]*slot{}, following: map[string]bool{}, cleaned: map[converted]cleaned{}, names: map[string]bool{},
	}
	a.m = b.findAgent(title, text(info["description"]),
		fmt.Sprintf("Use your tools to work with the API %s. Choose the tool that fits the request, "+
			"take the values for its parameters from the user and never invent them, and report what the API returned. Ask "+
			"before you change or delete anything.", title))
	a.m.Kind = string(agent.MCPTool)
	a.m.ExamplePrompts = []string{cut("What can you do with "+a.m.Name+"?", 200)}
	a.m.Delivery = &findagent.Delivery{Stdio: &findagent.Stdio{}}
	b.note(Guessed, "system_prompt", "the prompt is generic; adapt it to your agent")
	b.note(Guessed, "example_prompts", "write one to five example requests")
	chosen, err := a.operations()
	if err == nil {
		a.server(chosen)
		a.schemes()
		err = a.addTools(chosen)
	}
	if a.docs.err != nil || err != nil {
		return nil, cmp.Or(a.docs.err, err)
	}
	if len(a.m.Tools) == 0 {
		return nil, fail("", "no operation can be converted to a tool%s", b.reasons())
	}
	a.m.CredentialSlots = a.usedSlots("")
	a.askBeforeDeleting()
	out, err := encode(a.m)
	return &Result{
		Source: openAPISource, Dialect: agent.FindAgent, Name: agent.Slug(a.m.Name), Text: out, Next: "inspect",
	}, err
}

// askBeforeDeleting makes each destructive tool wait for a person's approval.
func (a *api) askBeforeDeleting() {
	actions := map[string]findagent.ActionRails{}
	for _, t := range a.m.Tools {
		if t.Annotations != nil && t.Annotations.Destructive != nil && *t.Annotations.Destructive {
			actions[t.Name] = findagent.ActionRails{Approval: "human"}
		}
	}
	if len(actions) > 0 {
		a.m.Guardrails = &findagent.Guardrails{Actions: actions}
		a.note(Guessed, "guardrails", "a person must approve each call that deletes; to change that, edit guardrails.actions")
	}
}

// server sets the address of the API to the first public address in the description or in one of the chosen operations.
func (a *api) server(chosen []operation) {
	holders := []map[string]any{a.root}
	for _, o := range chosen {
		holders = append(holders, o.op, o.item)
	}
	for _, h := range holders {
		servers := list(h["servers"])
		if base, host, i := a.publicServer(servers); base != "" {
			if a.base, a.host = base, host; len(servers) > 1 {
				a.note(Dropped, "servers", "only address %d of %d is used", i+1, len(servers))
			}
			return
		}
	}
	a.base, a.host = "https://"+noHost, noHost
	problem := "the description has no public address"
	for _, h := range holders {
		for _, item := range list(h["servers"]) {
			u, err := url.Parse(serverURL(object(item)))
			if err != nil || a.base != "https://"+noHost || strings.ContainsAny(u.Path, "{}") {
				continue
			}
			if kept, ok := a.cleanURL("servers", a.base+"/"+strings.TrimPrefix(u.EscapedPath(), "/")); ok {
				a.base = strings.TrimSuffix(kept, "/")
			}
			if u.Host != "" {
				problem = a.scrub(cut(u.Host, 200)) + " is not a public address"
			}
		}
	}
	a.note(Guessed, "servers", "%s, so replace %s in every tool and credential slot; to test with a server on this machine, "+
		"write its address there, and add --dev to each command", problem, noHost)
}

// noHost stands for the host of an API whose description has no public address.
const noHost = "api.example.com"

// serverURL returns the URL of a server in the description, with the default values of its variables.
func serverURL(o map[string]any) string {
	raw, vars := text(o["url"]), object(o["variables"])
	for _, v := range sorted(vars) {
		raw = strings.ReplaceAll(raw, "{"+v+"}", text(object(vars[v])["default"]))
	}
	return raw
}

// address returns the address of an operation, which can differ from the address of the API. An operation at another
// host is left out, because the credentials are for one host.
func (a *api) address(what string, o operation) (base string, ok bool) {
	servers := list(o.op["servers"])
	if len(servers) == 0 {
		servers = list(o.item["servers"])
	}
	base, host, _ := a.publicServer(servers)
	switch {
	case base == "":
		return a.base, true
	case host != a.host:
		a.note(Dropped, what, "the operation is at another host, %s: create another agent for this operation with --only",
			host)
		return "", false
	}
	return base, true
}

// publicServer returns the first public address in a list of servers, its host, and its index in the list. With
// [Options.LoopbackHTTP], an address on this machine is treated as public.
func (a *api) publicServer(servers []any) (base, host string, index int) {
	for i, item := range servers {
		raw := serverURL(object(item))
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(raw, "{}") {
			continue
		}
		if here := u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1"; here && a.loopback {
			if kept, ok := a.cleanURL("servers", u.Scheme+"://"+u.Host+u.EscapedPath()); ok {
				a.note(Guessed, "servers", "the address is on this machine, so add --dev to each command, or set AMBIT_DEV=1")
				return strings.TrimSuffix(kept, "/"), u.Hostname(), i
			}
			continue
		}
		if !strings.Contains(u.Hostname(), ".") {
			continue
		}
		if u.Scheme == "http" {
			a.note(Guessed, "servers", "the address begins with http://; https:// is used instead")
		}
		kept, ok := a.cleanURL("servers", "https://"+u.Host+u.EscapedPath())
		if !ok || !usable(u.Hostname()) {
			continue
		}
		return strings.TrimSuffix(kept, "/"), strings.ToLower(u.Hostname()), i
	}
	return "", "", 0
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

var notName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// tool converts one operation to a tool. The second result is false if the operation cannot be converted. If the schema
// of the input is too large, the tool gets a schema with fewer levels.
func (a *api) tool(o operation) (findagent.Tool, bool) {
	what := "operation " + o.String()
	if tokenLike(o.path) && a.scrub(o.path) != o.path {
		a.note(Dropped, "operation", "an operation is left out, because its path seems to contain a secret")
		return findagent.Tool{}, false
	}
	problem := ""
	for _, a.deepest = range []int{maxLevels, 3, 1, 0} {
		t, ok := a.build(what, o)
		if !ok {
			return t, false
		}
		if problem = a.problem(t); problem == "" {
			if a.deepest < maxLevels {
				a.note(Guessed, what, "the schema of the input is too large, so only its first levels are copied")
			}
			a.names[t.Name] = true
			return t, true
		}
	}
	a.note(Dropped, what, "the operation is left out: %s", problem)
	return findagent.Tool{}, false
}

// problem returns the reason why a manifest cannot contain a tool, or "" if it can.
func (a *api) problem(t findagent.Tool) string {
	if a.bytesLeft < 0 || len(t.InputSchema) > maxSchema {
		return "the schema of its input is too large for a manifest"
	}
	alone := a.m
	alone.Tools, alone.CredentialSlots = []findagent.Tool{t}, a.usedSlots(t.Action.AuthRef)
	text, err := encode(alone)
	if err == nil && a.containsWithheld(string(text)) {
		return "it contains a value that could be a secret"
	}
	if err == nil {
		_, err = manifest.Parse("imported.json", text,
			manifest.Options{Dialect: agent.FindAgent, LoopbackHTTP: a.loopback})
	}
	if e, ok := errors.AsType[*manifest.InvalidError](err); ok && len(e.Manifest.Errors()) > 0 {
		return e.Manifest.Errors()[0].Message
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// usedSlots returns the credential slots that tools use, or only the slot with the given ref.
func (a *api) usedSlots(ref string) []findagent.CredentialSlot {
	var slots []findagent.CredentialSlot
	for _, name := range sorted(a.slots) {
		if s := a.slots[name]; s != nil && s.used && (ref == "" || s.Ref == ref) {
			slots = append(slots, s.CredentialSlot)
		}
	}
	return slots
}

// build converts one operation to a tool. The result can still be too large for a manifest.
func (a *api) build(what string, o operation) (findagent.Tool, bool) {
	name := strings.Trim(notName.ReplaceAllString(
		cmp.Or(text(o.op["operationId"]), o.method+"_"+strings.Trim(o.path, "/{}")), "_"), "_")
	name = cut(name, 100)
	for base, n := name, 2; a.names[name]; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	t := findagent.Tool{
		Name: name, Description: cut(strings.TrimSpace(a.scrub(cmp.Or(text(o.op["description"]), text(o.op["summary"]),
			o.String()))), 1000),
	}
	if t.Description == "" {
		t.Description = name
	}
	act := &findagent.Action{Type: "http", Method: strings.ToUpper(o.method), Headers: map[string]string{}}
	base, ok := a.address(what, o)
	if !ok || !a.authorize(what, o.op, act) {
		return t, false
	}
	a.schemasLeft, a.bytesLeft = maxSchemas, maxSchema
	in := newInput(a)
	query, ok := in.addParameters(what, o.path, list(o.item["parameters"]), list(o.op["parameters"]), act)
	if !ok || !in.addBody(what, o.method, o.op, act) {
		return t, false
	}
	act.URL = base + in.path + query
	if len(act.Headers) == 0 {
		act.Headers = nil
	}
	schema, err := json.Marshal(in.schema())
	if err != nil {
		a.note(Dropped, what, "the schema of the input cannot be written as JSON")
		return t, false
	}
	t.InputSchema, t.Action = schema, act
	yes := true
	switch o.method {
	case "get", "head":
		t.Annotations = &agent.Annotations{ReadOnly: &yes}
	case "delete":
		t.Annotations = &agent.Annotations{Destructive: &yes}
	}
	return t, true
}

// maxLevels is the maximum number of levels of an input schema.
const maxLevels = 6

// maxSchema is the maximum size of an input schema in bytes. maxSchemas is the maximum number of schemas within an
// input schema. Without maxSchemas, a few references could expand to very many schemas.
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
