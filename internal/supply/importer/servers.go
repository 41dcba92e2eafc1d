package importer

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/matrix"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/tooluri"
)

// server is an MCP server in any of the formats.
type server struct {
	name         string
	command      string
	args         []string
	url          string
	env, headers []setting
	version      string
	tools        []tool
	sse          bool
}

// setting is a variable or header. A setting without a value is left for the user.
type setting struct {
	name, value string
	secret      bool
}

type tool struct{ name, description string }

// UnknownVersion and UnknownTool are placeholders for a version and for the tools of a
// server that the input does not name.
const (
	UnknownVersion = "0.0.0"
	UnknownTool    = "unknown"
)

const zeroDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// matrixOf converts servers to a manifest. It allows only reading; a person allows the
// rest.
func (b *builder) matrixOf(source, name, description string, servers []server) (*Result, error) {
	m := matrix.AgentManifest{
		SchemaVersion: 1, Agent: "matrix://agent/" + agent.Slug(name), Description: b.scrub(description), AllowedSideEffects: []string{string(agent.Read)},
	}
	refs := map[string]string{}
	for _, s := range servers { // a reference must not get the value of another server
		for _, set := range slices.Concat(s.env, s.headers) {
			if _, name := referred(set.value); name != "" {
				refs[name] = set.value
			}
		}
	}
	for i := range servers {
		entry, ok := b.entry(&servers[i], m.Servers, refs)
		if !ok {
			continue
		}
		m.Servers = append(m.Servers, entry)
	}
	if len(m.Servers) == 0 {
		return nil, fail("", "no server in it can be imported%s", b.reasons())
	}
	b.note(Guessed, "allowed_side_effects", "only read is allowed: add write, network or shell after you have checked the tools")
	out, err := encode(m)
	return &Result{Source: source, Dialect: agent.Matrix, Name: agent.Slug(name), Text: out, Next: "verify"}, err
}

// reasons lists why nothing is left.
func (b *builder) reasons() string {
	for _, n := range slices.Backward(b.notes) {
		if n.Kind == Dropped {
			return ": " + b.scrub(n.What) + ": " + b.scrub(n.Detail)
		}
	}
	return ""
}

var notAlias = regexp.MustCompile(`[^a-z0-9_-]+`)

func (b *builder) entry(s *server, others []matrix.ServerEntry, refs map[string]string) (matrix.ServerEntry, bool) {
	alias := strings.Trim(notAlias.ReplaceAllString(strings.ToLower(b.scrub(s.name)), "-"), "-")
	if alias == "" {
		alias = "server"
	}
	for base, n := alias, 2; slices.ContainsFunc(others, func(o matrix.ServerEntry) bool { return o.Alias == alias }); n++ {
		alias = fmt.Sprintf("%s-%d", base, n)
	}
	what := "server " + alias
	if alias != s.name {
		b.note(Guessed, what, "its original name cannot be an alias")
	}
	// All secrets are collected before anything is copied.
	for _, set := range slices.Concat(s.env, s.headers) {
		if _, name := referred(set.value); name == "" && !harmless(set.value) {
			b.withhold(set.value)
		}
	}
	e := matrix.ServerEntry{Alias: alias, Version: s.version}
	ok := false
	if s.url != "" {
		ok = b.remote(what, s, &e, refs)
	} else {
		ok = b.local(what, s, &e, refs)
	}
	if !ok {
		return e, false
	}
	b.tools(what, s, &e)
	return e, true
}

func (b *builder) remote(what string, s *server, e *matrix.ServerEntry, refs map[string]string) bool {
	endpoint, ok := b.address(what, s.url)
	if !ok {
		return false
	}
	e.Transport, e.Endpoint = "http", endpoint
	if s.sse {
		b.note(Guessed, what, "it used SSE, which is not supported: check that it offers streamable HTTP at this address")
	}
	for _, h := range s.headers {
		if !httpguts.ValidHeaderFieldName(h.name) || slices.Contains(ownHeaders, strings.ToLower(h.name)) {
			b.note(Dropped, what, "a header that cannot be set")
			continue
		}
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[h.name] = b.value(what, e.Alias, h, refs)
	}
	if _, err := tooluri.ParsePin(e.Version); err != nil {
		b.note(Guessed, what, "its version is unknown: %s is a placeholder", UnknownVersion)
		e.Version = UnknownVersion
	}
	return true
}

// ownHeaders are set by the HTTP connection.
var ownHeaders = []string{
	"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "keep-alive", "proxy-connection",
	"content-type", "accept", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name",
}

