package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// serversOf returns the servers in the configuration of an MCP client, or nil. The result is a map from names to
// servers, or a list of servers.
func serversOf(root map[string]any) any {
	for _, key := range []string{"mcpServers", "servers", "mcp_servers", "context_servers", "amp.mcpServers"} {
		switch root[key].(type) {
		case map[string]any, []any:
			return root[key]
		}
	}
	if mcp := object(root["mcp"]); mcp != nil {
		if inner := object(mcp["servers"]); inner != nil {
			return inner
		}
		return mcp
	}
	if goose := object(root["extensions"]); areServers(goose) {
		return goose
	}
	if areServers(root) { // in a .mcp.json of a plugin, the top level is the map of servers
		return root
	}
	return nil
}

// areServers reports whether every object in a map looks like an MCP server.
func areServers(m map[string]any) bool {
	found := false
	for _, key := range sorted(m) {
		o := object(m[key])
		if o == nil && !strings.HasPrefix(key, "$") && !strings.HasPrefix(key, "_") {
			return false
		}
		if o != nil && !has(o, "command", "cmd", "url", "uri", "serverUrl", "httpUrl") && text(o["type"]) != "builtin" &&
			text(o["type"]) != "platform" {
			return false
		}
		found = found || o != nil
	}
	return found
}

func (b *builder) configuration(file, name string, root map[string]any, holder any) (*Result, error) {
	servers, isAmbit := b.servers(root, holder)
	if len(servers) == 0 && isAmbit > 0 {
		return nil, fail("import a file with other servers; "+
			"to list the agents that already have a manifest, run: ambit agents",
			"the file contains only servers that \"ambit install\" added")
	}
	if b.name != "" {
		name = b.name
	} else if len(servers) == 1 {
		name = servers[0].name
	} else if slices.Contains([]string{
		"mcp", "settings", "config", "claude-desktop-config", "mcp-config", "claude", "opencode",
	}, name) {
		name = "imported"
	}
	r, err := b.matrixOf("an MCP client's configuration ("+filepath.Base(file)+")", name,
		"Imported from an MCP client's configuration.", servers)
	if r != nil {
		r.Started = true
	}
	return r, err
}

// ImportAll creates one manifest from the configurations of several MCP clients. It leaves out files without servers,
// and servers that are also in an earlier file. If no file has a server, the error is an [*Error]. If name is empty,
// the agent is named "imported".
func ImportAll(name string, files []string, output string) (*Result, error) {
	b := &builder{refs: map[string]string{}}
	var servers []server
	for _, file := range files {
		found, err := b.serversIn(file, output)
		if err != nil {
			b.note(Dropped, filepath.Base(file), "the file is left out: %v", err)
			continue
		}
		for _, s := range found {
			if !slices.ContainsFunc(servers, s.same) {
				servers = append(servers, s)
			}
		}
	}
	if len(servers) == 0 {
		return nil, fail("name the file: ambit import FILE", "no MCP client on this machine has a server to import%s",
			b.reasons())
	}
	r, err := b.matrixOf("the MCP clients on this machine", cmp.Or(name, "imported"),
		"Imported from the configurations of MCP clients.", servers)
	if err != nil {
		return nil, err
	}
	r.Started = true
	return b.finish(r)
}

// serversIn returns the servers in the configuration of an MCP client.
func (b *builder) serversIn(file, output string) (servers []server, err error) {
	if b.places, err = placesOf(file, output); err != nil {
		return nil, err
	}
	text, err := readBounded(file)
	if err != nil {
		return nil, err
	}
	root, err := decode(strings.ToLower(filepath.Ext(file)), bytes.TrimPrefix(text, []byte("\ufeff")))
	if err != nil {
		return nil, err
	}
	if holder := serversOf(root); holder != nil {
		servers, _ = b.servers(root, holder)
	}
	return servers, nil
}

// same reports whether two servers run the same program with the same settings.
func (s server) same(other server) bool {
	return s.command == other.command && slices.Equal(s.args, other.args) && s.url == other.url &&
		slices.Equal(s.env, other.env) && slices.Equal(s.headers, other.headers)
}

