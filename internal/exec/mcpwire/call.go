package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// The connection always sets these members of _meta. It replaces the caller's values.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaToken        = "progressToken"
)

// Call sends a request and returns its result as raw JSON. The params must be a JSON object or nil. In revision
// 2026-07-28, Call adds the required _meta to the params.
func (c *Conn) Call(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	return c.Do(ctx, Request{Method: method, Params: params})
}

// Request is any request other than a tool call.
type Request struct {
	Method string
	Params jsontext.Value // a JSON object, or nil

	// Capabilities overrides the connection's capabilities for this request. It is used only in revision 2026-07-28.
	Capabilities jsontext.Value

	// OnNotification receives the notifications about this request in the same way as in [ToolCall]. The
	// notifications contain the progressToken from the _meta of Params.
	OnNotification func(Notification)
}

// Do sends a request and returns the result exactly as the server sent it.
func (c *Conn) Do(ctx context.Context, r Request) (jsontext.Value, error) {
	s := c.server.Load()
	if s == nil {
		return nil, notSent(ErrNotNegotiated)
	}
	params := trim(r.Params)
	if len(params) > 0 && !isObject(params) {
		return nil, notSent(errors.New("the params are not a JSON object"))
	}
	own, err := c.metaFor(s, r.Capabilities)
	if err != nil {
		return nil, notSent(err)
	}
	m := outgoing{id: c.ids.Add(1), method: r.Method, version: s.Version}
	var box *mailbox
	token := rawjson.Lookup(params, "_meta", metaToken)
	if r.OnNotification != nil {
		box = &mailbox{arrived: make(chan struct{}, 1), token: token}
		token = progressToken(m.id)
	}
	b := appendHead(c.newBody(len(params)+len(r.Method)), m.id, r.Method)
	switch {
	case s.Modern || box != nil:
		b = c.appendWithMeta(b, params, own, token)
	case len(params) > 0:
		b = append(b, params...)
	default:
		b = append(b, "{}"...)
	}
	if s.Modern {
		m.name = nameOf(r.Method, params)
	}
	m.body = append(b, '}')
	return c.exchange(ctx, m, box, r.OnNotification)
}

// metaFor returns the _meta members that the connection adds to a request. Legacy servers get no such members.
func (c *Conn) metaFor(s *Server, capabilities jsontext.Value) ([]byte, error) {
	switch capabilities = trim(capabilities); {
	case !s.Modern:
		return nil, nil
	case len(capabilities) == 0:
		return c.ownMeta, nil
	case !isObject(capabilities):
		return nil, errors.New("the capabilities are not a JSON object")
	}
	return c.appendOwnMeta(nil, capabilities), nil
}

// nameOf returns the value of the Mcp-Name header for a request, or "" if the method does not use this header.
func nameOf(method string, params []byte) string {
	key := "name"
	switch method {
	case "resources/read":
		key = "uri"
	case "prompts/get", methodCallTool:
	default:
		return ""
	}
	name, _ := rawjson.Text(rawjson.Lookup(params, key))
	return name
}

// ToolCall is a request to call a tool. The JSON values are sent unchanged.
type ToolCall struct {
	Name      string
	Arguments jsontext.Value // a JSON object, or nil

	// Meta is the _meta object, or nil. In this object, the connection overwrites the protocol version, the client info
	// and the capabilities.
	Meta jsontext.Value

	// Capabilities overrides the connection's capabilities for this call. It is used only in revision 2026-07-28.
	Capabilities jsontext.Value

	// More is an object with additional params, such as inputResponses and requestState, or nil.
	More jsontext.Value

	// OnNotification receives the progress notifications of this call, in order. Over HTTP, it also receives log messages.
	// It runs in the calling goroutine, and never after CallTool has returned. The notifications contain the progressToken
	// from Meta, although a different token is sent to the server. If OnNotification is nil, the call does not request
	// progress.
	OnNotification func(Notification)
}

func (t *ToolCall) check() error {
	for _, part := range [...]struct {
		name string
		json *jsontext.Value
	}{{"arguments", &t.Arguments}, {"_meta", &t.Meta}, {"additional params", &t.More}} {
		if *part.json = trim(*part.json); len(*part.json) > 0 && !isObject(*part.json) {
			return errors.New("the " + part.name + " must be a JSON object")
		}
	}
	if len(t.More) > 0 {
		w := rawjson.Walk(t.More)
		for k, _, ok := w.Member(); ok; k, _, ok = w.Member() {
			if rawjson.Named(k, "name") || rawjson.Named(k, "arguments") || rawjson.Named(k, "_meta") {
				return errors.New("the additional params must not contain \"name\", \"arguments\" or \"_meta\"")
			}
		}
	}
	return nil
}

