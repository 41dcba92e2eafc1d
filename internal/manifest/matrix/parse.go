package matrix

import (
	"math/big"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/tooluri"
)

// foreignNames maps field names of other formats to field names of this dialect.
var foreignNames = map[string]string{
	"mcpServers": "servers", "mcp_servers": "servers", "required_mcp_servers": "servers",
	"id": "agent", "uri": "endpoint", "serverUrl": "endpoint", "httpUrl": "endpoint", "address": "endpoint",
	"type": "transport", "digest": "package_digest", "sha256": "package_digest", "integrity": "package_digest",
	"side_effect": "side_effect_class", "sideEffect": "side_effect_class", "timeout": "timeout_ms",
	"name": "alias", "permissions": "allowed_side_effects", "capabilities": "allowed_side_effects",
	"environment": "env", "arguments": "args", "cmd": "command",
}

// fromClient is the hint for the field "mcpServers", which people copy from an MCP client's configuration. The servers
// in such a configuration lack fields that a manifest requires.
const fromClient = "this field is from an MCP client's configuration; " +
	`in a manifest, "servers" is a list, and its entries also have alias, version and tools`

var hints = map[string]string{"mcpServers": fromClient, "mcp_servers": fromClient}

type parser struct {
	read.Reader
	noTools bool // whether an empty list of tools is accepted
}

// Parse parses a manifest and reports every broken rule.
func Parse(root doc.Value, rep *diag.Reporter) *AgentManifest { return parse(root, rep, false) }

// ParseNoTools is like Parse, but accepts servers whose list of tools is empty.
func ParseNoTools(root doc.Value, rep *diag.Reporter) *AgentManifest { return parse(root, rep, true) }

func parse(root doc.Value, rep *diag.Reporter, noTools bool) *AgentManifest {
	reader := read.Reader{Reporter: rep, Foreign: foreignNames, Unknown: diag.UnknownField, Hints: hints}
	p := &parser{reader, noTools}
	m := &AgentManifest{}
	o := p.Object(root)
	o.String("$schema", read.Optional)
	if v := o.Get("schema_version", read.Required); p.Is(v, doc.Number) {
		n, ok := v.Int()
		if m.SchemaVersion = int(n); !ok || n != schemaVersion {
			p.Report(ruleSchemaVersion, v.Place(), "", "schema_version must be 1, which is the only version")
		}
	}
	if v := o.Get("agent", read.Required); p.Is(v, doc.String) {
		m.Agent = v.Text()
		if name, ok := strings.CutPrefix(m.Agent, agentPrefix); (!ok || !isAgentName(name)) && !isDIDKey(m.Agent) {
			hint := ""
			if isAgentName(m.Agent) {
				hint = "write " + diag.Quote(agentPrefix+m.Agent)
			}
			p.Report(ruleAgent, v.Place(), hint, "%s is neither matrix://agent/<name> nor the did:key of an Ed25519 key",
				diag.Quote(m.Agent))
		}
	}
	m.Description, _ = o.String("description", read.Optional)
	m.AllowedSideEffects = p.allowed(o)
	m.Servers = p.servers(o)
	m.NativeTools = p.nativeTools(o)
	o.Done()
	if servers := root.Get("servers"); servers.Is(doc.Array) && servers.Len() == 0 && len(m.NativeTools) == 0 {
		p.Report(ruleNoServers, servers.Place(), "", "the agent has no servers, so it cannot do anything")
	}
	return m
}

// isDIDKey reports whether a string is the did:key identifier of an Ed25519 key: the two bytes of the key's multicodec
// and the 32 bytes of the key, in the base58btc form of multibase.
func isDIDKey(s string) bool {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	text, ok := strings.CutPrefix(s, didKeyPrefix+"z")
	if !ok || len(text) != 47 {
		return false
	}
	n, base := new(big.Int), big.NewInt(int64(len(alphabet)))
	for i := range len(text) {
		digit := strings.IndexByte(alphabet, text[i])
		if digit < 0 {
			return false
		}
		n.Add(n.Mul(n, base), big.NewInt(int64(digit)))
	}
	b := n.Bytes()
	return len(b) == 34 && b[0] == 0xed && b[1] == 0x01
}

