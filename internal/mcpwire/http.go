package mcpwire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// HTTPOptions say how to reach a server over streamable HTTP.
type HTTPOptions struct {
	// RoundTripper sends the requests. By default the transport has its own
	// connections. It never follows redirects.
	RoundTripper http.RoundTripper

	// Header adds header fields, such as credentials, just before a request is
	// sent. If it returns an error, the request is not sent.
	Header func(ctx context.Context, h http.Header) error
}

// HTTP returns a transport for a streamable HTTP address. The goroutine that
// calls sends the request and reads the response.
func HTTP(address string, o HTTPOptions) (Transport, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the server address is not a URL") // the error may contain a secret
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server address is not an http or https URL: scheme %q, host %q", u.Scheme, u.Host)
	}
	if u.User != nil {
		return nil, errors.New("the server address contains a user name or password: send credentials in header fields")
	}
	u.Fragment = ""
	t := &httpTransport{url: u, opts: o, roundTripper: o.RoundTripper}
	if t.roundTripper == nil {
		if t.pool = newPool(u); t.pool == nil {
			t.own = newTransport()
			t.roundTripper = t.own
		}
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// newTransport serves addresses that the pool does not: TLS and proxies.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    handshakeTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,     // event streams must not wait for a full block
		WriteBufferSize:        readSize, // most requests leave in one write
		MaxResponseHeaderBytes: maxHead,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
	}
}

// roundTrip sends a request and returns the response once its head is there.
func (t *httpTransport) roundTrip(req *http.Request, body []byte) (*http.Response, error) {
	if t.pool != nil {
		return t.pool.do(req, body)
	}
	setBody(req, body)
	if t.own == nil {
		resp, err := t.roundTripper.RoundTrip(req)
		return resp, dialFailed(err)
	}
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	resp, err := t.own.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil && !connected {
		return nil, notSent(err)
	}
	return resp, err
}

// dialFailed marks the errors of a foreign RoundTripper after which the server
// cannot have got the request.
func dialFailed(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return notSent(err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return notSent(err)
	}
	return err
}

type httpTransport struct {
	url          *url.URL
	opts         HTTPOptions
	pool         *pool // or roundTripper
	roundTripper http.RoundTripper
	own          *http.Transport // the roundTripper, unless the caller gave it
	conn         *Conn

	ctx    context.Context // of every request; ends with the connection
	cancel context.CancelFunc
	once   sync.Once

	// session is the header value; nil without a session.
	session atomic.Pointer[[]string]

	// reopened counts how often the stream of notifications was opened again
	// since its last event.
	reopened atomic.Int64
}

var _ Transport = (*httpTransport)(nil)

const (
	maxSession   = 4 << 10  // bytes of a session id
	maxErrorBody = 64 << 10 // bytes of an error's body that are read
	lingerTime   = time.Second
	leaveTime    = time.Second
)

func (t *httpTransport) start(c *Conn) { t.conn = c }

// shut deletes the session and ends every request under way.
func (t *httpTransport) shut() {
	t.once.Do(func() {
		t.cancel()
		if session := t.session.Load(); session != nil {
			ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
			defer cancel()
			m := outgoing{}
			if s := t.conn.server.Load(); s != nil {
				m.version = s.Version
			}
			if req, _, err := t.newRequest(ctx, http.MethodDelete, m); err == nil {
				if resp, err := t.roundTrip(req, nil); err == nil {
					resp.Body.Close()
				}
			}
		}
		switch {
		case t.pool != nil:
			t.pool.close()
		case t.own != nil:
			t.own.CloseIdleConnections()
		}
	})
}

// Constant header values, shared by all requests.
var (
	userAgent  = []string{"ambit"}
	typeJSON   = []string{"application/json"}
	acceptBoth = []string{"application/json, text/event-stream"}
	acceptSSE  = []string{"text/event-stream"}
)

