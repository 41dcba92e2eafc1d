package importer

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/matrix"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/tooluri"
)

// server is an MCP server from a file of any supported format.
type server struct {
	name         string
	command      string
	args         []string
	url          string
	env, headers []setting
	version      string
	tools        []tool
	sse          bool
	alias        string
	places       places
	// values maps the server's own variables to their values in the manifest.
	values map[string]string
}

// setting is an environment variable or a header. If the value is empty, the user must provide it.
type setting struct {
	name, value string
	secret      bool
	// plain is set if the author of the input declares that the value is not a secret.
	plain bool
}

type tool struct{ name, description string }

// UnknownVersion and UnknownTool are the placeholders that are used if the input does not contain a version or a tool.
const (
	UnknownVersion = pack.UnknownVersion
	UnknownTool    = "unknown"
)

const zeroDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// Without limits, an import could take very long: its time grows with the square of the number of possible secrets.
// maxServers is the maximum number of servers. maxParts is the maximum number of arguments, settings, headers and tools
// of a server.
const maxServers, maxParts = 100, 500

// matrixOf converts servers to a Matrix manifest. The manifest allows only the side-effect class "read". To use other
// classes, the user must add them.
func (b *builder) matrixOf(source, name, description string, servers []server) (*Result, error) {
	m := matrix.AgentManifest{
		SchemaVersion: 1, Agent: "matrix://agent/" + agent.Slug(name), Description: b.scrub(description),
		AllowedSideEffects: []string{string(agent.Read)},
	}
	if len(servers) > maxServers {
		return nil, fail("import a part of the file", "the file has %d servers, but at most %d can be imported",
			len(servers), maxServers)
	}
	for _, s := range servers { // new references must not have the name of an existing reference
		for _, set := range slices.Concat(s.env, s.headers) {
			text, _ := s.expand(set.value)
			for _, ref := range ownReference.FindAllString(text, -1) {
				b.refs[strings.TrimPrefix(ref, "$env:")] = ref
			}
		}
	}
	for i := range servers {
		if len(b.notes) > maxNotes {
			return nil, errTooManyNotes
		}
		entry, ok := b.entry(&servers[i], m.Servers)
		if !ok {
			continue
		}
		m.Servers = append(m.Servers, entry)
	}
	if len(m.Servers) == 0 {
		return nil, fail("", "no server in the file can be imported%s", b.reasons())
	}
	b.note(Guessed, "allowed_side_effects",
		"only the class read is allowed; check the tools, then add the class write, network or shell if needed")
	out, err := encode(m)
	return &Result{Source: source, Dialect: agent.Matrix, Name: agent.Slug(name), Text: out, Next: "verify"}, err
}

// reasons returns the last note of the kind Dropped, in a form that can be appended to an error message.
func (b *builder) reasons() string {
	for _, n := range slices.Backward(b.notes) {
		if n.Kind == Dropped {
			return ": " + b.scrub(n.What) + ": " + b.scrub(n.Detail)
		}
	}
	return ""
}

var notAlias = regexp.MustCompile(`[^a-z0-9_-]+`)

func (b *builder) entry(s *server, others []matrix.ServerEntry) (matrix.ServerEntry, bool) {
	alias := strings.Trim(notAlias.ReplaceAllString(strings.ToLower(b.scrub(s.name)), "-"), "-")
	if alias == "" {
		alias = "server"
	}
	for base, n := alias, 2; slices.ContainsFunc(others,
		func(o matrix.ServerEntry) bool { return o.Alias == alias }); n++ {
		alias = fmt.Sprintf("%s-%d", base, n)
	}
	what := "server " + alias
	if n := len(s.args) + len(s.env) + len(s.headers) + len(s.tools); n > maxParts {
		b.note(Dropped, what, "the server has %d arguments, settings and tools, but at most %d can be imported", n, maxParts)
		return matrix.ServerEntry{}, false
	}
	if alias != s.name {
		b.note(Guessed, what, "the original name is not a valid alias or is already in use")
	}
	s.alias = alias
	b.unwrapLine(s)
	b.unwrapEnv(s)
	b.unwrapContainer(what, s)
	b.unwrapRemote(what, s)
	// All possible secrets must be known before anything is copied to the manifest.
	for _, set := range slices.Concat(s.env, s.headers) {
		if _, found := s.expand(set.value); !found && !b.isPlain(set) {
			b.withhold(set.value)
		}
	}
	e := matrix.ServerEntry{Alias: alias, Version: s.version}
	ok := false
	if s.url != "" {
		ok = b.fillRemote(what, s, &e)
	} else {
		ok = b.fillLocal(what, s, &e)
	}
	if !ok {
		return e, false
	}
	b.addTools(what, s, &e)
	return e, true
}

