package gpars

import (
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// These maps translate field names of other formats to field names of this dialect. The first map is for the top level,
// and the second map is for server entries.
var (
	foreignNames = map[string]string{
		"mcpServers": "required_mcp_servers", "mcp_servers": "required_mcp_servers", "servers": "required_mcp_servers",
		"tools": "required_mcp_servers", "capabilities": "required_mcp_servers", "requires": "required_mcp_servers",
		"optional_servers": "optional_mcp_servers", "optionalServers": "optional_mcp_servers",
		"agent": "id", "agent_id": "id", "name": "id", "slug": "id", "uri": "id",
		"metadata": "extensions", "_meta": "extensions", "x-extensions": "extensions",
	}
	foreignInEntry = map[string]string{
		"id": "server_id", "name": "server_id", "server": "server_id", "alias": "server_id", "uri": "server_id",
		"url": "server_id", "package": "server_id",
		"constraint": "version", "version_constraint": "version", "range": "version", "semver": "version",
		"scopes": "permission_scopes", "scope": "permission_scopes", "permissions": "permission_scopes",
		"tools": "permission_scopes", "capabilities": "permission_scopes",
	}
)

// hints contains the hints for certain fields of other formats.
var hints = map[string]string{
	"capabilities": "this field is from a later draft of GPARS; list the required servers under required_mcp_servers",
	"$schema":      "remove $schema, which GPARS manifests do not have, and set the schema in your editor instead",
}

type parser struct {
	read.Reader
	entry read.Reader
}

// Parse parses a manifest and reports every broken rule.
func Parse(root doc.Value, rep *diag.Reporter) *Manifest {
	p := &parser{
		Reader: read.Reader{Reporter: rep, Foreign: foreignNames, Unknown: ruleUnknown, Hints: hints},
		entry: read.Reader{
			Reporter: rep, Foreign: foreignInEntry, Unknown: ruleUnknown,
			UnknownHint: "an entry has only server_id, version and permission_scopes; " +
				`put other data under "extensions" of the manifest`,
		},
	}
	m := &Manifest{}
	o := p.Object(root)
	m.ID = p.id(o)
	m.Version = p.version(o)
	var required, optional read.Seen
	m.RequiredMCPServers = p.servers(o.List("required_mcp_servers", read.Required), &required, &read.Seen{})
	m.OptionalMCPServers = p.servers(o.List("optional_mcp_servers", read.Optional), &optional, &required)
	m.Extensions = p.extensions(o, func(id string) bool { return required.Has(id) || optional.Has(id) })
	o.Done()
	return m
}

// blanks contains the white-space characters. An id that consists only of white space is treated as empty. The JSON
// Schema of the dialect uses the same characters.
const blanks = " \t\r\n"

func (p *parser) id(o *read.Object) string {
	v := o.Get("id", read.Required)
	if !p.Is(v, doc.String) {
		return ""
	}
	if strings.Trim(v.Text(), blanks) == "" {
		p.Report(diag.EmptyText, v.Place(), "write an id that no other agent has", `"id" must not be empty`)
		return ""
	}
	p.tidy(v)
	return v.Text()
}

func (p *parser) tidy(v doc.Value) {
	if s := v.Text(); strings.TrimSpace(s) != s {
		p.Report(ruleUntidy, v.Place(), "", "%s begins or ends with white space", diag.Quote(s))
	}
}

func (p *parser) version(o *read.Object) string {
	v := o.Get("version", read.Optional)
	if !p.Is(v, doc.String) {
		return ""
	}
	if !isVersion(v.Text()) {
		hint := ""
		if isVersion(strings.TrimPrefix(v.Text(), "v")) {
			hint = "remove the v"
		}
		p.Report(ruleVersion, v.Place(), hint, "the version %s is not three numbers with dots between them",
			diag.Quote(v.Text()))
	}
	return v.Text()
}

// isVersion reports whether a string has the form X.Y.Z with three numbers.
func isVersion(s string) bool {
	dots, digits := 0, 0
	for i := range len(s) {
		switch {
		case isDigit(s[i]):
			digits++
		case s[i] == '.' && digits > 0:
			dots, digits = dots+1, 0
		default:
			return false
		}
	}
	return dots == 2 && digits > 0
}

// servers parses a list of servers and adds their ids to seen. It reports an id that occurs twice in the list. It also
// reports an id that is in required. This set is empty when the list is required_mcp_servers.
func (p *parser) servers(list doc.Value, seen, required *read.Seen) []ServerEntry {
	servers := make([]ServerEntry, 0, list.Len())
	for v := range list.Each() {
		s := p.server(v)
		servers = append(servers, s)
		if s.ServerID == "" {
			continue
		}
		switch {
		case !seen.Add(s.ServerID):
			p.Report(ruleDuplicate, v.Get("server_id").Place(), "", "the server %s is already in this list",
				diag.Quote(s.ServerID))
		case required.Has(s.ServerID):
			p.Report(ruleBothLists, v.Get("server_id").Place(), "", "the server %s is already required", diag.Quote(s.ServerID))
		}
	}
	return servers
}

func (p *parser) server(v doc.Value) ServerEntry {
	o := p.entry.Object(v)
	s := ServerEntry{ServerID: p.serverID(o), Version: p.constraint(o), PermissionScopes: p.scopes(o)}
	o.Done()
	return s
}

func (p *parser) serverID(o *read.Object) string {
	id, ok := o.Text("server_id", read.Required)
	if !ok {
		return ""
	}
	at := func() diag.Place { return o.Value().Get("server_id").Place() }
	host, _, slash := strings.Cut(id, "/")
	switch {
	case !isServerID(id):
		p.Report(ruleServerID, at(), serverIDHint(id), "%s is not a valid server id", diag.Quote(id))
	case !slash || host[0] == '@' || !strings.Contains(host, ".") && !strings.Contains(host, ":") && host != "localhost":
		p.Report(ruleNoHost, at(), "", "%s does not begin with the host of a registry", diag.Quote(id))
	case strings.ToLower(host) != host:
		p.Report(ruleHostCase, at(), "write "+diag.Quote(strings.ToLower(host)+id[len(host):]),
			"the host %s has upper-case letters", diag.Quote(host))
	}
	return id
}

// isServerID reports whether a string is a valid server id. An id consists of parts that are separated by slashes. Each
// part starts with an optional @, as in npm scopes, and then a letter, a digit or _.
func isServerID(id string) bool {
	start := true // whether the next character starts a part of the id
	for i := range len(id) {
		switch c := id[i]; {
		case isDigit(c) || isLetter(c) || c == '_':
			start = false
		case start:
			if c != '@' || i > 0 && id[i-1] != '/' {
				return false
			}
		case c == '/':
			start = true
		case c != '.' && c != '-' && c != ':' && c != '~' && c != '+':
			return false
		}
	}
	return !start
}

func serverIDHint(id string) string {
	if _, rest, ok := strings.Cut(id, "://"); ok && isServerID(rest) {
		return "remove the scheme and write " + diag.Quote(rest)
	}
	if i := strings.LastIndexByte(id, '@'); i > 0 && isServerID(id[:i]) {
		return `put the version into "version" and write ` + diag.Quote(id[:i])
	}
	if s := strings.Trim(strings.TrimSpace(id), "/"); isServerID(s) {
		return "write " + diag.Quote(s)
	}
	return ""
}

// tags contains the npm tags, such as latest, that refer to different versions over time.
var tags = map[string]bool{"latest": true, "next": true, "stable": true, "beta": true, "canary": true}

func (p *parser) constraint(o *read.Object) string {
	v := o.Get("version", read.Required)
	if !p.Is(v, doc.String) {
		return ""
	}
	s := v.Text()
	switch ok, npm := isConstraint(s); {
	case s == "":
		p.Report(diag.EmptyText, v.Place(), `write "*" to accept any version`, `"version" must not be empty`)
	case !ok && tags[s]:
		p.Report(ruleConstraint, v.Place(), "write >=1.0.0 to accept version 1.0.0 and later, or * to accept any version",
			"%s is a tag, not a version constraint", diag.Quote(s))
	case !ok:
		p.Report(ruleConstraint, v.Place(), "", "%s is not a version constraint", diag.Quote(s))
	case !npm:
		p.Report(ruleNotNPM, v.Place(), "", "npm cannot parse the version constraint %s", diag.Quote(s))
	}
	return s
}

func (p *parser) scopes(o *read.Object) []string {
	list := o.List("permission_scopes", read.Required)
	if !list.Ok() {
		return nil
	}
	if list.Len() == 0 {
		p.Report(ruleNoScopes, list.Place(), "", "permission_scopes is empty, so the agent cannot call the server's tools")
	}
	scopes := p.Distinct(list, func(v doc.Value) bool {
		if v.Text() == "" {
			p.Report(diag.EmptyText, v.Place(), "", "a scope is empty")
			return false
		}
		p.tidy(v)
		return true
	})
	if scopes == nil {
		scopes = []string{} // a nil slice would mean that the field is absent
	}
	return scopes
}

func (p *parser) extensions(o *read.Object, listed func(id string) bool) *Extensions {
	v := o.Get("extensions", read.Optional)
	if !p.Is(v, doc.Object) {
		return nil
	}
	var known *Extensions
	for m := range v.Each() {
		switch {
		case m.Key() == "run.ambit":
			known = &Extensions{Ambit: p.ambit(m, listed)}
		case !isReverseDomain(m.Key()):
			p.Report(ruleExtensionKey, m.KeyPlace(), "", "the key %s is not a reversed domain name", diag.Quote(m.Key()))
		}
	}
	return known
}

// ambit parses ambit's own extension.
func (p *parser) ambit(v doc.Value, listed func(id string) bool) *Extension {
	r := read.Reader{Reporter: p.Reporter, Unknown: diag.UnknownField}
	o := r.Object(v)
	reach := o.Get("reach", read.Optional)
	o.Done()
	if !r.Is(reach, doc.Object) {
		return &Extension{}
	}
	e := &Extension{Reach: make(map[string]*read.Rights, reach.Len())}
	for m := range reach.Each() {
		if !listed(m.Key()) {
			p.Report(ruleStrayReach, m.KeyPlace(), "", "the manifest does not list the server %s", diag.Quote(m.Key()))
		}
		e.Reach[m.Key()] = r.Rights(m)
	}
	return e
}

// isReverseDomain reports whether a key consists of at least two labels with dots between them.
func isReverseDomain(key string) bool {
	labels := 0
	for label := range strings.SplitSeq(key, ".") {
		if label == "" {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isDigit(c) && !isLetter(c) && c != '-' && c != '_' {
				return false
			}
		}
		labels++
	}
	return labels > 1
}
