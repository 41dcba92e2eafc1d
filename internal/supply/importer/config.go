package importer

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
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
	return nil
}

func (b *builder) configuration(file, name string, root map[string]any, holder any) (*Result, error) {
	var servers []server
	all, isAmbit := 0, 0
	add := func(name string, o map[string]any) {
		all++
		s, ok := b.configured(name, o)
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
	if all == isAmbit && isAmbit > 0 {
		return nil, fail("import a file with other servers; "+
			"to list the agents that already have a manifest, run: ambit agents",
			"the file contains only servers that \"ambit install\" added")
	}
	for _, p := range sorted(object(root["projects"])) {
		if inner := object(object(object(root["projects"])[p])["mcpServers"]); len(inner) > 0 {
			b.note(Dropped, "projects", "servers that belong to a single project are left out: %d", len(inner))
		}
	}
	if len(list(root["inputs"])) > 0 {
		b.note(Guessed, "inputs", "each input becomes an environment variable with the same name")
	}
	if len(servers) == 1 {
		name = servers[0].name
	} else if slices.Contains([]string{
		"mcp", "settings", "config", "claude-desktop-config", "mcp-config", "claude", "opencode",
	}, name) {
		name = "imported"
	}
	return b.matrixOf("an MCP client's configuration ("+filepath.Base(file)+")", name,
		"Imported from an MCP client's configuration.", servers)
}

// handled lists the fields of a server that the importer reads.
var handled = []string{
	"name", "type", "transport", "command", "args", "env", "environment", "env_vars", "url", "serverUrl", "httpUrl",
	"headers", "http_headers", "env_http_headers", "bearer_token_env_var", "disabled", "enabled", "alwaysAllow",
	"autoApprove", "includeTools", "tools", "description", "source", "requestInit",
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
	s := server{name: name, command: text(o["command"]), args: texts(o["args"])}
	if argv := texts(o["command"]); len(argv) > 0 {
		s.command, s.args = argv[0], append(argv[1:], s.args...)
	}
	if c := object(o["command"]); c != nil { // an older format of Zed
		s.command, s.args = text(c["path"]), texts(c["args"])
		s.env = settings(c["env"])
	}
	if text(o["cwd"]) != "" && s.dependsOnFolder() {
		b.note(Dropped, what, "the server runs files in its working folder (cwd): use absolute paths instead")
		return server{}, false
	}
	for _, key := range []string{"url", "serverUrl", "httpUrl"} {
		if s.url == "" {
			s.url = text(o[key])
		}
	}
	if s.command != "" {
		s.url = ""
	}
	kind := strings.ToLower(text(o["type"]) + text(o["transport"]))
	s.sse = strings.Contains(kind, "sse")
	s.env = slices.Concat(s.env, settings(o["env"]), settings(o["environment"]))
	for _, v := range texts(o["env_vars"]) {
		s.env = append(s.env, setting{name: v, secret: true})
	}
	s.headers = slices.Concat(settings(o["headers"]), settings(o["http_headers"]),
		settings(object(o["requestInit"])["headers"]))
	for _, h := range settings(o["env_http_headers"]) {
		s.headers = append(s.headers, setting{name: h.name, value: "${" + h.value + "}"})
	}
	if v := text(o["bearer_token_env_var"]); v != "" {
		s.headers = append(s.headers, setting{name: "Authorization", value: "Bearer ${" + v + "}"})
	}
	var named []string
	for _, key := range []string{"alwaysAllow", "autoApprove", "includeTools", "tools"} {
		for _, t := range texts(o[key]) {
			if t != "*" && !slices.Contains(named, t) {
				named = append(named, t)
				s.tools = append(s.tools, tool{name: t})
			}
		}
	}
	if len(named) > 0 {
		b.note(Guessed, what, "the tools come from the configuration; the server could have more")
	}
	return s, true
}

// areTexts reports whether v is nil or a list of strings and numbers.
func areTexts(v any) bool { return v == nil || list(v) != nil && len(texts(v)) == len(list(v)) }

// dependsOnFolder reports whether the code that the server runs depends on the working folder.
func (s *server) dependsOnFolder() bool {
	return inList(base(s.command), "npm pnpm yarn bun uv poetry pdm hatch rye") ||
		slices.ContainsFunc(append([]string{s.command}, s.args...), func(a string) bool {
			return a == "." || strings.HasPrefix(a, "./") || strings.HasPrefix(a, "../") || fileName.MatchString(a)
		})
}

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