// servers reads the servers of a configuration. The second result is the number of servers that already run under ambit
// and are therefore left out.
func (b *builder) servers(root map[string]any, holder any) (servers []server, isAmbit int) {
	defaults := b.inputDefaults(root["inputs"])
	add := func(name string, o map[string]any) {
		s, ok := b.configured(name, o)
		s.values = defaults
		switch {
		case ok && s.isAmbit():
			isAmbit++
			b.note(Dropped, "server "+name, "the server already runs under ambit and has a manifest")
		case ok:
			servers = append(servers, s)
		}
	}
	switch holder := holder.(type) {
	case map[string]any:
		for _, key := range sorted(holder) {
			add(key, object(holder[key]))
		}
	case []any:
		for _, item := range holder {
			o := object(item)
			add(text(o["name"]), o)
		}
	}
	for _, p := range sorted(object(root["projects"])) {
		if inner := object(object(object(root["projects"])[p])["mcpServers"]); len(inner) > 0 {
			b.note(Dropped, "projects", "servers that belong to a single project are left out: %d", len(inner))
		}
	}
	return servers, isAmbit
}

// inputDefaults returns the defaults of VS Code's inputs, by input id. An input without a plain default becomes an
// environment variable.
func (b *builder) inputDefaults(inputs any) map[string]string {
	defaults := map[string]string{}
	for _, item := range list(inputs) {
		o := object(item)
		id, value := text(o["id"]), text(o["default"])
		switch {
		case value != "" && !truth(o["password"]) && b.isPlain(setting{name: id, value: value, plain: true}):
			defaults[id] = value
			b.note(Guessed, "input "+id, "the default is used")
		default:
			b.withhold(value)
			b.note(Guessed, "input "+id, "the input becomes the environment variable %s", variable(id))
		}
	}
	return defaults
}

// handled lists the fields of a server that the importer reads.
var handled = []string{
	"name", "type", "transport", "command", "args", "env", "environment", "env_vars", "url", "serverUrl", "httpUrl",
	"headers", "http_headers", "env_http_headers", "bearer_token_env_var", "disabled", "enabled", "alwaysAllow",
	"autoApprove", "includeTools", "tools", "description", "source", "requestInit", "cwd", "envFile", "cmd", "uri", "envs",
	"env_keys", "workingDirectory",
	// These fields have no effect on what a server can do.
	"timeout", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", "initTimeout", "gallery", "version",
	"bundled", "display_name", "icon", "iconPath", "trust", "comment", "_comment", "$comment", "dev", "title", "id",
}

func (b *builder) configured(name string, o map[string]any) (server, bool) {
	what := "server " + name
	if o == nil {
		return server{}, false
	}
	if enabled, set := o["enabled"].(bool); truth(o["disabled"]) || set && !enabled {
		b.note(Dropped, what, "the server is disabled")
		return server{}, false
	}
	for _, key := range sorted(o) {
		if !slices.Contains(handled, key) {
			b.note(Dropped, what, "the field %s has no counterpart in a manifest", key)
		}
	}
	if !areTexts(o["args"]) {
		b.note(Dropped, what, "\"args\" is not a list of strings")
		return server{}, false
	}
	if kind := text(o["type"]); kind == "builtin" || kind == "platform" {
		b.note(Dropped, what, "the server is part of the client")
		return server{}, false
	}
	s := server{name: name}
	s.readCommand(o)
	for _, key := range []string{"url", "serverUrl", "httpUrl", "uri"} {
		if s.url == "" {
			s.url = text(o[key])
		}
	}
	if s.command != "" {
		s.url = ""
	}
	kind := strings.ToLower(text(o["type"]) + text(o["transport"]))
	s.sse = strings.Contains(kind, "sse")
	if file := text(o["envFile"]); file != "" {
		b.addEnvFile(what, &s, file)
	}
	s.headers = slices.Concat(settings(o["headers"]), settings(o["http_headers"]),
		settings(object(o["requestInit"])["headers"]))
	for _, h := range settings(o["env_http_headers"]) {
		s.headers = append(s.headers, setting{name: h.name, value: "${" + h.value + "}"})
	}
	if v := text(o["bearer_token_env_var"]); v != "" {
		s.headers = append(s.headers, setting{name: "Authorization", value: "Bearer ${" + v + "}"})
	}
	if problem := b.places.apply(&s, cmp.Or(text(o["cwd"]), text(o["workingDirectory"]))); problem != "" {
		b.note(Dropped, what, "%s", problem)
		return server{}, false
	}
	for _, key := range []string{"alwaysAllow", "autoApprove", "includeTools", "tools"} {
		for _, name := range texts(o[key]) {
			if t := (tool{name: name}); name != "*" && !slices.Contains(s.tools, t) {
				s.tools = append(s.tools, t)
			}
		}
	}
	if len(s.tools) > 0 {
		b.note(Guessed, what, "the tools come from the configuration; the server could have more tools")
	}
	return s, true
}

