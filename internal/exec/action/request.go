package action

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// http sends a request and converts the answer to a result.
func (b *binding) http(ctx context.Context, t *agent.Tool, h agent.HTTP, c *call.Call) (call.Result, error) {
	if b.Egress == nil {
		return call.Result{}, call.Unsent(call.Refuse(stage, call.ServerUnavailable, "http actions are not available here"))
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
	return b.answer(req, resp, t.SideEffect)
}

// request fills an action's request. The credential is attached last.
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
			// The transport negotiates the encoding.
		case credential.Uses(template):
			secret[name] = template
		default:
			value, err := args.fill(template, header)
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
	if err != nil {
		return err
	}
	return credential.Attach(b.Egress.Switches(), req, slot, value, templates, func(name string) (string, error) {
		text, err := args.text(name)
		if err != nil {
			return "", err
		}
		return header(text)
	})
}

// setDefaults adds headers that the manifest may omit.
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

// header refuses values that a header cannot contain.
func header(text string) (string, error) {
	if !httpguts.ValidHeaderFieldValue(text) {
		return "", call.Refuse(stage, call.InputInvalid, "a value for a header contains a line break or control character")
	}
	return text, nil
}

// address fills an action's URL and checks it against the manifest.
func (a arguments) address(h agent.HTTP) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(h.URL, "://")
	host, path := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host, path = rest[:end], rest[end:]
	}
	if !ok || strings.ContainsAny(scheme+host, "{}") {
		return nil, call.Refuse(stage, call.HostNotAllowed, "a placeholder would choose the host of the request")
	}
	base, err := url.Parse(scheme + "://" + host)
	if err != nil {
		return nil, call.Refuse(stage, call.HostNotAllowed, "the URL of %s cannot be parsed", a.tool.Name)
	}
	path, query, hasQuery := strings.Cut(path, "?")
	if path, err = a.path(path); err != nil {
		return nil, err
	}
	if query, err = a.fill(query, percent); err != nil {
		return nil, err
	}
	text := scheme + "://" + host + path
	if hasQuery {
		text += "?" + query
	}
	u, err := url.Parse(text)
	if err != nil || !egress.Same(u, base) || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, call.Refuse(stage, call.HostNotAllowed,
			"the filled-in URL of %s has another scheme, host or port than the manifest", a.tool.Name)
	}
	name, err := egress.Host(u.Hostname())
	if err != nil {
		name = strings.ToLower(u.Hostname()) // an IP address: the client refuses it unless a switch allows it
	}
	if name != h.Host {
		return nil, call.Refuse(stage, call.HostNotAllowed, "the URL of %s has another host than was reviewed", a.tool.Name)
	}
	if err == nil {
		// One spelling, so that every later check sees the same host.
		u.Host = name
		if port := base.Port(); port != "" {
			u.Host = net.JoinHostPort(name, port)
		}
	}
	return u, nil
}

// path fills a path, segment by segment.
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
		if changesPath(filled) {
			r := call.Refuse(stage, call.InputInvalid, "the value for %s would change the path", diag.Quote(found[0].Name))
			r.Hint = "use a value that is not empty and contains no . or .. path segment"
			return "", r
		}
		segments[i] = filled
	}
	return strings.Join(segments, "/"), nil
}

// changesPath reports whether a segment changes the path, also for a server that decodes it first.
func changesPath(segment string) bool {
	plain, err := url.PathUnescape(segment)
	if err != nil || plain == "" {
		return true
	}
	parts := strings.FieldsFunc(plain, func(r rune) bool { return r == '/' || r == '\\' })
	return slices.Contains(parts, ".") || slices.Contains(parts, "..")
}

// setBody fills the body according to its content type.
func (a arguments) setBody(req *http.Request, h agent.HTTP) error {
	if h.Body == "" || egress.Reads(h.Method) {
		return nil
	}
	text, kind, err := a.body(h.Body, req.Header.Get("Content-Type"))
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
