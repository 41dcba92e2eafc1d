package importer

import (
	"slices"
	"strings"
)

// images maps each known container image to a command that runs the same package without the container.
var images = map[string]string{
	"mcp/filesystem":          "npx -y @modelcontextprotocol/server-filesystem",
	"mcp/memory":              "npx -y @modelcontextprotocol/server-memory",
	"mcp/everything":          "npx -y @modelcontextprotocol/server-everything",
	"mcp/sequentialthinking":  "npx -y @modelcontextprotocol/server-sequential-thinking",
	"mcp/brave-search":        "npx -y @brave/brave-search-mcp-server",
	"mcp/context7":            "npx -y @upstash/context7-mcp",
	"mcp/playwright":          "npx -y @playwright/mcp",
	"mcp/notion":              "npx -y @notionhq/notion-mcp-server",
	"mcp/stripe":              "npx -y @stripe/mcp",
	"mcp/firecrawl":           "npx -y firecrawl-mcp",
	"mcp/tavily":              "npx -y tavily-mcp",
	"mcp/mongodb":             "npx -y mongodb-mcp-server",
	"mcp/exa":                 "npx -y exa-mcp-server",
	"bytebase/dbhub":          "npx -y @bytebase/dbhub",
	"isokoliuk/mcp-searxng":   "npx -y mcp-searxng",
	"mcp/fetch":               "uvx mcp-server-fetch",
	"mcp/git":                 "uvx mcp-server-git",
	"mcp/time":                "uvx mcp-server-time",
	"mcp/sqlite":              "uvx mcp-server-sqlite",
	"mcp/duckduckgo":          "uvx duckduckgo-mcp-server",
	"mcp/atlassian":           "uvx mcp-atlassian",
	"sooperset/mcp-atlassian": "uvx mcp-atlassian",
}

// unwrapContainer replaces "docker run IMAGE" with the package in the image, if the image is known. The server can then
// be pinned and confined. Paths in a mounted folder become paths on this machine.
func (b *builder) unwrapContainer(what string, s *server) {
	if f := familyOf(s.command); f == nil || !f.container || s.url != "" {
		return
	}
	run, ok := parseRun(s.args)
	name := strings.TrimPrefix(strings.TrimPrefix(run.image, "docker.io/"), "ghcr.io/")
	name, _, _ = strings.Cut(name, "@")
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name = name[:at]
	}
	known := strings.Fields(images[name])
	if !ok || len(known) == 0 {
		b.note(Guessed, what, "the server is a container, which ambit can neither pin nor confine: "+
			"use the server's npm or PyPI package, or run the agent with --unconfined %s", s.alias)
		return
	}
	b.note(Guessed, what, "the container %s is replaced with the package %s, which ambit can pin and confine",
		name, known[len(known)-1])
	s.command, s.args = known[0], known[1:]
	for _, arg := range run.args {
		s.args = append(s.args, run.outside(arg)...)
	}
	for _, set := range run.env {
		name, value, given := strings.Cut(set, "=")
		at := slices.IndexFunc(s.env, func(v setting) bool { return v.name == name })
		switch {
		case given && at < 0:
			s.env = append(s.env, setting{name: name, value: value})
		case !given && at < 0:
			s.env = append(s.env, setting{name: name, secret: true})
		}
	}
	for i := range s.env {
		if paths := run.outside(s.env[i].value); len(paths) == 1 {
			s.env[i].value = paths[0]
		}
	}
}

// containerRun is a parsed "docker run".
type containerRun struct {
	image     string
	args, env []string
	mounts    [][2]string // pairs of a path on this machine and a path in the container
}

// parseRun parses the arguments of docker. The second result is false if the arguments have an unknown form, or contain
// an option that changes which program runs.
func parseRun(args []string) (run containerRun, ok bool) {
	f := familyOf("docker")
	if len(args) > 0 && args[0] == "container" {
		args = args[1:]
	}
	if len(args) == 0 || args[0] != "run" {
		return run, false
	}
	for args = args[1:]; len(args) > 0; {
		arg, next := args[0], ""
		if len(args) > 1 {
			next = args[1]
		}
		flag, value, joined := strings.Cut(arg, "=")
		taken := 1
		if !joined {
			value = next
		}
		set, words := variableOf(arg, next)
		switch {
		case !dashed(arg):
			run.image, run.args = arg, args[1:]
			return run, true
		case words > 0:
			run.env, taken = append(run.env, set), words
		case inList(arg, f.switches) || f.isCluster(arg):
		case inList(flag, "--entrypoint --env-file") || !inList(flag, f.values) || value == "":
			return run, false
		default:
			run.mount(flag, value)
			if !joined {
				taken = 2
			}
		}
		args = args[min(taken, len(args)):]
	}
	return run, false
}

