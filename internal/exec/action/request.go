package action

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// http sends the request of an HTTP action and converts the response to a result.
func (b *binding) http(ctx context.Context, t *agent.Tool, h agent.HTTP, c *call.Call) (call.Result, error) {
	if b.Egress == nil {
		return call.Result{}, call.Unsent(call.Refuse(stage, call.ServerUnavailable, "HTTP actions are not available"))
	}
	req, err := b.request(ctx, t, h, c)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	resp, err := b.Egress.Send(req, t.SideEffect)
	if err != nil {
		return call.Result{}, err
	}
	defer resp.Body.Close()
	return b.toResult(req, resp, t.SideEffect)
}

// request builds the request of an action from the templates and the values of the call. It attaches the credential
// last.
func (b *binding) request(ctx context.Context, t *agent.Tool, h agent.HTTP, c *call.Call) (*http.Request, error) {
	args, err := readArguments(t, c)
	if err != nil {
		return nil, err
	}
	u, err := args.address(h)
	if err != nil {
		return nil, err
	}
	req := (&http.Request{Method: h.Method, URL: u, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
	secret := map[string]string{}
	for name, template := range h.Headers {
		switch {
		case strings.EqualFold(name, "Accept-Encoding"):
			// The HTTP transport negotiates the encoding, so ignore the manifest's header.
		case credential.Uses(template):
			secret[name] = template
		case args.leaveOut(template):
		default:
			value, err := args.fill(template, checkHeader)
			if err != nil {
				return nil, err
			}
			req.Header.Set(name, value)
		}
	}
	if err := args.setBody(req, h); err != nil {
		return nil, err
	}
	setDefaults(req, t, c)
	if h.AuthRef == "" {
		return req, nil
	}
	return req, b.attach(req, h, secret, args)
}

func (b *binding) attach(req *http.Request, h agent.HTTP, templates map[string]string, args arguments) error {
	slot := b.agent.Slot(h.AuthRef)
	if slot == nil || b.Credentials == nil {
		return call.Refuse(stage, call.CredentialMissing, "the credential %s is not set", diag.Quote(h.AuthRef))
	}
	value, err := b.Credentials.Slot(b.agent, slot)
	if err != nil || value.IsZero() { // headers of an optional credential that is not set are left out
		return err
	}
	if value, err = b.Credentials.Token(req.Context(), b.Egress, b.agent, slot, value); err != nil {
		return err
	}
	return credential.Attach(b.Egress.Switches(), req, slot, value, templates, func(name string) (string, error) {
		text, err := args.textValue(name)
		if err == nil {
			err = args.take(len(text))
		}
		if err != nil {
			return "", err
		}
		return checkHeader(text)
	})
}

// setDefaults adds default headers. Headers from the manifest take precedence.
func setDefaults(req *http.Request, t *agent.Tool, c *call.Call) {
	set := func(name, value string) {
		if _, ok := req.Header[name]; !ok {
			req.Header.Set(name, value)
		}
	}
	set("User-Agent", "ambit")
	set("Accept", "application/json, */*;q=0.8")
	if t.Policy.Idempotent {
		key := cmp.Or(c.IdempotencyKey, c.ID)
		if !httpguts.ValidHeaderFieldValue(key) {
			key = fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
		}
		set("Idempotency-Key", key)
	}
}

// checkHeader returns a header value unchanged. It refuses a value that a header cannot contain.
func checkHeader(text string) (string, error) {
	if !httpguts.ValidHeaderFieldValue(text) {
		return "", call.Refuse(stage, call.InputInvalid, "the value of a header has a line break or control character")
	}
	return text, nil
}

// address returns the URL of an action, with its placeholders filled in. The scheme, host and port must be the same as
// in the manifest.
func (a arguments) address(h agent.HTTP) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(h.URL, "://")
	host, path := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host, path = rest[:end], rest[end:]
	}
	if !ok || strings.ContainsAny(scheme+host, "{}") {
		return nil, call.Refuse(stage, call.HostNotAllowed, "a placeholder must not determine the host in the URL")
	}
	base, err := url.Parse(scheme + "://" + host)
	if err != nil {
		return nil, call.Refuse(stage, call.HostNotAllowed, "the URL of %s cannot be parsed", a.tool.Name)
	}
	path, query, hasQuery := strings.Cut(path, "?")
	if path, err = a.path(path); err != nil {
		return nil, err
	}
	filled, err := a.pairs(query)
	if err != nil {
		return nil, err
	}
	text := scheme + "://" + host + path
	if hasQuery && (filled != "" || query == "") {
		text += "?" + filled
	}
	u, err := url.Parse(text)
	if err != nil || !egress.Same(u, base) || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, call.Refuse(stage, call.HostNotAllowed,
			"the values would change the scheme, host or port in the URL of %s", a.tool.Name)
	}
	name, err := egress.Host(u.Hostname())
	if err != nil {
		// The host is not a domain name but, for example, an IP address. Package egress refuses such hosts by default.
		name = strings.ToLower(u.Hostname())
	}
	if name != h.Host {
		return nil, call.Refuse(stage, call.HostNotAllowed,
			"the host in the URL of %s does not match the action's host", a.tool.Name)
	}
	if err == nil {
		// Use the normalized host in all later checks.
		u.Host = name
		if port := base.Port(); port != "" {
			u.Host = net.JoinHostPort(name, port)
		}
	}
	return u, nil
}

