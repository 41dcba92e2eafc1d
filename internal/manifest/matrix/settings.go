package matrix

import (
	"net"
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/tooluri"
)

// This file parses a server's environment, headers, address and arguments. People
// paste credentials into each of them.

const envRef = "$env:"

// env reads the NAME=value entries.
func (p *parser) env(o *read.Object) []string {
	list := o.List("env", read.Optional)
	if list.Len() == 0 {
		return nil
	}
	env := p.Room(list.Len())
	var seen read.Seen
	for v := range p.Strings(list) {
		entry := v.Text()
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !isEnvName(name) {
			hint := ""
			switch {
			case ok && isEnvName(strings.TrimSpace(name)):
				hint = "remove the space around ="
			case ok:
				hint = "a variable's name is of letters, digits and _"
			case secretlike.Find(entry).Found():
				hint = "revoke it if it was real, then write NAME=$env:NAME"
			case isEnvName(entry):
				hint = "write " + diag.Quote(entry+"="+envRef+entry)
			}
			// The entry may be a bare secret, so it is masked.
			p.Source.Mask(v.Place().Start, v.Place().End)
			p.Report(ruleEnvForm, v.Place(), hint, "an env entry must be NAME=value")
			continue
		}
		if !seen.Add(name) {
			p.Report(ruleDuplicateEnv, v.Place(), "", "%s is set twice", diag.Quote(name))
		}
		p.setting(v, name, value, len(name)+1)
		env = append(env, entry)
	}
	return env
}

func isEnvName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// ownHeaders are set by the HTTP connection.
var ownHeaders = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true, "connection": true, "upgrade": true,
	"te": true, "trailer": true, "keep-alive": true, "proxy-connection": true, "content-type": true, "accept": true,
	"mcp-session-id": true, "mcp-protocol-version": true, "mcp-method": true, "mcp-name": true,
}

func (p *parser) headers(o *read.Object) map[string]string {
	v := o.Get("headers", read.Optional)
	if !v.Ok() || !p.Is(v, doc.Object) {
		return nil
	}
	headers := make(map[string]string, v.Len())
	var seen read.Seen
	for h := range v.Each() {
		if !p.Is(h, doc.String) {
			continue
		}
		name := h.Key()
		folded := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			hint := ""
			if bare := strings.TrimRight(name, ": "); httpguts.ValidHeaderFieldName(bare) {
				hint = "write " + diag.Quote(bare)
			}
			p.Report(ruleHeaderName, h.KeyPlace(), hint, "%s is not the name of a header", diag.Quote(name))
		case ownHeaders[folded]:
			p.Report(ruleHeaderName, h.KeyPlace(), "remove it: the connection sets it", "the header %s belongs to the connection", diag.Quote(name))
		case !seen.Add(folded):
			p.Report(ruleDuplicateEnv, h.KeyPlace(), "", "the header %s is set twice", diag.Quote(name))
		}
		if !httpguts.ValidHeaderFieldValue(h.Text()) {
			p.Report(ruleHeaderValue, h.Place(), "", "the header %s contains a line break or control character", diag.Quote(name))
		}
		p.setting(h, name, h.Text(), 0)
		headers[name] = h.Text()
	}
	return headers
}

// otherRefs matches other formats' references to an environment variable, and mistakes
// in ours. The group is the name.
var otherRefs = regexp.MustCompile(`\$\{\{[^}]*\}\}|\$\{(?:env:|input:)?([^}:]*)[^}]*\}|\{env:(\w+)\}|(?i:\$env)[:.](\w+)|(?:^|\s)\$([A-Za-z_]\w*)$`)