// newRequest returns a request and the session that it is part of.
func (t *httpTransport) newRequest(
	ctx context.Context, method string, m outgoing,
) (req *http.Request, session string, err error) {
	h := make(http.Header, 8)
	if t.opts.Header != nil {
		if err := t.opts.Header(ctx, h); err != nil {
			return nil, "", err
		}
		delete(h, "Connection") // the transport decides
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = userAgent
	}
	req = (&http.Request{
		Method: method, URL: t.url, Host: t.url.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	switch method {
	case http.MethodPost:
		h["Accept"], h["Content-Type"] = acceptBoth, typeJSON
	case http.MethodGet:
		h["Accept"] = acceptSSE
	}
	if m.version != "" {
		h["Mcp-Protocol-Version"] = versionHeader(m.version)
	}
	if m.version == modernVersion {
		if m.method != "" {
			h["Mcp-Method"] = []string{m.method}
		}
		if m.name != "" {
			h["Mcp-Name"] = []string{headerValue(m.name)}
		}
		for _, p := range m.headers {
			h[http.CanonicalHeaderKey(p.name)] = []string{p.value}
		}
	} else if s := t.session.Load(); s != nil && m.method != methodInitialize {
		h["Mcp-Session-Id"] = *s
		session = (*s)[0]
	}
	return req, session, checkHeader(h)
}

func (t *httpTransport) send(ctx context.Context, m outgoing) error {
	if len(m.body) > t.conn.opts.MaxMessage {
		return notSent(&TooLargeError{Limit: t.conn.opts.MaxMessage})
	}
	// The request has its own context: it outlives the call when the rest of its
	// stream is read so that the connection can be used again.
	rctx, cancel := context.WithCancel(t.ctx)
	stop := context.AfterFunc(ctx, cancel)
	lingers, err := t.post(rctx, cancel, m)
	if !stop() && ctx.Err() != nil && err != nil {
		err = ctx.Err()
	} else if err != nil && t.ctx.Err() != nil {
		err = &closedError{}
	}
	if !lingers {
		cancel()
	}
	return err
}

// post sends one message and delivers the messages that come back. If it reports
// lingers, a goroutine still reads the rest of the stream and will call cancel.
func (t *httpTransport) post(ctx context.Context, cancel context.CancelFunc, m outgoing) (lingers bool, err error) {
	req, session, err := t.newRequest(ctx, http.MethodPost, m)
	if err != nil {
		return false, notSent(err)
	}
	resp, err := t.roundTrip(req, m.body)
	if err != nil {
		return false, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return false, t.refusal(resp, session, m)
	}
	if m.method == methodInitialize {
		if err := t.setSession(resp.Header.Get("Mcp-Session-Id")); err != nil {
			resp.Body.Close()
			return false, err
		}
	}
	if m.id == 0 {
		return linger(resp.Body, cancel), nil
	}
	switch mediaType(resp.Header) {
	case "application/json":
		defer resp.Body.Close()
		return false, t.readJSON(resp, m.id)
	case "text/event-stream":
		body, err := t.readAnswer(ctx, resp.Body, m)
		if err != nil {
			return false, err
		}
		return linger(body, cancel), nil
	default:
		resp.Body.Close()
		return false, malformed(fmt.Sprintf("HTTP status %d with content type %s",
			resp.StatusCode, sample(resp.Header.Get("Content-Type"))), nil)
	}
}

// readJSON reads a body with one message or a batch.
func (t *httpTransport) readJSON(resp *http.Response, id int64) error {
	limit := t.conn.opts.MaxMessage
	if resp.ContentLength > int64(limit) {
		return &TooLargeError{Limit: limit}
	}
	pooled := readBuffers.Get().(*[readSize]byte)
	defer readBuffers.Put(pooled)
	buf, n := pooled[:], 0
	for {
		k, err := resp.Body.Read(buf[n:])
		if n += k; n > limit {
			return &TooLargeError{Limit: limit}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if n == len(buf) {
			bigger := make([]byte, min(2*len(buf), max(limit, readSize)+readSize))
			copy(bigger, buf)
			buf = bigger
		}
	}
	_, err := t.conn.deliver(buf[:n], len(buf) > readSize, id)
	return err
}

// refusal returns the error of a response without success.
func (t *httpTransport) refusal(resp *http.Response, session string, m outgoing) error {
	if resp.StatusCode/100 == 3 {
		return &RedirectError{Status: resp.StatusCode, Location: resp.Header.Get("Location")}
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if resp.StatusCode == http.StatusNotFound && session != "" {
		return &sessionLost{session}
	}
	e := &HTTPError{Status: resp.StatusCode}
	if env, badText, problem := open(body); problem == "" && !badText && env.failure != nil {
		if id, ok := number(env.id); env.kind == kindOrphan || ok && id == m.id {
			if rpc, ok := rpcError(env.failure).(*RPCError); ok {
				e.RPC = rpc
				return e
			}
		}
	}
	e.Sample = begin(string(body[:min(len(body), maxSample+1)]))
	return e
}

func (t *httpTransport) setSession(id string) error {
	if id == "" {
		t.session.Store(nil)
		return nil
	}
	if len(id) > maxSession || !printable(id) {
		return malformed("a session id that is not a valid header value", []byte(id))
	}
	t.session.Store(&[]string{id})
	return nil
}

// linger reads the rest of a body in the background, for at most lingerTime, so
// that the connection can be used again. It reports whether there is a rest.
func linger(body io.ReadCloser, cancel context.CancelFunc) bool {
	if body == http.NoBody {
		return false
	}
	go func() {
		defer cancel()
		defer time.AfterFunc(lingerTime, cancel).Stop()
		_, _ = io.Copy(io.Discard, io.LimitReader(body, maxErrorBody))
		body.Close()
	}()
	return true
}