// isAgentName reports whether a string is a valid agent name. A valid name is safe in paths and as a file name.
func isAgentName(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

func (p *parser) allowed(o *read.Object) []string {
	classes := p.Distinct(o.List("allowed_side_effects", read.Optional), p.isClass)
	switch v := o.Value().Get("allowed_side_effects"); {
	case o.Ok() && !v.Ok():
		p.Report(ruleAllowsNothing, o.Value().MissingPlace("allowed_side_effects"), "",
			"allowed_side_effects is missing, so the agent cannot call any tool")
	case v.Is(doc.Array) && v.Len() == 0:
		p.Report(ruleAllowsNothing, v.Place(), "", "allowed_side_effects is empty, so the agent cannot call any tool")
	}
	return classes
}

// isClass reports whether a value is a side-effect class. If not, it records a diagnostic.
func (p *parser) isClass(v doc.Value) bool {
	if agent.SideEffect(v.Text()).Rank() < len(agent.SideEffects) {
		return true
	}
	words := make([]string, len(agent.SideEffects))
	for i, c := range agent.SideEffects {
		words[i] = string(c)
	}
	hint := diag.DidYouMean(v.Text(), words)
	p.Report(ruleSideEffect, v.Place(), hint, "%s is not a side-effect class", diag.Quote(v.Text()))
	return false
}

func (p *parser) servers(o *read.Object) []ServerEntry {
	list := o.List("servers", read.Required)
	servers := make([]ServerEntry, 0, list.Len())
	var aliases read.Seen
	for v := range list.Each() {
		s := p.server(v)
		if s.Alias != "" && !aliases.Add(s.Alias) {
			p.Report(ruleDuplicateAlias, v.Get("alias").Place(), "", "another server already has the alias %s",
				diag.Quote(s.Alias))
		}
		servers = append(servers, s)
	}
	return servers
}

func (p *parser) server(v doc.Value) ServerEntry {
	var s ServerEntry
	o := p.Object(v)
	if alias := o.Get("alias", read.Required); p.Is(alias, doc.String) {
		s.Alias = alias.Text()
		if !tooluri.IsAlias(s.Alias) {
			hint := ""
			if lower := strings.ToLower(s.Alias); tooluri.IsAlias(lower) {
				hint = "write " + diag.Quote(lower)
			}
			p.Report(ruleAlias, alias.Place(), hint, "%s is not a valid alias; use 1 to 128 of the characters a-z, 0-9, _ and -",
				diag.Quote(s.Alias))
		}
	}
	s.Transport = p.transport(o)
	s.Command, _ = o.String("command", read.Optional)
	if program, rest, ok := strings.Cut(s.Command, " "); ok && rest != "" && !strings.ContainsAny(program, `/\`) {
		shown := s.Command
		if len(secretlike.Args(strings.Fields(rest))) > 0 {
			shown = program + " …"
		}
		p.Report(ruleCommandLine, o.Value().Get("command").Place(), "", "the command %s contains arguments", diag.Quote(shown))
	}
	s.Args = o.AnyTexts("args", read.Optional)
	s.Env = p.env(o)
	s.Headers = p.headers(o)
	s.Endpoint = p.endpoint(o)
	s.Version = p.version(o)
	s.PackageDigest = p.digest(o, "package_digest", read.Presence(s.Transport == "stdio"))
	p.perTransport(o, &s)
	s.Tools = p.tools(o)
	p.checkArgs(o, &s)
	s.Extension = p.extension(o.Get("x-ambit", read.Optional))
	o.Done()
	return s
}

func (p *parser) extension(v doc.Value) *Extension {
	if !v.Ok() {
		return nil
	}
	o := p.Object(v)
	e := &Extension{Reach: p.Rights(o.Get("reach", read.Optional))}
	e.Required, _ = o.Bool("required", read.Optional)
	e.Review = o.Texts("review", read.Optional)
	o.Done()
	return e
}

func (p *parser) transport(o *read.Object) string {
	v := o.Get("transport", read.Required)
	if !p.Is(v, doc.String) {
		return ""
	}
	switch t := v.Text(); t {
	case "stdio", "http":
		return t
	case "sse":
		p.Report(ruleSSE, v.Place(), "", "the transport \"sse\" is not supported")
	default:
		hint := diag.DidYouMean(t, []string{"stdio", "http"})
		if t == "streamable-http" || t == "streamable_http" || t == "streamableHttp" || t == "https" {
			hint = `for streamable HTTP, write "http"`
		}
		p.Report(ruleTransport, v.Place(), hint, "%s is not a transport", diag.Quote(t))
	}
	return ""
}

func (p *parser) version(o *read.Object) string {
	v := o.Get("version", read.Required)
	if !p.Is(v, doc.String) {
		return ""
	}
	if _, err := tooluri.ParsePin(v.Text()); err != nil {
		hint := ""
		if exact := strings.TrimLeft(v.Text(), "v^~=<> "); isPin(exact) {
			hint = "write the exact version, such as " + diag.Quote(exact)
		}
		p.Report(ruleVersion, v.Place(), hint, "%s is not an exact version", diag.Quote(v.Text()))
	}
	return v.Text()
}

func isPin(s string) bool {
	_, err := tooluri.ParsePin(s)
	return err == nil
}

func (p *parser) digest(o *read.Object, key string, need read.Presence) string {
	v := o.Get(key, need)
	if !p.Is(v, doc.String) {
		return ""
	}
	switch d := v.Text(); {
	case !tooluri.IsDigest(d):
		hint := ""
		switch {
		case tooluri.IsDigest(strings.ToLower(d)):
			hint = "use lower-case hex digits"
		case tooluri.IsDigest("sha256:" + d):
			hint = `put "sha256:" in front of the digits`
		case strings.HasPrefix(d, "sha512-"):
			hint = "this value is npm's SHA-512 hash; to compute the SHA-256 digest, run: ambit lock PATH"
		}
		p.Report(ruleDigest, v.Place(), hint, "%s must be \"sha256:\" followed by 64 lower-case hex digits", key)
	case d == tooluri.ZeroDigest:
		p.Report(ruleZeroDigest, v.Place(), "", "%s is the all-zero placeholder", key)
	}
	return v.Text()
}

// perTransport checks that a server has all required fields for its transport. It reports fields that belong to the
// other transport.
func (p *parser) perTransport(o *read.Object, s *ServerEntry) {
	var others []string
	switch s.Transport {
	case "stdio":
		if v := o.Value().Get("command"); !v.Ok() || v.Is(doc.String) && v.Text() == "" {
			at := v.Place()
			if !v.Ok() {
				at = o.Value().MissingPlace("command")
			}
			p.Report(ruleCommand, at, "", "a stdio server needs a command")
		}
		others = []string{"endpoint", "url", "headers"}
	case "http":
		if !o.Value().Get("endpoint").Ok() && !o.Value().Get("url").Ok() {
			p.Report(ruleEndpoint, o.Value().MissingPlace("endpoint"), "", "an http server needs an endpoint")
		}
		if d := o.Value().Get("package_digest"); tooluri.IsDigest(s.PackageDigest) && s.PackageDigest != tooluri.ZeroDigest {
			p.Report(ruleRemoteDigest, d.Place(), "",
				"ambit cannot compare package_digest with the program of an http server, because ambit does not start it")
		}
		others = []string{"command", "args", "env"}
	}
	reach := o.Value().Get("x-ambit").Get("reach")
	if s.Transport == "http" && reach.Ok() {
		p.Report(ruleOtherTransport, reach.KeyPlace(), "", "\"reach\" has no effect on a server with the transport \"http\"")
	}
	for _, key := range others {
		if v := o.Value().Get(key); v.Ok() && !(v.Len() == 0 && (v.Is(doc.Array) || v.Is(doc.Object))) {
			p.Report(ruleOtherTransport, v.KeyPlace(), "", "%s has no effect on a server with the transport %s", diag.Quote(key),
				diag.Quote(s.Transport))
		}
	}
}

func (p *parser) tools(o *read.Object) []ToolEntry {
	list := o.List("tools", read.Required)
	if list.Ok() && list.Len() == 0 && !p.noTools {
		p.Report(ruleNoTools, list.Place(), "", "\"tools\" must list every tool that the server advertises")
	}
	tools := make([]ToolEntry, 0, list.Len())
	var seen read.Seen
	for v := range list.Each() {
		var t ToolEntry
		o := p.Object(v)
		if name := o.Get("name", read.Required); p.Is(name, doc.String) {
			t.Name = name.Text()
			switch {
			case !tooluri.IsName(t.Name):
				p.toolName(name)
			case !seen.Add(t.Name):
				p.Report(ruleDuplicateTool, name.Place(), "", "the tool %s is already listed", diag.Quote(t.Name))
			}
		}
		t.Description, _ = o.String("description", read.Optional)
		t.SideEffectClass = p.toolClass(o, read.Required)
		if t.SideEffectClass == string(agent.Chain) {
			p.Report(ruleChainClass, v.Get("side_effect_class").Place(), "",
				"the class \"chain\" is only for native tools, not for tools on a server")
		}
		t.TimeoutMS, _ = o.Int("timeout_ms", read.Optional, 0, maxTimeoutMS)
		o.Done()
		tools = append(tools, t)
	}
	return tools
}

func (p *parser) toolName(v doc.Value) {
	hint := ""
	if strings.Contains(v.Text(), "*") {
		hint = "list each tool by its own name"
	}
	p.Report(ruleToolName, v.Place(), hint, "%s is not a valid tool name; use 1 to 128 letters, digits, _, - and .",
		diag.Quote(v.Text()))
}

// maxTimeoutMS is one day. A longer timeout would not be a useful limit.
const maxTimeoutMS = 24 * 60 * 60 * 1000

func (p *parser) toolClass(o *read.Object, need read.Presence) string {
	v := o.Get("side_effect_class", need)
	if !p.Is(v, doc.String) || !p.isClass(v) {
		return ""
	}
	return v.Text()
}

func (p *parser) nativeTools(o *read.Object) []NativeToolEntry {
	list := o.List("native_tools", read.Optional)
	var tools []NativeToolEntry
	var seen read.Seen
	for v := range list.Each() {
		var t NativeToolEntry
		o := p.Object(v)
		if ns := o.Get("namespace", read.Required); p.Is(ns, doc.String) {
			t.Namespace = ns.Text()
			if !slices.Contains(namespaces, t.Namespace) {
				p.Report(ruleNamespace, ns.Place(), diag.DidYouMean(t.Namespace, namespaces),
					"%s is not a namespace of native tools", diag.Quote(t.Namespace))
			}
		}
		if name := o.Get("name", read.Required); p.Is(name, doc.String) {
			t.Name = name.Text()
			if !tooluri.IsName(t.Name) {
				p.toolName(name)
			}
		}
		t.Version = p.version(o)
		t.Digest = p.digest(o, "digest", read.Required)
		t.Description, _ = o.String("description", read.Optional)
		t.SideEffectClass = p.toolClass(o, read.Optional)
		o.Done()
		key := t.Namespace + "/" + t.Name + "@" + t.Version
		if t.Name != "" && !seen.Add(key) {
			p.Report(ruleDuplicateNative, v.Get("name").Place(), "", "%s is already listed", diag.Quote(key))
		}
		tools = append(tools, t)
	}
	return tools
}
