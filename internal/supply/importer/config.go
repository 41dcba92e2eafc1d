package importer

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// serversOf finds the servers in any client's configuration: a table by name, or a
// list.
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
			b.note(Dropped, "server "+name, "it runs ambit, whose agent already has a manifest")
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
		return nil, fail("its agents already have manifests: list them with ambit agents, or import a file with other servers", "the file contains only ambit itself, as written by ambit install")
	}
	for _, p := range sorted(object(root["projects"])) {
		if inner := object(object(object(root["projects"])[p])["mcpServers"]); len(inner) > 0 {
			b.note(Dropped, "projects", "%d servers of single projects are left out", len(inner))
		}
	}
	if len(list(root["inputs"])) > 0 {
		b.note(Guessed, "inputs", "each input becomes a variable of the same name")
	}
	if len(servers) == 1 {
		name = servers[0].name
	} else if slices.Contains([]string{"mcp", "settings", "config", "claude-desktop-config", "mcp-config", "claude", "opencode"}, name) {
		name = "imported"
	}
	return b.matrixOf("an MCP client's configuration ("+filepath.Base(file)+")", name, "Imported from an MCP client's configuration.", servers)
}

// handled are the keys of a server that the importer reads.
var handled = []string{
	"name", "type", "transport", "command", "args", "env", "environment", "env_vars", "url", "serverUrl", "httpUrl", "headers", "http_headers",
	"env_http_headers", "bearer_token_env_var", "disabled", "enabled", "alwaysAllow", "autoApprove", "includeTools", "tools", "description", "source", "requestInit",
}

func (b *builder) configured(name string, o map[string]any) (server, bool) {
	what := "server " + name
	if o == nil {
		return server{}, false
	}
	if on, said := o["enabled"].(bool); truth(o["disabled"]) || said && !on {
		b.note(Dropped, what, "it is disabled")
		return server{}, false
	}
	for _, key := range sorted(o) {
		if !slices.Contains(handled, key) {
			b.note(Dropped, what, "%s has no counterpart", key)
		}
	}
	if !areTexts(o["args"]) {
		b.note(Dropped, what, "its args are not a list of strings")
		return server{}, false
	}
	s := server{name: name, command: text(o["command"]), args: texts(o["args"])}
	if argv := texts(o["command"]); len(argv) > 0 {
		s.command, s.args = argv[0], append(argv[1:], s.args...)
	}
	if c := object(o["command"]); c != nil { // Zed's older form
		s.command, s.args = text(c["path"]), texts(c["args"])
		s.env = settings(c["env"])
	}
	if text(o["cwd"]) != "" && s.dependsOnFolder() {
		b.note(Dropped, what, "it runs files in its cwd: write absolute paths")
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
	s.headers = slices.Concat(settings(o["headers"]), settings(o["http_headers"]), settings(object(o["requestInit"])["headers"]))
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
		b.note(Guessed, what, "its tools are those in its configuration; it may have more")
	}
	return s, true
}

// areTexts reports whether texts leaves nothing out.
func areTexts(v any) bool { return v == nil || list(v) != nil && len(texts(v)) == len(list(v)) }

// dependsOnFolder reports whether the server's code depends on its working folder.
func (s *server) dependsOnFolder() bool {
	return inList(base(s.command), "npm pnpm yarn bun uv poetry pdm hatch rye") ||
		slices.ContainsFunc(append([]string{s.command}, s.args...), func(a string) bool {
			return a == "." || strings.HasPrefix(a, "./") || strings.HasPrefix(a, "../") || fileName.MatchString(a)
		})
}

// isAmbit reports whether a server is ambit with an agent, as ambit install writes it.
func (s *server) isAmbit() bool {
	program := strings.TrimSuffix(path.Base(strings.ReplaceAll(s.command, `\`, "/")), ".exe")
	return program == "ambit" && len(s.args) > 0 && s.args[0] == "run"
}

// settings reads a table of names and values, sorted by name.
func settings(v any) []setting {
	var out []setting
	m := object(v)
	for _, name := range sorted(m) {
		s := setting{name: name}
		if values := append(texts([]any{m[name]}), boolText(m[name])...); len(values) > 0 {
			s.value = values[0]
		}
		out = append(out, s)
	}
	return out
}

func boolText(v any) []string {
	switch v {
	case true:
		return []string{"true"}
	case false:
		return []string{"false"}
	}
	return nil
}
