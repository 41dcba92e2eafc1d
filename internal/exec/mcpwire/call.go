package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// Keys of _meta that belong to the connection; values of callers are replaced.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaToken        = "progressToken"
)

// Call sends a request and returns its result, both as raw JSON. The params are an object or nil. In
// 2026-07-28 the protocol's _meta is added to them.
func (c *Conn) Call(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	return c.Do(ctx, Request{Method: method, Params: params})
}

// Request is any request other than a tool call.
type Request struct {
	Method string
	Params jsontext.Value // an object, or nil

	// Capabilities replace the connection's capabilities for this request, in 2026-07-28 only.
	Capabilities jsontext.Value

	// OnNotification is like that of [ToolCall]. It sees the progressToken of the params' _meta.
	OnNotification func(Notification)
}

// Do sends a request and returns its result as the server wrote it.
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
	body := c.newBody(len(params) + len(r.Method))
	b := appendHead(body.b, m.id, r.Method)
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
	body.b = append(b, '}')
	m.body = body.b
	defer body.release()
	return c.exchange(ctx, m, box, r.OnNotification)
}

// metaFor returns the connection's _meta members for a request; nil before 2026-07-28.
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

// nameOf returns the value of a request's Mcp-Name header.
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

// ToolCall is a call of a tool. Its JSON is sent unchanged.
type ToolCall struct {
	Name      string
	Arguments jsontext.Value // an object, or nil

	// Meta is the _meta object, or nil. Members that belong to the connection (protocol version, client,
	// capabilities) are replaced.
	Meta jsontext.Value

	// Capabilities are like those of [Request].
	Capabilities jsontext.Value

	// More contains further params, such as inputResponses and requestState, as an object, or nil.
	More jsontext.Value

	// OnNotification receives the progress of this call and, over HTTP, its log messages. It runs in the
	// calling goroutine, in order, and never after CallTool has returned. It sees the progressToken of
	// Meta; the server sees another one. Without OnNotification the call requests no progress.
	OnNotification func(Notification)
}

func (t *ToolCall) check() error {
	for _, part := range [...]struct {
		name string
		json *jsontext.Value
	}{{"arguments", &t.Arguments}, {"_meta", &t.Meta}, {"further params", &t.More}} {
		if *part.json = trim(*part.json); len(*part.json) > 0 && !isObject(*part.json) {
			return errors.New("the " + part.name + " are not a JSON object")
		}
	}
	if len(t.More) > 0 {
		w := rawjson.Walk(t.More)
		for k, _, ok := w.Member(); ok; k, _, ok = w.Member() {
			if rawjson.Named(k, "name") || rawjson.Named(k, "arguments") || rawjson.Named(k, "_meta") {
				return errors.New("the further params contain name, arguments or _meta")
			}
		}
	}
	return nil
}

// CallTool calls a tool and returns its result as the server wrote it, also if the result reports an error
// (isError) or requires input (resultType input_required). When ctx ends, CallTool cancels the call at the
// server and returns at once.
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

	body := c.newBody(len(t.Name) + len(t.Arguments) + len(t.Meta) + len(t.More))
	b := appendHead(body.b, m.id, methodCallTool)
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
	body.b = append(b, '}', '}')
	m.body = body.b
	defer body.release()
	return c.exchange(ctx, m, box, t.OnNotification)
}

// tokenPrefix distinguishes our progress tokens from the numbers of others.
const tokenPrefix = `"ambit-`

func progressToken(id int64) []byte {
	return append(strconv.AppendInt([]byte(tokenPrefix), id, 10), '"')
}

func tokenID(raw []byte) (int64, bool) {
	if !bytes.HasPrefix(raw, []byte(tokenPrefix)) {
		return 0, false
	}
	return number(raw[len(tokenPrefix) : len(raw)-1])
}

// messageBody is the buffer of a request. Over HTTP it is not reused, because the pool of connections may
// still read it.
type messageBody struct {
	b      []byte
	pooled *[]byte
}

var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func (c *Conn) newBody(size int) messageBody {
	if c.http != nil {
		return messageBody{b: make([]byte, 0, size+len(c.ownMeta)+128)}
	}
	p := bodies.Get().(*[]byte)
	return messageBody{b: (*p)[:0], pooled: p}
}

func (m *messageBody) release() {
	if m.pooled != nil && cap(m.b) <= readSize {
		*m.pooled = m.b
		bodies.Put(m.pooled)
	}
}

// appendHead begins a request, up to its params.
func appendHead(b []byte, id int64, method string) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = appendString(append(b, `,"method":`...), method)
	return append(b, `,"params":`...)
}

// appendString writes a string as JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			b, _ = jsontext.AppendQuote(b, s) // invalid UTF-8 becomes U+FFFD
			return b
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendWithMeta writes params with the protocol's _meta.
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

// appendMeta writes a _meta object: the caller's members without those of the connection, then the
// connection's. Own is nil before 2026-07-28.
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

// trim removes white space around JSON.
func trim(v jsontext.Value) jsontext.Value { return bytes.Trim(v, " \t\r\n") }

// isObject reports whether the JSON is exactly one object.
func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' && rawjson.Valid(v) }
