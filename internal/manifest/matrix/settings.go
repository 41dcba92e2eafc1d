package matrix

import (
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/tooluri"
)

// This file parses a server's environment, headers, address and arguments. It also looks for credentials, because
// people paste them into all of these places.

const envRef = "$env:"

// env parses the entries of "env", which have the form NAME=value.
func (p *parser) env(o *read.Object) []string {
	list := o.List("env", read.Optional)
	if list.Len() == 0 {
		return nil
	}
	env := p.MakeStrings(list.Len())
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
				hint = "use only letters, digits and _ in the name of a variable"
			case secretlike.Find(entry).Found():
				hint = "revoke the secret if it was real, then write NAME=$env:NAME"
			case isEnvName(entry):
				hint = "write " + diag.Quote(entry+"="+envRef+entry)
			}
			// Mask the entry, which could be a secret without a name.
			p.Source.Mask(v.Place().Start, v.Place().End)
			p.Report(ruleEnvForm, v.Place(), hint, "an entry in \"env\" must have the form NAME=value")
			continue
		}
		if !seen.Add(name) {
			p.Report(ruleDuplicateEnv, v.Place(), "", "%s is set twice", diag.Quote(name))
		}
		p.checkSetting(v, name, value, len(name)+1)
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

// ownHeaders contains the headers that the HTTP connection sets itself.
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
			p.Report(ruleHeaderName, h.KeyPlace(), "remove the header; the HTTP connection sets it",
				"the header %s is reserved for the HTTP connection", diag.Quote(name))
		case !seen.Add(folded):
			p.Report(ruleDuplicateEnv, h.KeyPlace(), "", "the header %s is set twice", diag.Quote(name))
		}
		if !httpguts.ValidHeaderFieldValue(h.Text()) {
			p.Report(ruleHeaderValue, h.Place(), "", "the header %s contains a line break or control character",
				diag.Quote(name))
		}
		p.checkSetting(h, name, h.Text(), 0)
		headers[name] = h.Text()
	}
	return headers
}

// otherRefs matches references to environment variables in other formats, and misspelled $env: references. The groups
// capture the name of the variable.
var otherRefs = regexp.MustCompile(`\$\{\{[^}]*\}\}|\$\{(?:env:|input:)?([^}:]*)[^}]*\}|` +
	`\{env:(\w+)\}|(?i:\$env)[:.](\w+)|(?:^|\s)\$([A-Za-z_]\w*)$`)

// checkSetting reports literal credentials and invalid references in the value of a variable or header. The value is
// the part of v's text that begins at the given offset.
func (p *parser) checkSetting(v doc.Value, name, value string, offset int) {
	refs, bad := references(value)
	if bad >= 0 {
		p.Report(ruleEnvRef, v.Within(offset+bad-len(envRef), offset+bad), "", "%s is not followed by the name of a variable",
			diag.Quote(envRef))
		return
	}
	if len(refs) > 0 {
		// A value with a reference can still contain a literal credential.
		if secretlike.Name(name) && len(remainder(value, refs)) >= 8 {
			at := v.Within(offset, offset+len(value))
			p.Source.Mask(at.Start, at.End)
			p.Report(ruleLiteralCredential, at, "put the whole credential into the variable",
				"%s contains a literal value in addition to an $env: reference", diag.Quote(name))
		} else if !secretlike.Name(name) {
			p.literalPairs(v, value, offset)
		}
		return
	}
	at := v.Within(offset, offset+len(value))
	if strings.ContainsAny(value, "${") {
		if m := otherRefs.FindStringSubmatchIndex(value); m != nil {
			found := strings.TrimSpace(value[m[0]:m[1]])
			start := m[1] - len(found)
			shown := diag.Quote(found)
			if secretlike.Name(name) && (strings.Contains(found, ":-") || len(value) > len(found)+len("Bearer ")) {
				p.Source.Mask(at.Start, at.End) // the default value, or the text around the reference, may contain a secret
				shown = "the value"
			}
			p.Report(ruleEnvRef, v.Within(offset+start, offset+m[1]), "write "+envRef+refName(value, m, name),
				"%s does not have the form $env:NAME", shown)
			return
		}
	}
	switch {
	case value == "":
	case secretlike.Name(name) && !secretlike.PlainURL(value) && !secretlike.PlainValue(value):
		p.Source.Mask(at.Start, at.End)
		p.Report(ruleLiteralCredential, at, literalHint(name, value),
			"%s usually holds a credential, but the manifest contains the value itself", diag.Quote(name))
	case p.literalPairs(v, value, offset):
	case p.Strict:
		p.Report(ruleLiteralSetting, at, "write "+envRef+envName(name), "%s contains a literal value", diag.Quote(name))
	}
}

// literalPairs reports the credentials inside a value, such as a JSON object with headers. The value begins at the given
// offset of v's text. The result is false if there are none.
func (p *parser) literalPairs(v doc.Value, value string, offset int) bool {
	pairs := secretlike.Pairs(value)
	for _, n := range pairs {
		at := v.Within(offset+n.Start, offset+n.End)
		p.Source.Mask(at.Start, at.End)
		p.Report(ruleLiteralCredential, at, "put the whole value into a variable, and write $env:NAME",
			"the value of %s is a literal credential", diag.Quote(n.Name))
	}
	return len(pairs) > 0
}

// remainder returns a value without its references and without the name of an authorization scheme.
func remainder(value string, refs []string) string {
	for _, ref := range refs {
		value = strings.Replace(value, envRef+ref, "", 1)
	}
	for _, scheme := range []string{"Bearer", "Basic", "Token", "token", "bearer", "basic"} {
		value = strings.TrimPrefix(value, scheme)
	}
	return strings.Trim(value, " :;,=/")
}