func (b *builder) local(what string, s *server, e *matrix.ServerEntry, refs map[string]string) bool {
	b.unwrap(s)
	switch {
	case s.command == "":
		b.note(Dropped, what, "it has neither a command nor an address")
		return false
	case slices.Contains(shells, base(s.command)), b.wholeLine(s.command):
		b.withhold(s.command)
		for _, a := range s.args {
			b.withhold(a)
		}
		b.note(Dropped, what, "its command is a shell command line: name the program itself")
		return false
	case path.Base(s.command) == "env":
		for _, a := range s.args {
			b.withhold(a)
		}
		b.note(Dropped, what, "it is started by env with options: name the program itself")
		return false
	case b.risky(s.command) && !b.plain(s.command) && !strings.ContainsAny(s.command, `/\`), strings.Contains(s.command, "$"), secretlike.Find(s.command).Found():
		b.withhold(s.command)
		b.note(Dropped, what, "its command refers to an unknown variable")
		return false
	}
	e.Transport, e.Command, e.PackageDigest = "stdio", s.command, zeroDigest
	var ok bool
	e.Args, ok = b.arguments(what, s.command, s.args, func(name, value string, given bool) {
		b.withhold(value)
		if given || !slices.ContainsFunc(s.env, func(v setting) bool { return v.name == name }) {
			s.env = append(s.env, setting{name: name, value: value, secret: !given})
		}
	})
	if !ok {
		return false
	}
	seen := map[string]string{}
	for _, v := range s.env {
		value, again := seen[v.name]
		switch {
		case !variableName.MatchString(v.name):
			b.note(Dropped, what, "a variable has no usable name, and without it the command would change")
			return false
		case again && value != v.value:
			b.note(Dropped, what, "a variable is set twice")
			return false
		case again:
			continue
		}
		seen[v.name] = v.value
		e.Env = append(e.Env, v.name+"="+b.value(what, e.Alias, v, refs))
	}
	b.version(what, e)
	return true
}

// wholeLine reports whether a command contains its arguments. Folders may have spaces
// in their names.
func (b *builder) wholeLine(command string) bool {
	words := strings.Fields(command)
	return len(words) > 1 && slices.ContainsFunc(words[1:], func(word string) bool {
		return dashed(word) || strings.Contains(word, "=") || !strings.ContainsAny(word, `/\`) && b.risky(word)
	})
}

// unwrap removes wrappers that only start the real program.
func (b *builder) unwrap(s *server) {
	if len(s.args) == 0 && strings.ContainsAny(s.command, " ") && !strings.ContainsAny(s.command, `/\"'`) {
		fields := strings.Fields(s.command)
		s.command, s.args = fields[0], fields[1:]
	}
	// A longer command is a shell command line, and is refused.
	if base(s.command) == "cmd" && len(s.args) > 1 && strings.EqualFold(s.args[0], "/c") &&
		!strings.ContainsAny(strings.Join(s.args, ""), "&|<>^%") && !inList(strings.ToLower(s.args[1]), inCmd) {
		s.command, s.args = s.args[1], s.args[2:]
	}
	if path.Base(s.command) != "env" {
		return
	}
	first := slices.IndexFunc(s.args, func(a string) bool { return strings.HasPrefix(a, "-") || !strings.Contains(a, "=") })
	if first >= 0 && strings.HasPrefix(s.args[first], "-") {
		return // with options it does more than set variables, and is refused
	}
	sets := s.args
	s.command, s.args = "", nil
	if first >= 0 {
		s.command, s.args, sets = sets[first], sets[first+1:], sets[:first]
	}
	for _, a := range sets {
		name, value, _ := strings.Cut(a, "=")
		b.withhold(value)
		s.env = append(s.env, setting{name: name, value: value})
	}
}

// inCmd are the built-in commands of cmd.
const inCmd = "call cd chdir copy del dir echo for goto if md mkdir move path popd pushd rd rem ren set setlocal start title type"

// value returns a setting's value if it is harmless, else a reference. If two servers
// have different values for one name, they get two references.
func (b *builder) value(what, alias string, s setting, refs map[string]string) string {
	scheme, name := referred(s.value)
	if name != "" {
		return scheme + "$env:" + name
	}
	if !s.secret && s.value != "" && harmless(s.value) && !secretName(s.name) {
		return s.value
	}
	name = variable(s.name)
	if name == "AUTHORIZATION" || refs[name] != "" && s.value != "" && refs[name] != s.value {
		name = variable(alias + "_" + s.name)
	}
	if s.value != "" {
		refs[name] = s.value
		b.note(Secret, what, "the value of %s is not copied: set %s", s.name, name)
	}
	for _, known := range []string{"Bearer ", "Basic ", "Token "} {
		if strings.HasPrefix(s.value, known) {
			scheme = known
		}
	}
	return scheme + "$env:" + name
}

// version removes the version from the arguments and declares it.
func (b *builder) version(what string, e *matrix.ServerEntry) {
	if name := fromElsewhere(e); name != "" {
		// Without its source the argument would name the registry's package of that
		// name, which anyone may have published. It gets a digest, and no version.
		e.Version = zeroDigest
		b.note(Guessed, what, "%s does not come from a registry and cannot be pinned", name)
		return
	}
	inexact := func(asked string) {
		if asked != "" {
			b.note(Dropped, what, "its version %s is not exact", asked)
		}
	}
	s := agent.Server{Transport: agent.Stdio, Command: e.Command, Args: e.Args, Version: e.Version}
	ref, err := pack.Identify(s)
	asked := ref.Asked
	if arg, from, _ := behindName(e); err != nil && arg != nil {
		asked = (*arg)[from:] // such a command cannot be pinned, but its version is still reported
	}
	if _, pinErr := tooluri.ParsePin(asked); pinErr == nil && e.Version == "" {
		e.Version = asked
	} else if asked != "" && asked != e.Version && err == nil {
		for i, a := range e.Args {
			for _, separator := range []string{"==", "@"} {
				cut, ok := strings.CutSuffix(a, separator+asked)
				_, value, _ := strings.Cut(cut, "=") // of --package=
				if name, _, _ := strings.Cut(cmp.Or(value, cut), "["); ok && name == ref.Name {
					e.Args[i] = cut
				}
			}
		}
		inexact(asked)
	}
	if _, err := tooluri.ParsePin(e.Version); e.Version == "" || err != nil {
		e.Version = UnknownVersion
		b.note(Guessed, what, "its version is unknown: %s is a placeholder until ambit lock --update pins the newest", UnknownVersion)
	}
	// The rest would contradict the declared version.
	for arg, from, name := behindName(e); arg != nil && (*arg)[from:] != e.Version; arg, from, name = behindName(e) {
		inexact((*arg)[from:])
		*arg = (*arg)[:name]
	}
}

// packageOf returns the argument that the rules for manifests read as the package: the
// first that is neither an option nor the value of a known one; nil if there is none.
func packageOf(e *matrix.ServerEntry) *string {
	if !slices.Contains([]string{"npx", "bunx", "pnpx", "uvx"}, e.Command) {
		return nil
	}
	for i, a := range e.Args {
		if a != "" && a[0] != '-' && (i == 0 || !inList(e.Args[i-1], familyOf(e.Command).values)) {
			return &e.Args[i]
		}
	}
	return nil
}

// fromElsewhere returns the package that does not come from a registry; empty for
// none.
func fromElsewhere(e *matrix.ServerEntry) string {
	if arg := packageOf(e); arg != nil && elsewhere(*arg) {
		return *arg
	}
	for _, arg := range e.Args {
		if flag, value, joined := strings.Cut(arg, "="); joined && inList(flag, nodePackages+" "+uvPackages) && elsewhere(value) {
			return value
		}
	}
	return ""
}

// elsewhere reports whether a package is a path or an address, or its name is followed
// by one or by another name, as in name@file:name.tgz and name@npm:other.
func elsewhere(arg string) bool {
	scope := ""
	if strings.HasPrefix(arg, "@") {
		scope, arg, _ = strings.Cut(arg[1:], "/")
	}
	name, place, at := strings.Cut(arg, "@")
	file := strings.ToLower(name)
	if at {
		file = strings.ToLower(place)
	}
	return strings.ContainsAny(scope+name+place, `:/\`) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") || strings.HasPrefix(place, ".") ||
		slices.ContainsFunc([]string{".tgz", ".tar", ".tar.gz", ".whl"}, func(ext string) bool { return strings.HasSuffix(file, ext) })
}

// behindName finds the part after the package's name, from from on; the name ends at
// name.
func behindName(e *matrix.ServerEntry) (arg *string, from, name int) {
	arg = packageOf(e)
	if arg == nil {
		return nil, 0, 0
	}
	separator := "@"
	if e.Command == "uvx" && slices.ContainsFunc(e.Args, func(a string) bool { return strings.Contains(a, "==") }) {
		separator = "=="
	}
	name = strings.LastIndex(*arg, separator)
	from = name + len(separator)
	if name <= 0 || strings.Contains((*arg)[from:], "/") {
		return nil, 0, 0
	}
	return arg, from, name
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// tools adds the tools in the input. Without any, it adds a placeholder that cannot be
// called.
func (b *builder) tools(what string, s *server, e *matrix.ServerEntry) {
	for _, t := range s.tools {
		if !toolName.MatchString(t.name) || b.scrub(t.name) != t.name || slices.ContainsFunc(e.Tools, func(o matrix.ToolEntry) bool { return o.Name == t.name }) {
			b.note(Dropped, what, "a tool has no usable name, or appears twice")
			continue
		}
		class := classOf(t.name)
		e.Tools = append(e.Tools, matrix.ToolEntry{Name: t.name, Description: b.scrub(t.description), SideEffectClass: class})
		b.note(Guessed, "tool "+e.Alias+"/"+t.name, "%s, by its name", class)
	}
	if len(e.Tools) > 0 {
		return
	}
	e.Tools = []matrix.ToolEntry{{
		Name: UnknownTool, Description: "Placeholder for the tools of this server, which were unknown when it was imported.", SideEffectClass: string(agent.Shell),
	}}
	b.note(Guessed, what, "its tools are unknown: ambit verify starts the server and shows how to declare them")
}

var readingName = regexp.MustCompile(`^(get|list|read|search|find|describe|show|count|query|lookup|view)([_.-]|[A-Z]|$)`)

// classOf guesses the class of a tool from its name, preferring the more dangerous
// one.
func classOf(name string) string {
	if readingName.MatchString(name) {
		return string(agent.Read)
	}
	return string(agent.Shell)
}