func (b *builder) fillRemote(what string, s *server, e *matrix.ServerEntry) bool {
	address, _ := s.expand(s.url)
	endpoint, ok := b.cleanURL(what, address)
	if !ok {
		return false
	}
	e.Transport, e.Endpoint = "http", endpoint
	if s.sse {
		b.note(Guessed, what,
			"the server used SSE, which is not supported: check that it offers streamable HTTP at this address")
	}
	for _, h := range s.headers {
		if !httpguts.ValidHeaderFieldName(h.name) || slices.Contains(ownHeaders, strings.ToLower(h.name)) {
			b.note(Dropped, what, "a header is not copied, because its name is invalid or reserved")
			continue
		}
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[h.name] = b.safeValue(what, s, h)
	}
	if _, err := tooluri.ParsePin(e.Version); err != nil {
		b.note(Guessed, what, "the version is unknown, so %s is a placeholder", UnknownVersion)
		e.Version = UnknownVersion
	}
	return true
}

// ownHeaders lists the headers that the MCP client sets itself.
var ownHeaders = []string{
	"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "keep-alive",
	"proxy-connection",
	"content-type", "accept", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name",
}

// refuseCommand returns why the command of a server cannot be copied, or "" if it can. It withholds the values in a
// refused command, so that they cannot appear in the result.
func (b *builder) refuseCommand(s *server) string {
	switch {
	case s.command == "":
		return "the server has neither a command nor an address"
	case slices.Contains(shells, base(s.command)), b.wholeLine(s.command):
		for _, a := range append([]string{s.command}, s.args...) {
			b.withhold(a)
		}
		return "the command is a shell command line: use the program itself as the command"
	case path.Base(s.command) == "env":
		for _, a := range s.args {
			b.withhold(a)
		}
		return "the command runs \"env\" with options; use the program itself as the command"
	case b.risky(s.command) && !b.isPlainName(s.command) &&
		!strings.ContainsAny(s.command, `/\`), strings.Contains(s.command, "$"), secretlike.Find(s.command).Found():
		b.withhold(s.command)
		return "the command could contain a secret, or refers to a variable"
	}
	return ""
}

func (b *builder) fillLocal(what string, s *server, e *matrix.ServerEntry) bool {
	if problem := b.refuseCommand(s); problem != "" {
		b.note(Dropped, what, "%s", problem)
		return false
	}
	e.Transport, e.Command, e.PackageDigest = "stdio", s.command, zeroDigest
	var set []setting // the variables that an option sets
	var ok bool
	s.values = maps.Clone(s.values)
	if s.values == nil {
		s.values = map[string]string{}
	}
	for _, v := range s.env {
		if variableName.MatchString(v.name) {
			s.values[v.name] = b.safeValue(what, s, v)
		}
	}
	e.Args, ok = b.copyArguments(what, s, func(name, value string, given bool) {
		v := setting{name: name, value: value, secret: !given}
		if _, found := s.expand(value); !found && !b.isPlain(v) {
			b.withhold(value)
		}
		if given || !slices.ContainsFunc(s.env, func(v setting) bool { return v.name == name }) {
			set = append(set, v)
		}
	})
	if !ok {
		return false
	}
	seen := map[string]string{}
	for _, v := range slices.Concat(s.env, set) {
		value, again := seen[v.name]
		switch {
		case !variableName.MatchString(v.name):
			b.note(Dropped, what,
				"an environment variable has an invalid name, and the command cannot be copied without the variable")
			return false
		case again && value != v.value:
			b.note(Dropped, what, "an environment variable is set twice, to different values")
			return false
		case again:
			continue
		}
		seen[v.name] = v.value
		if _, known := s.values[v.name]; !known {
			s.values[v.name] = b.safeValue(what, s, v)
		}
		e.Env = append(e.Env, v.name+"="+s.values[v.name])
	}
	b.setVersion(what, e)
	return true
}

// wholeLine reports whether a command seems to contain arguments. A space does not prove that, because the path of a
// program can contain spaces.
func (b *builder) wholeLine(command string) bool {
	words := strings.Fields(command)
	return len(words) > 1 && slices.ContainsFunc(words[1:], func(word string) bool {
		return dashed(word) || strings.Contains(word, "=") || !strings.ContainsAny(word, `/\`) && b.risky(word)
	})
}

// unwrapLine splits a command with arguments, and removes "cmd /c" before the real program. Any other use of cmd is a
// shell command line, which fillLocal rejects.
func (b *builder) unwrapLine(s *server) {
	s.command = strings.TrimSpace(s.command)
	if len(s.args) == 0 && strings.ContainsAny(s.command, " ") && !strings.ContainsAny(s.command, `/\"'`) {
		fields := strings.Fields(s.command)
		s.command, s.args = fields[0], fields[1:]
	}
	if base(s.command) == "cmd" && len(s.args) > 1 && strings.EqualFold(s.args[0], "/c") &&
		!strings.ContainsAny(strings.Join(s.args, ""), "&|<>^%") && !inList(strings.ToLower(s.args[1]), cmdBuiltins) {
		s.command, s.args = s.args[1], s.args[2:]
	}
}

// unwrapEnv removes env before the real program. With options, env does more than set variables, so fillLocal rejects
// the command.
func (b *builder) unwrapEnv(s *server) {
	if path.Base(s.command) != "env" {
		return
	}
	first := slices.IndexFunc(s.args,
		func(a string) bool { return strings.HasPrefix(a, "-") || !strings.Contains(a, "=") })
	if first >= 0 && strings.HasPrefix(s.args[first], "-") {
		return
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

// cmdBuiltins lists the built-in commands of cmd.
const cmdBuiltins = "call cd chdir copy del dir echo for goto if md mkdir move path popd pushd rd rem ren set " +
	"setlocal start title type"

// isPlain reports whether a setting cannot be a secret.
func (b *builder) isPlain(s setting) bool {
	return !s.secret && s.value != "" && (b.isPlainSetting(s.name, s.value) ||
		s.plain && !secretName(s.name) && !secretlike.Find(s.value).Found() && !hasPassword(s.value) && !tokenLike(s.value))
}

// safeValue returns either the value of a setting or a reference to an environment variable. It returns the value only
// if the value cannot be a secret.
func (b *builder) safeValue(what string, s *server, set setting) string {
	if text, found := s.expand(set.value); found {
		bare := ownReference.ReplaceAllString(text, "")
		for _, scheme := range schemes {
			bare = strings.TrimPrefix(bare, scheme)
		}
		whole := bare == "" || !secretName(set.name) || len(strings.Trim(bare, " :;,=/")) < 8
		if whole && len(secretlike.Pairs(text)) == 0 && b.isPlainAround(set.value) &&
			(text == "" || ownReference.MatchString(text) || b.isPlainSetting(set.name, text)) {
			return text
		}
		b.withhold(set.value)
	} else if b.isPlain(set) {
		return set.value
	}
	for _, scheme := range schemes {
		if body, ok := strings.CutPrefix(set.value, scheme); ok {
			return scheme + b.refer(what, "the value of "+set.name, set.name, s.alias, body)
		}
	}
	if set.value == "" {
		return "$env:" + variable(set.name)
	}
	return b.refer(what, "the value of "+set.name, set.name, s.alias, set.value)
}

// isPlainAround reports whether the text around the references in a value cannot be a secret.
func (b *builder) isPlainAround(value string) bool {
	text := reference.ReplaceAllString(value, "")
	if b.containsWithheld(text) || hasPassword(text) || secretlike.Find(text).Found() || tokenLike(text) {
		return false
	}
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t:=,;/?&@", r) })
	return isPath(text) || !slices.ContainsFunc(parts, func(p string) bool {
		return b.risky(p) && !numbers.MatchString(p) && !hostName.MatchString(p) && !shortVersion.MatchString(p)
	})
}

var shortVersion = regexp.MustCompile(`^v\d{1,2}$`)

// schemes lists the authentication schemes that can precede a credential.
var schemes = []string{"Bearer ", "Basic ", "Token "}

// refer returns a reference to a variable for a value that is not copied. The variable gets the given name. If another
// value already uses that name, the server's alias is added to the name.
func (b *builder) refer(what, label, name, alias, value string) string {
	name = variable(name)
	if other, taken := b.refs[name]; name == "AUTHORIZATION" || taken && other != value {
		name = variable(alias + "_" + name)
	}
	for base, n := name, 2; b.refs[name] != "" && b.refs[name] != value; n++ {
		name = base + "_" + strconv.Itoa(n)
	}
	b.refs[name] = value
	b.note(Secret, what, "%s is not copied: set the variable %s", label, name)
	return "$env:" + name
}

// setVersion chooses the version of the server: the declared version, the exact version in the arguments, or a
// placeholder. It removes every other version from the arguments.
func (b *builder) setVersion(what string, e *matrix.ServerEntry) {
	if name := unregisteredPackage(e); name != "" {
		// The source must stay in the argument. Without the source, the argument would refer to a registry package with
		// the same name, which anyone could have published. The server gets a placeholder digest instead of a version.
		e.Version = zeroDigest
		b.note(Guessed, what, "the package %s does not come from a registry, so ambit cannot pin it", name)
		return
	}
	inexact := func(asked string) {
		if asked != "" {
			b.note(Dropped, what, "the version %s is not copied, because it is not an exact version", asked)
		}
	}
	s := agent.Server{Transport: agent.Stdio, Command: e.Command, Args: e.Args, Version: e.Version}
	ref, err := pack.Identify(s)
	asked := ref.Asked
	if arg, from, _ := findVersion(e); err != nil && arg != nil {
		asked = (*arg)[from:] // a command of this form cannot be pinned, but its version is still reported
	}
	if _, pinErr := tooluri.ParsePin(asked); pinErr == nil && e.Version == "" {
		e.Version = asked
	} else if asked != "" && asked != e.Version && err == nil {
		for i, a := range e.Args {
			for _, separator := range []string{"==", "@"} {
				cut, ok := strings.CutSuffix(a, separator+asked)
				_, value, _ := strings.Cut(cut, "=") // the value of --package=
				if name, _, _ := strings.Cut(cmp.Or(value, cut), "["); ok && name == ref.Name {
					e.Args[i] = cut
				}
			}
		}
		inexact(asked)
	}
	if _, err := tooluri.ParsePin(e.Version); e.Version == "" || err != nil {
		e.Version = UnknownVersion
		b.note(Guessed, what,
			"the version is unknown, so %s is a placeholder; to pin the newest version, run: ambit lock --update",
			UnknownVersion)
	}
	// Remove every version that contradicts the declared version.
	for arg, from, name := findVersion(e); arg != nil && (*arg)[from:] != e.Version; arg, from, name = findVersion(e) {
		inexact((*arg)[from:])
		*arg = (*arg)[:name]
	}
}

// packageOf returns the first argument that is neither an option nor the value of a known option. The manifest
// validation treats this argument as the package. The result is nil if there is no such argument, or if the command is
// not npx, bunx, pnpx or uvx.
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

// unregisteredPackage returns a package in the arguments that does not come from a registry. It returns "" if there is
// no such package.
func unregisteredPackage(e *matrix.ServerEntry) string {
	if arg := packageOf(e); arg != nil && notFromRegistry(*arg) {
		return *arg
	}
	for _, arg := range e.Args {
		if flag, value, joined := strings.Cut(arg, "="); joined && inList(flag, nodePackages+" "+uvPackages) &&
			notFromRegistry(value) {
			return value
		}
	}
	return ""
}

// notFromRegistry reports whether arg is anything other than the name of a registry package, with or without a version.
// Examples are a path, a URL, and a name with a source, such as name@file:name.tgz or name@npm:other.
func notFromRegistry(arg string) bool {
	scope := ""
	if strings.HasPrefix(arg, "@") {
		scope, arg, _ = strings.Cut(arg[1:], "/")
	}
	name, place, at := strings.Cut(arg, "@")
	file := strings.ToLower(name)
	if at {
		file = strings.ToLower(place)
	}
	return strings.ContainsAny(scope+name+place, `:/\`) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") ||
		strings.HasPrefix(place, ".") ||
		slices.ContainsFunc([]string{".tgz", ".tar", ".tar.gz", ".whl"},
			func(ext string) bool { return strings.HasSuffix(file, ext) })
}

// findVersion finds the argument that contains the name and the version of the package. (*arg)[:name] is the name, and
// (*arg)[from:] is the version. If there is no version, arg is nil.
func findVersion(e *matrix.ServerEntry) (arg *string, from, name int) {
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

// addTools adds the tools of the input to the entry. If the input lists no tools, addTools adds a placeholder, which
// cannot be called.
func (b *builder) addTools(what string, s *server, e *matrix.ServerEntry) {
	for _, t := range s.tools {
		if !toolName.MatchString(t.name) || b.scrub(t.name) != t.name ||
			slices.ContainsFunc(e.Tools, func(o matrix.ToolEntry) bool { return o.Name == t.name }) {
			b.note(Dropped, what, "a tool is left out, because its name is invalid or appears twice")
			continue
		}
		class := classOf(t.name)
		e.Tools = append(e.Tools, matrix.ToolEntry{Name: t.name, Description: b.scrub(t.description), SideEffectClass: class})
		b.note(Guessed, "tool "+e.Alias+"/"+t.name, "the class %s is a guess based on the tool's name", class)
	}
	if len(e.Tools) > 0 {
		return
	}
	e.Tools = []matrix.ToolEntry{{
		Name:            UnknownTool,
		Description:     "Placeholder for the tools of this server. They were unknown when the server was imported.",
		SideEffectClass: string(agent.Shell),
	}}
	b.note(Guessed, what, "the tools are unknown; to start the server and see how to declare its tools, run: ambit verify")
}

var readingName = regexp.MustCompile(`^(get|list|read|search|find|describe|show|count|query|lookup|view)([_.-]` +
	`|[A-Z]|$)`)

// classOf guesses the side-effect class of a tool from its name. The class is "read" if the name begins with a verb
// such as get or list. For any other name, the class is "shell", which is the most dangerous class.
func classOf(name string) string {
	if readingName.MatchString(name) {
		return string(agent.Read)
	}
	return string(agent.Shell)
}