// CallTool calls a tool and returns the result exactly as the server sent it. The result can report an error (isError)
// or ask for input (resultType input_required). If ctx is canceled, CallTool informs the server of the cancellation and
// returns immediately.
func (c *Conn) CallTool(ctx context.Context, t ToolCall) (jsontext.Value, error) {
	s := c.server.Load()
	if s == nil {
		return nil, notSent(ErrNotNegotiated)
	}
	if err := t.check(); err != nil {
		return nil, notSent(err)
	}
	own, err := c.metaFor(s, t.Capabilities)
	if err != nil {
		return nil, notSent(err)
	}
	m := outgoing{id: c.ids.Add(1), method: methodCallTool, version: s.Version, name: t.Name}
	if bound := c.headers.Load(); bound != nil && s.Modern {
		for _, p := range (*bound)[t.Name] {
			if h, ok := p.fromArguments(t.Arguments); ok {
				m.headers = append(m.headers, h)
			}
		}
	}
	var box *mailbox
	var token []byte
	if t.OnNotification != nil {
		box = &mailbox{arrived: make(chan struct{}, 1), token: rawjson.Lookup(t.Meta, metaToken)}
		token = progressToken(m.id)
	}

	b := appendHead(c.newBody(len(t.Name)+len(t.Arguments)+len(t.Meta)+len(t.More)), m.id, methodCallTool)
	b = appendString(append(b, `{"name":`...), t.Name)
	if len(t.Arguments) > 0 {
		b = append(append(b, `,"arguments":`...), t.Arguments...)
	}
	if s.Modern || token != nil || len(t.Meta) > 0 {
		b = c.appendMeta(append(b, `,"_meta":`...), t.Meta, own, token)
	}
	if len(t.More) > 0 {
		w := rawjson.Walk(t.More)
		for k, v, ok := w.Member(); ok; k, v, ok = w.Member() {
			b = append(append(append(append(b, ','), k...), ':'), v...)
		}
	}
	m.body = append(b, '}', '}')
	return c.exchange(ctx, m, box, t.OnNotification)
}

// tokenPrefix distinguishes the progress tokens of this package from the caller's tokens.
const tokenPrefix = `"ambit-`

func progressToken(id int64) []byte {
	return append(strconv.AppendInt([]byte(tokenPrefix), id, 10), '"')
}

func tokenID(raw []byte) (int64, bool) {
	if !bytes.HasPrefix(raw, []byte(tokenPrefix)) {
		return 0, false
	}
	return parseID(raw[len(tokenPrefix) : len(raw)-1])
}

// newBody returns an empty buffer for a request. The parameter size counts only the bytes that the caller provides.
func (c *Conn) newBody(size int) []byte {
	size += len(c.ownMeta) + 128
	if c.http == nil {
		if b, ok := bodies.Get().(*[]byte); ok {
			return slices.Grow((*b)[:0], size)
		}
	}
	return make([]byte, 0, size)
}

// bodies contains request buffers that can be reused once the stdio transport has written them. HTTP requests do not
// reuse buffers, because the HTTP transport may still hold them.
var bodies sync.Pool

// appendHead appends the beginning of a request, up to the value of params.
func appendHead(b []byte, id int64, method string) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = appendString(append(b, `,"method":`...), method)
	return append(b, `,"params":`...)
}

func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // AppendQuote replaces invalid UTF-8 with U+FFFD
	return b
}

// appendWithMeta appends the params of a request. It adds the connection's own members and the progress token to _meta.
func (c *Conn) appendWithMeta(b, params, own, token []byte) []byte {
	b = append(b, '{')
	var meta []byte
	if len(params) > 0 {
		w := rawjson.Walk(params)
		for k, v, ok := w.Member(); ok; k, v, ok = w.Member() {
			if rawjson.Named(k, "_meta") {
				meta = v
				continue
			}
			b = append(append(append(append(b, k...), ':'), v...), ',')
		}
	}
	return append(c.appendMeta(append(b, `"_meta":`...), meta, own, token), '}')
}

// appendMeta appends a _meta object. The object contains the caller's members from meta, the connection's members from
// own, and the progress token. appendMeta omits members of meta that only the connection may set. For a legacy server,
// own is nil. If the caller does not request progress, token is nil.
func (c *Conn) appendMeta(b, meta, own, token []byte) []byte {
	b = append(b, '{')
	start := len(b)
	if len(meta) > 0 {
		w := rawjson.Walk(meta)
		for k, v, ok := w.Member(); ok; k, v, ok = w.Member() {
			if rawjson.Named(k, metaToken) || rawjson.Named(k, metaVersion) ||
				rawjson.Named(k, metaClient) || rawjson.Named(k, metaCapabilities) {
				continue
			}
			b = append(append(append(append(b, k...), ':'), v...), ',')
		}
	}
	if own != nil {
		b = append(append(b, own...), ',')
	}
	if token != nil {
		b = append(append(append(b, `"progressToken":`...), token...), ',')
	}
	if len(b) > start {
		b = b[:len(b)-1]
	}
	return append(b, '}')
}

