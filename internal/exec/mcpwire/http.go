package mcpwire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// HTTPOptions configure the transport over streamable HTTP.
type HTTPOptions struct {
	// RoundTripper sends the requests. Default: an own pool of connections. Redirects are never followed.
	RoundTripper http.RoundTripper

	// Header adds headers, such as credentials, just before a request is sent. An error prevents the
	// request.
	Header func(ctx context.Context, h http.Header) error
}

// HTTP returns a transport for a streamable HTTP address. It has no goroutine: the calling goroutine sends
// the request and reads the answer.
func HTTP(address string, o HTTPOptions) (Transport, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the server's address is not a URL") // without the address, which may contain a secret
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server's address is not an http or https URL: scheme %q, host %q", u.Scheme, u.Host)
	}
	if u.User != nil {
		return nil, errors.New("the server's address contains a user name or password: put credentials into headers")
	}
	u.Fragment = ""
	t := &httpTransport{url: u, opts: o}
	switch p := newPool(u); {
	case o.RoundTripper != nil:
		t.trips.Store(&trips{rt: o.RoundTripper})
	case p != nil:
		t.trips.Store(&trips{pool: p})
	default:
		t.trips.Store(newTransport())
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// newTransport handles proxies and HTTP/2, which the pool does not support.
func newTransport() *trips {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSHandshakeTimeout:    handshakeTime,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,     // event streams must not wait for a full block
		WriteBufferSize:        readSize, // most requests leave in one write
		MaxResponseHeaderBytes: maxHead,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTime,
	}
	return &trips{rt: t, idle: t.CloseIdleConnections}
}

// trips send requests: with the pool, or with a RoundTripper.
type trips struct {
	pool *pool
	rt   http.RoundTripper
	idle func() // closes idle connections of our own RoundTripper
}

// trip sends a request and returns the answer as soon as its head has arrived.
func (t *httpTransport) trip(req *http.Request, body []byte) (*http.Response, error) {
	by := t.trips.Load()
	if by.pool != nil {
		resp, err := by.pool.do(req, body)
		if err != errHTTP2 {
			return resp, err
		}
		// Nothing was sent. The server requires HTTP/2 for all further requests, too.
		by.pool.close()
		next := newTransport()
		if t.trips.CompareAndSwap(by, next) {
			by = next
		} else {
			by = t.trips.Load()
		}
	}
	if body != nil {
		req.ContentLength = int64(len(body))
		// Without GetBody, net/http cannot send the request again when an HTTP/2 server claims to have
		// refused it.
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	return by.rt.RoundTrip(req)
}

type httpTransport struct {
	url   *url.URL
	opts  HTTPOptions
	trips atomic.Pointer[trips]
	conn  *Conn

	ctx    context.Context // of every request; ends with the connection
	cancel context.CancelFunc
	once   sync.Once

	// session is the header value as it is sent; nil without a session.
	session atomic.Pointer[[]string]

	// reopened counts how often the stream of notifications was opened again without an event.
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

// shut ends the session and every request under way.
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
				if resp, err := t.trip(req, nil); err == nil {
					resp.Body.Close()
				}
			}
		}
		switch by := t.trips.Load(); {
		case by.pool != nil:
			by.pool.close()
		case by.idle != nil:
			by.idle()
		}
	})
}

// Constant header values, shared by all requests.
var (
	typeJSON   = []string{"application/json"}
	acceptBoth = []string{"application/json, text/event-stream"}
	acceptSSE  = []string{"text/event-stream"}
)

// newRequest makes a request and returns the session that it belongs to.
func (t *httpTransport) newRequest(
	ctx context.Context, method string, m outgoing,
) (req *http.Request, session string, err error) {
	h := make(http.Header, 8)
	if t.opts.Header != nil {
		if err := t.opts.Header(ctx, h); err != nil {
			return nil, "", err
		}
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
		h["Mcp-Protocol-Version"] = []string{m.version}
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
	return req, session, nil
}

func (t *httpTransport) send(ctx context.Context, m outgoing) error {
	if len(m.body) > t.conn.opts.MaxMessage {
		return notSent(&TooLargeError{Limit: t.conn.opts.MaxMessage})
	}
	// The request has its own context: its stream is read to the end after the call, so that the connection
	// can be reused.
	rctx, cancel := context.WithCancel(t.ctx)
	stop := context.AfterFunc(ctx, cancel)
	lingering, err := t.post(rctx, cancel, m)
	if !stop() && ctx.Err() != nil && err != nil {
		err = ctx.Err()
	} else if err != nil && t.ctx.Err() != nil {
		err = &closedError{}
	}
	if !lingering {
		cancel()
	}
	return err
}

// post sends one message and delivers the answer. With lingering, a goroutine still reads the rest of the
// stream and will call cancel.
func (t *httpTransport) post(ctx context.Context, cancel context.CancelFunc, m outgoing) (lingering bool, err error) {
	req, session, err := t.newRequest(ctx, http.MethodPost, m)
	if err != nil {
		return false, notSent(err)
	}
	resp, err := t.trip(req, m.body)
	if err != nil {
		return false, sendingFailed(err)
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
		kind := sample(resp.Header.Get("Content-Type"))
		return false, malformed(fmt.Sprintf("HTTP status %d with content type %s", resp.StatusCode, kind), nil)
	}
}

// readJSON reads a body that is one message, or a batch.
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

// refusal converts an answer with an error status to an error.
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
			if e.RPC = ReadError(env.failure); e.RPC != nil {
				return e
			}
		}
	}
	e.Sample = beginning(string(body[:min(len(body), maxSample+1)]))
	return e
}

func (t *httpTransport) setSession(id string) error {
	if id == "" {
		t.session.Store(nil)
		return nil
	}
	if len(id) > maxSession || !printable(id) {
		return malformed("a session id that cannot be sent back", []byte(id))
	}
	t.session.Store(&[]string{id})
	return nil
}

// linger reads the rest of a body in the background, for a bounded time, so that the connection can be
// reused. It reports whether there is a rest.
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

// sendingFailed marks the errors that prove that the server received nothing.
func sendingFailed(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return notSent(err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return notSent(err)
	}
	return err
}