// readCommand reads the command, its arguments and its environment.
func (s *server) readCommand(o map[string]any) {
	s.command, s.args = cmp.Or(text(o["command"]), text(o["cmd"])), texts(o["args"])
	if argv := texts(o["command"]); len(argv) > 0 {
		s.command, s.args = argv[0], append(argv[1:], s.args...)
	}
	if c := object(o["command"]); c != nil { // this is an older format of the client Zed
		s.command, s.args = text(c["path"]), texts(c["args"])
		s.env = settings(c["env"])
	}
	s.env = slices.Concat(s.env, settings(o["env"]), settings(o["environment"]), settings(o["envs"]))
	for _, name := range slices.Concat(texts(o["env_vars"]), texts(o["env_keys"])) {
		s.env = append(s.env, setting{name: name, secret: true})
	}
}

// areTexts reports whether v is nil or a list of strings and numbers.
func areTexts(v any) bool { return v == nil || list(v) != nil && len(texts(v)) == len(list(v)) }

// maxEnvFile is the maximum size of a file with environment variables, in bytes.
const maxEnvFile = 64 << 10

// addEnvFile adds the variables in a file to a server. It copies only their names. The values become references.
func (b *builder) addEnvFile(what string, s *server, file string) {
	at := filepath.FromSlash(b.places.folders(file))
	if !filepath.IsAbs(at) {
		at = filepath.Join(b.places.project, at)
	}
	info, err := os.Stat(at)
	var content []byte
	if err == nil && info.Mode().IsRegular() && info.Size() <= maxEnvFile {
		content, err = os.ReadFile(at)
	}
	if err != nil || content == nil {
		b.note(Dropped, what, "the \"envFile\" cannot be read: add its variables to \"env\" as NAME=$env:NAME")
		return
	}
	unusual := false
	for line := range strings.Lines(string(content)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok, strings.HasPrefix(name, "#"), slices.ContainsFunc(s.env, func(v setting) bool { return v.name == name }):
			continue
		case !usualVariable.MatchString(name):
			unusual = true
			continue
		}
		b.withhold(strings.Trim(strings.TrimSpace(value), `"'`))
		s.env = append(s.env, setting{name: name, secret: true})
		b.note(Secret, what, "the value of %s in the \"envFile\" is not copied: set the variable %s", name, variable(name))
	}
	if unusual {
		b.note(Dropped, what, "some lines of the \"envFile\" do not begin with a usual variable name: "+
			"if these lines set variables, add the variables to \"env\" as NAME=$env:NAME")
	}
}

// usualVariable matches the usual names of variables: words in one case. Any other text before an equals sign may be a
// key, because base64 often ends with equals signs.
var usualVariable = regexp.MustCompile(strings.ReplaceAll("^_*A(_+A)*_*$|", "A", `([A-Z]{1,24}\d{0,4}|[A-Z\d]{1,4})`) +
	strings.ReplaceAll("^_*A(_+A)*_*$", "A", `([a-z]{1,24}\d{0,4}|[a-z\d]{1,4})`))

// isAmbit reports whether the command of a server is "ambit run", which is the command that "ambit install" writes for
// an agent.
func (s *server) isAmbit() bool {
	program := strings.TrimSuffix(path.Base(strings.ReplaceAll(s.command, `\`, "/")), ".exe")
	return program == "ambit" && len(s.args) > 0 && s.args[0] == "run"
}

// settings converts a map from names to values into a list of settings, sorted by name.
func settings(v any) []setting {
	var out []setting
	m := object(v)
	for _, name := range sorted(m) {
		s := setting{name: name}
		switch v := m[name].(type) {
		case string, json.Number, bool:
			s.value = fmt.Sprint(v)
		}
		out = append(out, s)
	}
	return out
}