func (c *Conn) appendOwnMeta(b, capabilities []byte) []byte {
	b = append(b, `"`+metaVersion+`":"`+modernVersion+`","`+metaClient+`":`...)
	b = c.appendClientInfo(b)
	b = append(b, `,"`+metaCapabilities+`":`...)
	return append(b, capabilities...)
}

func (c *Conn) appendClientInfo(b []byte) []byte {
	b = appendString(append(b, `{"name":`...), c.opts.Name)
	b = appendString(append(b, `,"version":`...), c.opts.Version)
	return append(b, '}')
}

// trim removes the white space around a JSON value.
func trim(v jsontext.Value) jsontext.Value { return bytes.Trim(v, " \t\r\n") }

// isObject reports whether v is exactly one valid JSON object.
func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' && rawjson.Valid(v) }

// Tool is a tool in the server's list.
type Tool struct {
	Name string
	Raw  jsontext.Value // the whole definition, exactly as the server sent it

	// Invalid is the problem in the tool's x-mcp-header annotations, or nil. A tool with such a problem must not be
	// called. Only the tools of modern servers over HTTP are checked.
	Invalid error
}

// maxPages is the maximum number of pages in a list of tools. [Options.MaxMessage] also limits the total size of the
// list.
const maxPages = 1000

// ListTools returns the server's tools, from all pages of the list.
func (c *Conn) ListTools(ctx context.Context) ([]Tool, error) {
	var tools []Tool
	var cursors []string
	var params jsontext.Value
	size := 0
	for range maxPages {
		result, err := c.Call(ctx, methodListTools, params)
		if err != nil {
			return nil, err
		}
		if size += len(result); size > c.opts.MaxMessage {
			return nil, fmt.Errorf("%s: %w", methodListTools, &TooLargeError{Limit: c.opts.MaxMessage})
		}
		page, cursor, err := readTools(result)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", methodListTools, err)
		}
		tools = append(tools, page...)
		if cursor == nil {
			c.bindHeaders(tools)
			return tools, nil
		}
		if slices.Contains(cursors, string(cursor)) {
			return nil, fmt.Errorf("%s: %w", methodListTools, malformed("the server repeats a page of the list", cursor))
		}
		cursors = append(cursors, string(cursor))
		params = slices.Concat([]byte(`{"cursor":`), cursor, []byte("}"))
	}
	return nil, fmt.Errorf("%s: the list has more than %d pages", methodListTools, maxPages)
}

// readTools reads one page of the list of tools. The second result is the cursor for the next page as a JSON string, or
// nil if there are no more pages.
func readTools(result []byte) (tools []Tool, cursor []byte, err error) {
	if len(result) == 0 || result[0] != '{' {
		return nil, nil, malformed("the result is not an object", result)
	}
	values, twice := pick(result, "tools", "nextCursor", "resultType")
	list, cursor, kind := values[0], values[1], values[2]
	switch {
	case twice:
		return nil, nil, malformed("a member appears twice", result)
	case kind != nil && string(kind) != `"complete"`:
		return nil, nil, malformed("the member \"resultType\" is "+sample(string(kind))+" instead of complete", result)
	case len(list) == 0 || list[0] != '[':
		return nil, nil, malformed("the result has no list of tools", result)
	case string(cursor) == "null" || string(cursor) == `""`:
		cursor = nil
	case cursor != nil && cursor[0] != '"':
		return nil, nil, malformed("the cursor is not a string", result)
	}
	w := rawjson.Walk(list)
	for raw, ok := w.Element(); ok; raw, ok = w.Element() {
		name, err := toolName(raw)
		if err != nil {
			return nil, nil, err
		}
		tools = append(tools, Tool{Name: name, Raw: raw})
	}
	return tools, cursor, nil
}

// toolName returns the name of a tool. It returns an error if the definition has two names, because the name to call
// would be ambiguous.
func toolName(raw []byte) (string, error) {
	if raw[0] != '{' {
		return "", malformed("a tool definition is not an object", raw)
	}
	name, twice := pick(raw, "name")
	if twice {
		return "", malformed("a tool definition has two names", raw)
	}
	s, ok := rawjson.Text(name[0])
	if !ok || s == "" {
		return "", malformed("a tool definition has no name", raw)
	}
	return s, nil
}

// bindHeaders records which arguments of each tool are also sent in headers. Only modern servers over HTTP require
// these headers.
func (c *Conn) bindHeaders(tools []Tool) {
	if s := c.server.Load(); c.http == nil || s == nil || !s.Modern {
		return
	}
	bound := make(map[string][]paramHeader)
	for i := range tools {
		headers, err := paramHeaders(rawjson.Lookup(tools[i].Raw, "inputSchema"))
		if err != nil {
			tools[i].Invalid = err
		} else if len(headers) > 0 {
			bound[tools[i].Name] = headers
		}
	}
	c.headers.Store(&bound)
}