// path fills the placeholders of a path, segment by segment. It refuses a value that would change the structure of the
// path.
func (a arguments) path(template string) (string, error) {
	segments := strings.Split(template, "/")
	for i, s := range segments {
		found, _ := agent.Placeholders(s)
		if len(found) == 0 {
			continue
		}
		filled, err := a.fill(s, percent)
		if err != nil {
			return "", err
		}
		whole := len(found) == 1 && found[0].Start == 0 && found[0].End == len(s) && a.hasSegments(found[0].Name)
		if changesPath(filled, whole) {
			r := call.Refuse(stage, call.InputInvalid, "the value for %s would change the path of the URL",
				diag.Quote(found[0].Name))
			r.Hint = "use a value that is not empty and contains no slash, no backslash, and no \".\" or \"..\" as a segment"
			return "", r
		}
		if whole {
			filled = strings.ReplaceAll(filled, "%2F", "/")
		}
		segments[i] = filled
	}
	return strings.Join(segments, "/"), nil
}

// hasSegments reports whether the manifest allows a value to consist of several segments of a path.
func (a arguments) hasSegments(name string) bool {
	return string(rawjson.Lookup([]byte(a.tool.InputSchema), "properties", name, "x-ambit-segments")) == "true"
}

// changesPath reports whether a filled segment would change the structure of the path. Some servers decode a path more
// than once, or before they split it, so the segment is decoded completely. If whole is true, slashes may separate
// segments.
func changesPath(segment string, whole bool) bool {
	for range maxDecoded {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == segment {
			break
		}
		segment = plain
	}
	if segment == "" || strings.Contains(segment, `\`) || !whole && strings.Contains(segment, "/") {
		return true
	}
	parts := strings.Split(segment, "/")
	return slices.Contains(parts, ".") || slices.Contains(parts, "..") || len(parts) > 1 && slices.Contains(parts, "")
}

// maxDecoded is the maximum number of times that a value is percent-decoded to find hidden slashes.
const maxDecoded = 5

// setBody sets the body of a request. It sets no body for GET and HEAD.
func (a arguments) setBody(req *http.Request, h agent.HTTP) error {
	if h.Body == "" || egress.Reads(h.Method) {
		return nil
	}
	if a.leaveOut(strings.TrimSpace(h.Body)) {
		req.Header.Del("Content-Type")
		return nil
	}
	text, kind, err := a.body(h.Body, h.ContentType())
	if err != nil {
		return err
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", kind)
	}
	req.Body = io.NopCloser(bytes.NewReader(text))
	req.ContentLength = int64(len(text))
	return nil
}

const (
	typeJSON = "application/json"
	typeText = "text/plain; charset=utf-8"
)

// body fills the placeholders of a request body. The content type in the manifest decides how values are escaped, so
// that no value can change the escaping. The second result is the content type to use if the manifest sets none.
func (a arguments) body(template, contentType string) ([]byte, string, error) {
	var esc escape
	kind := agent.KindOfBody(contentType, template)
	switch kind {
	case agent.JSONBody:
		text, err := a.jsonBody(template)
		return text, typeJSON, err
	case agent.FormBody:
		text, err := a.pairs(template)
		return []byte(text), typeText, err
	case agent.XMLBody:
		esc = xmlText
	case agent.MultipartBody:
		esc = multipartText
	case agent.TextBody:
		esc = plain
	default:
		if found, _ := agent.Placeholders(template); len(found) > 0 {
			return nil, "", call.Refuse(stage, call.InputInvalid,
				"ambit cannot escape values in a body of the type %s", diag.Quote(contentType))
		}
		esc = plain
	}
	text, err := a.fill(template, esc)
	if err == nil && kind == agent.MultipartBody {
		err = sameParts(template, text, contentType)
	}
	return []byte(text), typeText, err
}

// sameParts returns a refusal if the filled body has more or fewer multipart boundaries than its template.
func sameParts(template, filled, contentType string) error {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" || strings.ContainsAny(params["boundary"], "{}") {
		return call.Refuse(stage, call.InputInvalid, "the content type %s needs a fixed boundary", diag.Quote(contentType))
	}
	if boundary := "--" + params["boundary"]; strings.Count(filled, boundary) != strings.Count(template, boundary) {
		return call.Refuse(stage, call.InputInvalid,
			"a value for a multipart body contains the boundary between the body's parts")
	}
	return nil
}

// jsonBody fills the placeholders of a JSON template. A placeholder without quotes is replaced with a JSON value. A
// placeholder inside quotes becomes part of the string. A member or element whose value is {name?} is left out if the
// placeholder has no value.
func (a arguments) jsonBody(template string) ([]byte, error) {
	found, _ := agent.Placeholders(template)
	var b bytes.Buffer
	at, quoted, begin := 0, false, 0
	for _, p := range found {
		before := template[at:p.Start]
		var mark int
		if quoted, mark = scanJSON(before, quoted); mark >= 0 {
			begin = b.Len() + mark
		}
		b.WriteString(before)
		at = p.End
		v, err := a.value(p.Name)
		if err != nil && p.Modifier == agent.Optional && !quoted {
			at += removeMember(&b, begin, template[at:])
			continue
		}
		if err != nil {
			return nil, err
		}
		if quoted {
			if v, err = stringContent(v, a.missing(p.Name)); err != nil {
				return nil, err
			}
		}
		if err := a.take(len(v)); err != nil {
			return nil, err
		}
		b.Write(v)
	}
	b.WriteString(template[at:])
	if !jsontext.Value(b.Bytes()).IsValid() {
		return nil, call.Refuse(stage, call.InputInvalid, "with these values, the body is not valid JSON")
	}
	return b.Bytes(), nil
}

// scanJSON reports whether a text ends inside a JSON string. The parameter quoted is true if the text begins inside a
// JSON string. The second result is the offset of the last bracket or comma outside strings, or -1.
func scanJSON(text string, quoted bool) (ends bool, mark int) {
	mark = -1
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == '\\' && quoted:
			i++
		case !quoted && strings.IndexByte("{[,", text[i]) >= 0:
			mark = i
		}
	}
	return quoted, mark
}

// stringContent returns a value as the content of a JSON string, without the quotes. If the value is null, it returns
// the given error.
func stringContent(v jsontext.Value, missing error) (jsontext.Value, error) {
	text, err := textOf(v, missing)
	if err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, missing
	}
	return quoted[1 : len(quoted)-1], nil
}

func xmlText(text string) (string, error) {
	var b bytes.Buffer
	err := xml.EscapeText(&b, []byte(text))
	return b.String(), err
}

// multipartText refuses a value that could terminate a part of a multipart body.
func multipartText(text string) (string, error) {
	if strings.ContainsAny(text, "\r\n\"") {
		return "", call.Refuse(stage, call.InputInvalid, "the value for a multipart body has a line break or quote")
	}
	return text, nil
}

// arguments contains the values of one call.
type arguments struct {
	tool   *agent.Tool
	values map[string]jsontext.Value
	// spare is the number of bytes that are left for the values of further placeholders.
	spare *int
}

// spareBytes and growth limit the size of the values in a request: spareBytes bytes, plus growth bytes for each byte
// of the arguments. The limit is larger than the arguments, because escaping makes values larger, and templates can
// repeat values.
const (
	spareBytes = 1 << 20
	growth     = 8
)

// take subtracts n from spare. It returns a refusal if spare would become negative.
func (a arguments) take(n int) error {
	if *a.spare -= n; *a.spare < 0 {
		r := call.Refuse(stage, call.InputTooLong, "the arguments make the request of %s too large", a.tool.Name)
		r.Hint = "pass smaller values, and objects with shorter member names"
		return r
	}
	return nil
}

func readArguments(t *agent.Tool, c *call.Call) (arguments, error) {
	spare := spareBytes + growth*len(c.Arguments)
	a := arguments{tool: t, spare: &spare}
	if len(c.Arguments) > 0 && json.Unmarshal(c.Arguments, &a.values) != nil {
		return a, call.Refuse(stage, call.InputInvalid, "the arguments are not a JSON object")
	}
	return a, nil
}

// value returns an argument as compact JSON. If the argument is missing, value returns the default from the input
// schema.
func (a arguments) value(name string) (jsontext.Value, error) {
	v, ok := a.values[name]
	if !ok {
		v = rawjson.Lookup([]byte(a.tool.InputSchema), "properties", name, "default")
	}
	if v = v.Clone(); v == nil || v.Compact() != nil {
		return nil, a.missing(name)
	}
	return v, nil
}

func (a arguments) missing(name string) error {
	r := call.Refuse(stage, call.InputInvalid, "the tool %s needs a value for %s", a.tool.Name, diag.Quote(name))
	r.Hint = "pass the argument, set its default in the manifest's input_schema, or write {NAME?} in the manifest for a " +
		"part of the request that may be left out"
	return r
}

// textValue returns an argument as text: the content of a string, or the JSON of any other value. It treats null as a
// missing value.
func (a arguments) textValue(name string) (string, error) {
	v, err := a.value(name)
	if err != nil {
		return "", err
	}
	return textOf(v, a.missing(name))
}

func textOf(v jsontext.Value, missing error) (string, error) {
	switch v.Kind() {
	case 'n':
		return "", missing
	case '"':
		var text string
		if json.Unmarshal(v, &text) != nil {
			return "", missing
		}
		return text, nil
	}
	return string(v), nil
}

// escape is a function that escapes a value for its position in a template. It returns an error if the value is not
// allowed there.
type escape func(text string) (string, error)

func plain(text string) (string, error) { return text, nil }

// fill replaces each placeholder in a template with its escaped value.
func (a arguments) fill(template string, esc escape) (string, error) {
	found, _ := agent.Placeholders(template)
	var b strings.Builder
	at := 0
	for _, p := range found {
		text, err := a.textValue(p.Name)
		if err == nil {
			text, err = esc(text)
		}
		if err == nil {
			err = a.take(len(text))
		}
		if err != nil {
			return "", err
		}
		b.WriteString(template[at:p.Start] + text)
		at = p.End
	}
	return b.String() + template[at:], nil
}

// percent returns the percent-encoding of a text. Only unreserved characters stay unchanged.
func percent(text string) (string, error) {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20"), nil
}