// setting checks one value, which is at byte offset from of v, against the rules on
// credentials.
func (p *parser) setting(v doc.Value, name, value string, from int) {
	refs, bad := references(value)
	if bad >= 0 {
		p.Report(ruleEnvRef, v.Within(from+bad-len(envRef), from+bad), "", "%s is not followed by a variable's name", diag.Quote(envRef))
		return
	}
	if len(refs) > 0 {
		// A reference beside a literal credential does not excuse it.
		if secretlike.Name(name) && len(remainder(value, refs)) >= 8 {
			at := v.Within(from, from+len(value))
			p.Source.Mask(at.Start, at.End)
			p.Report(ruleLiteralCredential, at, "put the whole credential into the variable", "%s contains a literal value beside its reference", diag.Quote(name))
		}
		return
	}
	at := v.Within(from, from+len(value))
	if strings.ContainsAny(value, "${") {
		if m := otherRefs.FindStringSubmatchIndex(value); m != nil {
			found := strings.TrimSpace(value[m[0]:m[1]])
			start := m[1] - len(found)
			shown := diag.Quote(found)
			if secretlike.Name(name) && (strings.Contains(found, ":-") || len(value) > len(found)+len("Bearer ")) {
				p.Source.Mask(at.Start, at.End) // a default or the text beside it may be the secret
				shown = "the value"
			}
			p.Report(ruleEnvRef, v.Within(from+start, from+m[1]), "write "+envRef+refName(value, m, name), "%s is not a reference that Matrix knows", shown)
			return
		}
	}
	switch {
	case value == "":
	case secretlike.Name(name):
		p.Source.Mask(at.Start, at.End)
		p.Report(ruleLiteralCredential, at, literalHint(name, value), "%s has the name of a credential but a literal value", diag.Quote(name))
	case p.Strict:
		p.Report(ruleLiteralSetting, at, "write "+envRef+envName(name), "%s contains a literal value", diag.Quote(name))
	}
}

// remainder is the value without its references and the name of an authorization
// scheme.
func remainder(value string, refs []string) string {
	for _, ref := range refs {
		value = strings.Replace(value, envRef+ref, "", 1)
	}
	for _, scheme := range []string{"Bearer", "Basic", "Token", "token", "bearer", "basic"} {
		value = strings.TrimPrefix(value, scheme)
	}
	return strings.Trim(value, " :;,=/")
}

// refName is the variable of another format's reference: the one it names, or else one
// named after the setting.
func refName(value string, match []int, setting string) string {
	for g := 2; g < len(match); g += 2 {
		if match[g] < 0 {
			continue
		}
		if name := value[match[g]:match[g+1]]; isEnvName(name) {
			return name
		} else if name = envName(name); isEnvName(name) {
			return name
		}
	}
	return envName(setting)
}

// literalHint keeps the scheme in front of a credential.
func literalHint(name, value string) string {
	if scheme, _, ok := strings.Cut(value, " "); ok && (scheme == "Bearer" || scheme == "Basic" || scheme == "Token") {
		return "write " + scheme + " " + envRef + "NAME"
	}
	return "write " + envRef + envName(name)
}

// envName derives a variable's name from a header's.
func envName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// references returns the names in a value's $env:NAME references, and the offset of a
// reference without a name, or -1.
func references(value string) (names []string, bad int) {
	for off := 0; ; {
		i := strings.Index(value[off:], envRef)
		if i < 0 {
			return names, -1
		}
		off += i + len(envRef)
		end := off
		for end < len(value) && (isEnvName(value[end:end+1]) || end > off && '0' <= value[end] && value[end] <= '9') {
			end++
		}
		if end == off {
			return names, off
		}
		names = append(names, value[off:end])
		off = end
	}
}