// refName returns the name of the variable in a reference of another format. If the reference has no valid name,
// refName derives a name from the name of the setting.
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

// literalHint returns the hint for a literal credential. If the value begins with an authorization scheme such as
// Bearer, the suggested value does too.
func literalHint(name, value string) string {
	if scheme, _, ok := strings.Cut(value, " "); ok && (scheme == "Bearer" || scheme == "Basic" || scheme == "Token") {
		return "write " + scheme + " " + envRef + "NAME"
	}
	return "write " + envRef + envName(name)
}

// envName derives the name of a variable from the name of a header.
func envName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// references returns the variable names in the $env:NAME references of a value. The second result is -1 if every
// "$env:" is followed by a name. If not, it is the offset after the first "$env:" without a name.
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

// endpoint parses the address of an http server, which is in "endpoint" or "url".
func (p *parser) endpoint(o *read.Object) string {
	v := o.Get("endpoint", read.Optional)
	alias := o.Get("url", read.Optional)
	switch {
	case alias.Ok() && v.Ok():
		p.Is(alias, doc.String)
		p.Report(ruleURLAlias, alias.KeyPlace(), `remove "url"`, `"url" has no effect because "endpoint" is set`)
	case alias.Ok():
		p.Report(ruleURLAlias, alias.KeyPlace(), "", `"url" is treated as "endpoint"`)
		v = alias
	}
	if !p.Is(v, doc.String) {
		return ""
	}
	if strings.Contains(v.Text(), envRef) {
		p.Report(ruleRefPlace, v.Place(), "move the reference to a header",
			"the endpoint contains an $env: reference, which ambit does not resolve there")
		return v.Text()
	}
	u, err := url.Parse(v.Text())
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		p.Report(ruleEndpointURL, v.Place(), "", "%s is not an http or https address", diag.Quote(v.Text()))
	case u.User != nil:
		p.Source.Mask(v.Place().Start, v.Place().End)
		p.Report(ruleEndpointURL, v.Place(), "send the credential in a header, as $env:NAME",
			"the endpoint contains a user name or password")
	case u.Fragment != "":
		p.Report(ruleEndpointURL, v.Place(), "remove # and the text after it",
			"the endpoint has a fragment, which is never sent")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		p.Report(rulePlainHTTP, v.Place(), "", "the connection to %s is not encrypted", diag.Quote(u.Hostname()))
	}
	if key := queryCredential(u); key != "" {
		p.Source.Mask(v.Place().Start, v.Place().End)
		p.Report(ruleLiteralCredential, v.Place(), "send the credential in a header, as $env:NAME",
			"the endpoint's query contains %s, which usually holds a credential", diag.Quote(key))
	}
	return v.Text()
}

// queryCredential returns the name of the first parameter in a query that usually holds a credential. It returns "" if
// there is none.
func queryCredential(u *url.URL) string {
	if u == nil {
		return ""
	}
	query := u.Query()
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if secretlike.QueryName(key) && strings.Join(query[key], "") != "" {
			return key
		}
	}
	// Query ignores parameters after a semicolon, but a server may read them.
	for _, n := range secretlike.Pairs(u.RawQuery) {
		return n.Name
	}
	return ""
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkArgs reports invalid references and literal credentials in the arguments.
func (p *parser) checkArgs(o *read.Object, s *ServerEntry) {
	list := o.Value().Get("args")
	values, args := make([]doc.Value, 0, list.Len()), make([]string, 0, list.Len())
	for v := range list.Each() {
		values = append(values, v)
		args = append(args, "")
		if !v.Is(doc.String) {
			continue
		}
		args[len(args)-1] = v.Text()
		if _, bad := references(v.Text()); bad >= 0 {
			p.Report(ruleEnvRef, v.Within(bad-len(envRef), bad), "", "%s is not followed by the name of a variable",
				diag.Quote(envRef))
		}
	}
	for _, a := range secretlike.Args(args) {
		p.literalArg(values[a.Index].Within(a.Start, a.End), a.Name)
	}
	p.argsVersion(list, s)
	c := o.Value().Get("command")
	if strings.Contains(c.Text(), envRef) {
		p.Report(ruleRefPlace, c.Place(), "write the path of the program, or the name of a program in PATH",
			"the command contains an $env: reference, which ambit does not resolve there")
	} else if found := secretlike.Args(strings.Fields(c.Text())); len(found) > 0 {
		p.literalArg(c.Place(), found[0].Name)
	}
}

// literalArg reports a credential in an argument.
func (p *parser) literalArg(at diag.Place, name string) {
	p.Source.Mask(at.Start, at.End)
	p.Report(ruleLiteralCredential, at, "pass the credential in \"env\" as NAME=$env:NAME",
		"the value of %s is a literal credential", diag.Quote(name))
}

// argsVersion compares the package version in the arguments with the declared version, and reports a difference.
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
			// Text with a slash is not a version but an address, as in git@host/repository.
			if got := arg[i+len(separator):]; got != s.Version && !strings.Contains(got, "/") {
				at := v.Within(i+len(separator), len(arg))
				p.Report(ruleArgsVersion, at, "write "+diag.Quote(arg[:i]+separator+s.Version),
					"the arguments request version %s, but the declared version is %s", diag.Quote(got), diag.Quote(s.Version))
			}
		}
		return // the remaining arguments belong to the package
	}
}
