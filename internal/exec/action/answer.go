package action

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// maxError is the maximum number of bytes shown from the body of an error response.
const maxError = 4 << 10

// answer is the result of an MCP tools/call request.
type answer struct {
	Content    []content      `json:"content"`
	Structured jsontext.Value `json:"structuredContent,omitempty"`
	IsError    bool           `json:"isError,omitempty"`
	Meta       map[string]any `json:"_meta,omitempty"`
}

type content struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text,omitempty"`
	Data     string    `json:"data,omitempty"`
	MIMEType string    `json:"mimeType,omitempty"`
	Resource *resource `json:"resource,omitempty"`
}

type resource struct {
	URI      string `json:"uri"`
	MIMEType string `json:"mimeType"`
	Blob     string `json:"blob"`
}

func textContent(text string) content { return content{Type: "text", Text: &text} }

func (a answer) result() (call.Result, error) {
	raw, err := encode(a)
	if err != nil {
		return call.Result{}, fmt.Errorf("the result cannot be encoded: %w", err)
	}
	return call.Result{Raw: raw, IsError: a.IsError}, nil
}

// encode returns v as JSON without escaping <, > and &.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// httpError returns an error result that contains the HTTP status of the response.
func httpError(resp *http.Response, format string, args ...any) answer {
	return answer{Content: []content{textContent(fmt.Sprintf(format, args...))}, IsError: true, Meta: status(resp)}
}

func status(resp *http.Response) map[string]any {
	return map[string]any{"ambit/http_status": resp.StatusCode}
}

// toResult converts an HTTP response to a tool result.
func (b *binding) toResult(req *http.Request, resp *http.Response, effect agent.SideEffect) (call.Result, error) {
	host := req.URL.Hostname()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return redirectAnswer(host, resp).result()
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, b.MaxResponse+1))
	if err != nil {
		return call.Result{}, egress.Failure(req, effect, err)
	}
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	switch {
	case int64(len(body)) > b.MaxResponse && ok:
		return httpError(resp, "%s answered with more than %s; the answer was discarded", host, size(b.MaxResponse)).result()
	case !ok:
		return errorAnswer(host, resp, body).result()
	case req.Method == http.MethodHead:
		return headAnswer(resp).result()
	case len(body) == 0:
		text := host + " answered " + statusLine(resp) + " with an empty body"
		return answer{Content: []content{textContent(text)}, Meta: status(resp)}.result()
	}
	return successAnswer(req, resp, body).result()
}

func size(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// statusLine returns a status code with its standard text. It does not use the server's own reason phrase, because that
// could be any text.
func statusLine(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// redirectAnswer reports a redirect. It shows the host of the redirect target, but not the full URL.
func redirectAnswer(host string, resp *http.Response) answer {
	to := "an unknown host"
	if u, err := resp.Request.URL.Parse(resp.Header.Get("Location")); err == nil && u.Hostname() != "" {
		to = "host " + diag.Quote(u.Hostname())
	}
	return httpError(resp, "%s answered %s and redirects to %s; redirects are not followed", host, statusLine(resp), to)
}

// errorAnswer reports an error status and the beginning of the response body.
func errorAnswer(host string, resp *http.Response, body []byte) answer {
	text := host + " answered " + statusLine(resp)
	if after := resp.Header.Get("Retry-After"); after != "" && len(after) < 64 {
		text += " (retry after: " + diag.Printable(after) + ")"
	}
	kind, params := mediaType(resp, body)
	if said := strings.TrimSpace(decode(body, params["charset"])); said != "" && isText(kind) {
		if len(said) > maxError {
			said = diag.Cut(said, maxError) + "…"
		}
		text += "\n\n" + said
	}
	return httpError(resp, "%s", text)
}

// headAnswer reports the response to a HEAD request.
func headAnswer(resp *http.Response) answer {
	var b strings.Builder
	b.WriteString(statusLine(resp))
	for _, name := range []string{"Content-Type", "Content-Length", "Last-Modified", "Etag"} {
		if value := resp.Header.Get(name); value != "" {
			b.WriteString("\n" + name + ": " + strings.ToValidUTF8(value, "\uFFFD"))
		}
	}
	return answer{Content: []content{textContent(b.String())}, Meta: status(resp)}
}

// successAnswer converts a successful response to text, an image, audio or a resource, depending on the media type. A
// JSON object is also returned as structured content.
func successAnswer(req *http.Request, resp *http.Response, body []byte) answer {
	a := answer{Meta: status(resp)}
	kind, params := mediaType(resp, body)
	major, _, _ := strings.Cut(kind, "/")
	switch {
	case isText(kind):
		text := decode(body, params["charset"])
		a.Content = []content{textContent(text)}
		object := jsontext.Value(text)
		if agent.KindOfBody(kind, "") == agent.JSONBody && object.Kind() == '{' && object.IsValid() && object.Compact() == nil {
			a.Structured = object
		}
	case major == "image" || major == "audio":
		a.Content = []content{{Type: major, Data: base64.StdEncoding.EncodeToString(body), MIMEType: kind}}
	default:
		where := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: req.URL.Path, RawPath: req.URL.RawPath}
		blob := base64.StdEncoding.EncodeToString(body)
		a.Content = []content{{Type: "resource", Resource: &resource{where.String(), kind, blob}}}
	}
	return a
}

// mediaType returns the media type and the parameters from the Content-Type header. If the header is missing or
// invalid, mediaType inspects the body and returns the type for plain text or for binary data.
func mediaType(resp *http.Response, body []byte) (string, map[string]string) {
	kind, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && strings.Contains(kind, "/") {
		return kind, params
	}
	if utf8.Valid(body) && bytes.IndexByte(body, 0) < 0 {
		return "text/plain", nil
	}
	return "application/octet-stream", nil
}

func isText(kind string) bool {
	switch kind {
	case "application/yaml", "application/x-yaml", "application/javascript",
		"application/x-ndjson", "application/graphql", "application/toml", "application/sql":
		return true
	}
	switch agent.KindOfBody(kind, "") {
	case agent.JSONBody, agent.FormBody, agent.XMLBody:
		return true
	}
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+yaml")
}

// decode converts a text from the given charset to UTF-8. Invalid bytes become U+FFFD.
func decode(body []byte, charset string) string {
	var from encoding.Encoding = unicode.UTF8
	if e, err := htmlindex.Get(charset); err == nil {
		from = e
	}
	text, _, err := transform.Bytes(unicode.BOMOverride(from.NewDecoder()), body)
	if err != nil {
		text = body
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}