// endpoint parses the address of an http server, under either name.
func (p *parser) endpoint(o *read.Object) string {
	v := o.Get("endpoint", read.Optional)
	alias := o.Get("url", read.Optional)
	switch {
	case alias.Ok() && v.Ok():
		p.Is(alias, doc.String)
		p.Report(ruleURLAlias, alias.KeyPlace(), `remove "url"`, `"url" has no effect beside "endpoint"`)
	case alias.Ok():
		p.Report(ruleURLAlias, alias.KeyPlace(), "", `"url" is read as "endpoint"`)
		v = alias
	}
	if !p.Is(v, doc.String) {
		return ""
	}
	if strings.Contains(v.Text(), envRef) {
		p.Report(ruleRefPlace, v.Place(), "send it in a header", "the endpoint contains an $env: reference, which is not resolved there")
		return v.Text()
	}
	u, err := url.Parse(v.Text())
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		p.Report(ruleEndpointURL, v.Place(), "", "%s is not an http or https address", diag.Quote(v.Text()))
	case u.User != nil:
		p.Source.Mask(v.Place().Start, v.Place().End)
		p.Report(ruleEndpointURL, v.Place(), "send the credential in a header, as $env:NAME", "the endpoint contains a user name or password")
	case u.Fragment != "":
		p.Report(ruleEndpointURL, v.Place(), "remove the text from # on", "the endpoint has a fragment, which is never sent")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		p.Report(rulePlainHTTP, v.Place(), "", "the connection to %s is not encrypted", diag.Quote(u.Hostname()))
	}
	for key, values := range queryOf(u) {
		if secretlike.Name(key) && values[0] != "" {
			p.Source.Mask(v.Place().Start, v.Place().End)
			p.Report(ruleLiteralCredential, v.Place(), "send it in a header, as $env:NAME", "the endpoint's query contains %s, which has the name of a credential", diag.Quote(key))
		}
	}
	return v.Text()
}

func queryOf(u *url.URL) url.Values {
	if u == nil {
		return nil
	}
	return u.Query()
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// args reports references and credentials on the command line: references are not
// resolved there, and every local user can read credentials there.
func (p *parser) args(o *read.Object, s *ServerEntry) {
	list := o.Value().Get("args")
	flag := "" // the flag before this argument, if it takes a secret
	for v := range list.Each() {
		arg := v.Text()
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case !v.Is(doc.String):
		case strings.Contains(arg, envRef):
			p.Report(ruleRefPlace, v.Place(), "", "the argument contains an $env: reference, which is not resolved there")
		case joined && strings.HasPrefix(name, "-") && secretlike.Name(name) && value != "":
			p.literalArg(v, len(name)+1, name)
		case flag != "" && arg != "" && !strings.HasPrefix(arg, "-"):
			p.literalArg(v, 0, flag)
		}
		flag = ""
		if strings.HasPrefix(arg, "-") && !joined && secretlike.Name(arg) {
			flag = arg
		}
	}
	p.argsVersion(list, s)
	if c := o.Value().Get("command"); strings.Contains(c.Text(), envRef) {
		p.Report(ruleRefPlace, c.Place(), "write the path itself, or a name that PATH finds", "the command contains an $env: reference, which is not resolved there")
	}
}

func (p *parser) literalArg(v doc.Value, from int, flag string) {
	at := v.Within(from, len(v.Text()))
	p.Source.Mask(at.Start, at.End)
	p.Report(ruleLiteralCredential, at, "pass it through env as NAME=$env:NAME", "the value of %s is a literal credential", diag.Quote(flag))
}

// argsVersion compares the version in args with the declared version.
func (p *parser) argsVersion(list doc.Value, s *ServerEntry) {
	var separator string
	switch s.Command {
	case "npx", "bunx", "pnpx":
		separator = "@"
	case "uvx":
		separator = "=="
		if !strings.Contains(strings.Join(s.Args, " "), separator) {
			separator = "@"
		}
	default:
		return
	}
	if pin, err := tooluri.ParsePin(s.Version); err != nil || pin.Digest() {
		return
	}
	for v := range list.Each() {
		arg := v.Text()
		if arg == "" || arg[0] == '-' {
			continue
		}
		if i := strings.LastIndex(arg, separator); i > 0 {
			// A part with a slash is an address, as in git@host/repository.
			if got := arg[i+len(separator):]; got != s.Version && !strings.Contains(got, "/") {
				at := v.Within(i+len(separator), len(arg))
				p.Report(ruleArgsVersion, at, "write "+diag.Quote(arg[:i]+separator+s.Version), "the arguments name version %s, but %s is declared", diag.Quote(got), diag.Quote(s.Version))
			}
		}
		return // only the package's own name: what follows are its arguments
	}
}