// mount reads the value of an option that mounts a folder. It ignores other options and volumes without a folder.
func (r *containerRun) mount(flag, value string) {
	var from, to string
	switch flag {
	case "-v", "--volume":
		rest := strings.TrimSuffix(strings.TrimSuffix(value, ":ro"), ":rw")
		if at := strings.LastIndex(rest, ":/"); at > 0 {
			from, to = rest[:at], rest[at+1:]
		}
	case "--mount":
		for field := range strings.SplitSeq(value, ",") {
			switch key, v, _ := strings.Cut(field, "="); key {
			case "src", "source":
				from = v
			case "dst", "target", "destination":
				to = v
			}
		}
	}
	if to != "" && (isPath(from) || strings.HasPrefix(from, "$")) {
		r.mounts = append(r.mounts, [2]string{from, strings.TrimSuffix(to, "/")})
	}
}

// outside returns the paths on this machine for a path in the container. If the path contains several mounted folders,
// it returns all of them.
func (r containerRun) outside(arg string) []string {
	if !strings.HasPrefix(arg, "/") {
		return []string{arg}
	}
	var below []string
	for _, m := range r.mounts {
		if rest, ok := strings.CutPrefix(arg, m[1]); ok && (rest == "" || rest[0] == '/') {
			return []string{strings.TrimSuffix(m[0], "/") + rest}
		}
		if strings.HasPrefix(m[1], strings.TrimSuffix(arg, "/")+"/") {
			below = append(below, m[0])
		}
	}
	if len(below) == 0 {
		return []string{arg}
	}
	return below
}

// unwrapRemote replaces mcp-remote, a program that forwards messages to an http server, with that server.
func (b *builder) unwrapRemote(what string, s *server) {
	args := s.args
	if base(s.command) != "mcp-remote" {
		at := slices.IndexFunc(args, func(a string) bool { return a == "mcp-remote" || strings.HasPrefix(a, "mcp-remote@") })
		if at < 0 || !inList(base(s.command), "npx bunx pnpx npm pnpm yarn bun") ||
			slices.ContainsFunc(args[:at], func(a string) bool { return !dashed(a) && !inList(a, "exec dlx x") }) {
			return
		}
		args = args[at+1:]
	}
	var address string
	var headers []setting
	for i := 0; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		takes := inList(flag, "--header --transport --host --static-oauth-client-metadata --static-oauth-client-info "+
			"--resource --ignore-tool --auth-timeout")
		if takes && !joined && i+1 < len(args) {
			i++
			value = args[i]
		}
		name, text, found := strings.Cut(value, ":")
		switch {
		case !dashed(flag) && strings.Contains(args[i], "://") && address == "":
			address = args[i]
		case flag == "--header" && found:
			headers = append(headers, setting{name: strings.TrimSpace(name), value: s.ownValue(strings.TrimSpace(text))})
		case flag == "--transport":
			s.sse = strings.HasPrefix(value, "sse")
		case takes:
			b.withhold(value)
			b.note(Dropped, what, "the option %s of mcp-remote is not copied", flag)
		case !dashed(flag) && !numbers.MatchString(flag), dashed(flag) && !inList(flag, "--allow-http --debug --silent --enable-proxy"):
			return // the arguments have an unknown form
		}
	}
	if address == "" {
		return
	}
	b.note(Guessed, what, "mcp-remote is not needed: ambit connects to the address itself")
	s.url, s.headers, s.env, s.command, s.args = address, headers, nil, "", nil
}

// ownValue replaces references to the server's own variables with their values.
func (s *server) ownValue(text string) string {
	for _, v := range s.env {
		for _, ref := range []string{"${" + v.name + "}", "${env:" + v.name + "}", "$" + v.name} {
			if v.value != "" && (strings.HasPrefix(ref, "${") || strings.HasSuffix(text, ref)) {
				text = strings.ReplaceAll(text, ref, v.value)
			}
		}
	}
	return text
}
