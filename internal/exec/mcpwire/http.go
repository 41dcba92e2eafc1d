package mcpwire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// HTTPOptions configures the transport over streamable HTTP.
type HTTPOptions struct {
	// RoundTripper sends the requests. If RoundTripper is nil, the transport uses its own connections. Redirects are
	// never followed.
	RoundTripper http.RoundTripper

	// Header adds headers, such as credentials, to a request just before the request is sent. If Header returns an error,
	// the request is not sent.
	Header func(ctx context.Context, h http.Header) error

	// Prove adds a header that depends on the method and the URL of a request, such as a DPoP proof. It is called
	// after Header. If Prove returns an error, the request is not sent. Prove may be nil.
	Prove func(req *http.Request) error

	// Refused is called if the server answers with status 401 or 403, which means that the server has not executed
	// the request. If the first result is true, the request is sent again, with new headers. If Refused returns an
	// error, the request fails with this error. The parameter try is the number of earlier refusals of the request.
	// After [maxRefused] refusals, Refused is not called. The callback must not close the body. Refused may be nil.
	Refused func(ctx context.Context, req *http.Request, resp *http.Response, try int) (again bool, err error)
}

// HTTP returns a transport for the URL of a streamable HTTP server. The transport starts no goroutine of its own: the
// calling goroutine sends the request and reads the answer.
func HTTP(address string, o HTTPOptions) (Transport, error) {
	u, err := url.Parse(address)
	if err != nil {
		// The address may contain a secret, so do not quote it.
		return nil, errors.New("the server's address is not a URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server's address is not an http or https URL: scheme %q, host %q", u.Scheme, u.Host)
	}
	if u.User != nil {
		return nil, errors.New("the server's address contains a user name or password; send credentials in headers")
	}
	u.Fragment = ""
	t := &httpTransport{url: u, opts: o, roundTripper: o.RoundTripper}
	if t.roundTripper == nil {
		if t.pool = newPool(u); t.pool == nil {
			t.roundTripper = newTransport()
		}
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// newTransport returns a transport for the requests that the pool does not support, such as requests over TLS or
// through a proxy.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSHandshakeTimeout:    handshakeTime,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,     // a server could delay a compressed event stream until a block is full
		WriteBufferSize:        readSize, // most requests are sent in one write
		MaxResponseHeaderBytes: maxHead,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTime,
	}
}

// roundTrip sends a request and returns the response as soon as the response headers have arrived.
func (t *httpTransport) roundTrip(req *http.Request, body []byte) (*http.Response, error) {
	if t.pool != nil {
		return t.pool.do(req, body)
	}
	if body != nil {
		req.ContentLength = int64(len(body))
		// Do not set GetBody. With it, net/http would send the request again if an HTTP/2 server claims to have refused it.
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	return t.roundTripper.RoundTrip(req)
}

type httpTransport struct {
	url  *url.URL
	opts HTTPOptions
	conn *Conn
	pool *pool // nil if roundTripper sends the requests

	roundTripper http.RoundTripper

	ctx    context.Context // the parent of every request's context; canceled when the connection is closed
	cancel context.CancelFunc
	once   sync.Once

	// session is the value of the Mcp-Session-Id header, or nil if there is no session.
	session atomic.Pointer[[]string]

	// reopened counts how often the notification stream was reopened since its last event.
	reopened atomic.Int64
}

var _ Transport = (*httpTransport)(nil)

const (
	maxSession   = 4 << 10     // the maximum length of a session id
	maxErrorBody = 64 << 10    // the maximum number of bytes to read from an error response or from the rest of a stream
	lingerTime   = time.Second // the time limit for reading the rest of a stream
	leaveTime    = time.Second // the time limit for closing the session
)

func (t *httpTransport) start(c *Conn) { t.conn = c }

// close cancels every request and closes the session.
func (t *httpTransport) close() {
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
		if t.pool != nil {
			t.pool.close()
		} else if own, ok := t.roundTripper.(*http.Transport); ok && t.opts.RoundTripper == nil {
			own.CloseIdleConnections()
		}
	})
}

// Header values that all requests share.
var (
	typeJSON   = []string{"application/json"}
	acceptBoth = []string{"application/json, text/event-stream"}
	acceptSSE  = []string{"text/event-stream"}
)

// newRequest creates an HTTP request. The second result is the session id that the request contains, or "".
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
	if t.opts.Prove != nil {
		if err := t.opts.Prove(req); err != nil {
			return nil, "", err
		}
	}
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

// maxRefused is the maximum number of times that a request is sent again after the server has refused its
// authorization.
const maxRefused = 4

// authorized sends a request and returns the response. If the server refuses the authorization, authorized asks
// [HTTPOptions.Refused] whether to send the request again. The parameter add, which may be nil, adds headers. The
// second result is the session id that the request contained.
func (t *httpTransport) authorized(
	ctx context.Context, method string, m outgoing, add func(http.Header),
) (resp *http.Response, session string, err error) {
	for try := 0; ; try++ {
		req, session, err := t.newRequest(ctx, method, m)
		if err != nil {
			return nil, "", notSent(err)
		}
		if add != nil {
			add(req.Header)
		}
		resp, err := t.roundTrip(req, m.body)
		if err != nil {
			return nil, "", sendingFailed(err)
		}
		refused := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
		if !refused || t.opts.Refused == nil || try == maxRefused {
			return resp, session, nil
		}
		again, err := t.opts.Refused(ctx, req, resp, try)
		switch {
		case err != nil:
			resp.Body.Close()
			return nil, "", notSent(err)
		case !again:
			return resp, session, nil
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBody)) // so that the connection can be reused
		resp.Body.Close()
	}
}

func (t *httpTransport) send(ctx context.Context, m outgoing) error {
	if len(m.body) > t.conn.opts.MaxMessage {
		return notSent(&TooLargeError{Limit: t.conn.opts.MaxMessage})
	}
	// Do not use ctx for the request. After the call has returned, linger may still read the rest of the stream so that
	// the HTTP connection can be reused.
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

// post sends one message and delivers the answer. If lingering is true, another goroutine is still reading the rest of
// the stream and will call cancel. If lingering is false, the caller must call cancel.
func (t *httpTransport) post(ctx context.Context, cancel context.CancelFunc, m outgoing) (lingering bool, err error) {
	resp, session, err := t.authorized(ctx, http.MethodPost, m, nil)
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
		kind := sample(resp.Header.Get("Content-Type"))
		return false, malformed(fmt.Sprintf("HTTP status %d with unknown content type %s", resp.StatusCode, kind), nil)
	}
}

// answers is a pool of buffers for response bodies.
var answers = sync.Pool{New: func() any { return new(make([]byte, 0, readSize)) }}

// readJSON reads and delivers a body that contains one message or a batch.
func (t *httpTransport) readJSON(resp *http.Response, id int64) error {
	limit := t.conn.opts.MaxMessage
	if resp.ContentLength > int64(limit) {
		return &TooLargeError{Limit: limit}
	}
	b := answers.Get().(*[]byte)
	defer answers.Put(b)
	body, err := readBody((*b)[:0], resp.Body, int(resp.ContentLength), limit)
	if err != nil {
		return err
	}
	// A larger body is not in the pool's buffer, so the answer can keep it.
	_, err = t.conn.deliver(body, cap(body) > readSize, id)
	return err
}

// maxAnnounced is how much of a body must have arrived before its announced length counts.
const maxAnnounced = 1 << 20

// readBody appends a body to b. The length is the announced length of the body, or -1 if it is unknown.
func readBody(b []byte, body io.Reader, length, limit int) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			size := 0
			if len(b) >= maxAnnounced || length < maxAnnounced {
				size = length
			}
			b = grown(b, size, limit)
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return nil, &TooLargeError{Limit: limit}
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// refusal converts a response with a non-2xx status to an error.
func (t *httpTransport) refusal(resp *http.Response, session string, m outgoing) error {
	if resp.StatusCode/100 == 3 {
		return &RedirectError{Status: resp.StatusCode, Location: resp.Header.Get("Location")}
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if resp.StatusCode == http.StatusNotFound && session != "" {
		return &sessionLost{session}
	}
	e := &HTTPError{Status: resp.StatusCode}
	if env, badText, problem := readEnvelope(body); problem == "" && !badText && env.failure != nil {
		if id, ok := parseID(env.id); env.kind == kindOrphan || ok && id == m.id {
			if e.RPC = ReadError(env.failure); e.RPC != nil {
				return e
			}
		}
	}
	e.Sample = cutSample(string(body[:min(len(body), maxSample+1)]))
	return e
}

func (t *httpTransport) setSession(id string) error {
	if id == "" {
		t.session.Store(nil)
		return nil
	}
	if len(id) > maxSession || !isPrintable(id) {
		return malformed("the session id is too long or not printable", []byte(id))
	}
	t.session.Store(&[]string{id})
	return nil
}

// linger reads the rest of a body in the background, for at most lingerTime, so that the HTTP connection can be reused.
// If the body is empty, linger returns false, and the caller must call cancel itself.
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

// sendingFailed wraps an error with [ErrNotSent] if the error proves that the server received nothing.
func sendingFailed(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return notSent(err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return notSent(err)
	}
	return err
}

const (
	firstPause = 500 * time.Millisecond // the pause before the first attempt to reopen a lost stream
	maxPause   = 30 * time.Second       // the longest pause between two attempts
	maxResumes = 5                      // the maximum number of consecutive attempts without a new event
)

// readAnswer reads the stream of a request up to the answer, and returns the rest of the stream. If a legacy server
// closes the stream before the answer, and the stream's events have ids, readAnswer resumes the stream.
func (t *httpTransport) readAnswer(ctx context.Context, body io.ReadCloser, m outgoing) (io.ReadCloser, error) {
	for idle, last := 0, ""; ; {
		answered, at, err := t.readEvents(body, m.id)
		if answered {
			return body, nil
		}
		body.Close()
		if !isBroken(err) {
			return nil, err
		}
		if at.lastID == last {
			idle++
		} else {
			idle, last = 0, at.lastID
		}
		if last == "" || idle >= maxResumes || m.version == modernVersion || ctx.Err() != nil {
			return nil, noAnswer(err)
		}
		if err := pause(ctx, at.retry, idle); err != nil {
			return nil, err
		}
		resp, err := t.get(ctx, m.version, last)
		if err != nil {
			return nil, noAnswer(err)
		}
		body = resp.Body
	}
}

// noAnswer returns an [ErrNoAnswer] for a call that was sent. The error does not wrap the reason, because an
// [ErrNotSent] in the reason refers to the attempt to resume the stream, not to the call.
func noAnswer(reason error) error {
	if reason == io.EOF {
		return ErrNoAnswer
	}
	return fmt.Errorf("%w: %v", ErrNoAnswer, reason)
}

// streamEnd describes how a stream ended.
type streamEnd struct {
	lastID string        // the id of the last event
	retry  time.Duration // how long the server asks clients to wait before they resume
	events int           // the number of events that were read
}

// readEvents delivers the messages of a stream until the call is answered or the stream ends.
func (t *httpTransport) readEvents(body io.Reader, stream int64) (answered bool, at streamEnd, err error) {
	events := newEventReader(body, t.conn.opts.MaxMessage)
	defer events.release()
	for {
		name, data, err := events.nextEvent()
		if err != nil {
			at.lastID, at.retry = events.lastID, events.retry
			return false, at, err
		}
		at.events++
		if name != "" && name != "message" {
			continue
		}
		answered, err := t.conn.deliver(data, true, stream)
		if err != nil && stream == sideStream {
			t.conn.reportNoise(data)
			continue
		}
		if answered || err != nil {
			return answered, at, err
		}
	}
}

// isBroken reports whether an error means that a stream ended early. It returns false if the stream had invalid or
// oversized content.
func isBroken(err error) bool {
	_, large := errors.AsType[*TooLargeError](err)
	_, bad := errors.AsType[*MalformedError](err)
	return !large && !bad
}

// get opens a legacy server's stream for messages that belong to no call. If lastEventID is not empty, get instead
// resumes the stream that contained this event.
func (t *httpTransport) get(ctx context.Context, version, lastEventID string) (*http.Response, error) {
	resp, session, err := t.authorized(ctx, http.MethodGet, outgoing{version: version}, func(h http.Header) {
		if lastEventID != "" {
			h["Last-Event-Id"] = []string{lastEventID}
		}
	})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, t.refusal(resp, session, outgoing{})
	}
	if mediaType(resp.Header) != "text/event-stream" {
		resp.Body.Close()
		return nil, errNoStream
	}
	return resp, nil
}

var errNoStream = errors.New("the server offers no event stream")

// listen opens a legacy server's notification stream and reopens it each time it ends. It calls onOpen each time the
// stream opens. It returns when the server refuses the stream or ctx is canceled. If the stream was open before and the
// server no longer knows the session, listen creates a new session. The new session stops this listener and starts its
// own.
func (t *httpTransport) listen(ctx context.Context, version string, onOpen func()) {
	after, retry, wasOpen := "", time.Duration(0), false
	for first := true; ctx.Err() == nil; first = false {
		if !first && pause(ctx, retry, int(t.reopened.Add(1))-1) != nil {
			return
		}
		resp, err := t.get(ctx, version, after)
		if lost, ok := err.(*sessionLost); ok && wasOpen {
			t.renew(ctx, lost.session)
			continue
		}
		if isRefusal(err) {
			return
		}
		if err != nil {
			continue
		}
		onOpen()
		wasOpen = true
		_, at, _ := t.readEvents(resp.Body, sideStream)
		resp.Body.Close()
		after, retry = at.lastID, at.retry
		if at.events > 0 {
			t.reopened.Store(0)
		}
	}
}

// renew creates a new session for the listener. Errors are ignored, because listen calls renew again if its next
// attempt finds no new session.
func (t *httpTransport) renew(ctx context.Context, lost string) {
	ctx, cancel := context.WithTimeout(ctx, maxPause)
	defer cancel()
	_ = t.conn.renew(ctx, lost)
}

// isRefusal reports whether an error means that the server would refuse another attempt too.
func isRefusal(err error) bool {
	status, isStatus := errors.AsType[*HTTPError](err)
	_, redirect := errors.AsType[*RedirectError](err)
	_, rpc := errors.AsType[*RPCError](err)
	return isStatus && status.Status < 500 && status.Status != http.StatusTooManyRequests ||
		redirect || rpc || errors.Is(err, ErrSessionLost) || err == errNoStream
}

// pause waits before a stream is reopened. The pause grows with the number of tries. It is at least as long as the
// server requested, but never longer than maxPause.
func pause(ctx context.Context, requested time.Duration, tries int) error {
	d := min(firstPause<<min(tries, 10), maxPause)
	d = max(d/2+rand.N(d/2), min(requested, maxPause))
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// speaksOnlySSE reports whether the server's URL supports only the HTTP+SSE transport. The first event in an HTTP+SSE
// stream is named "endpoint". The last argument is the HTTP status with which the server refused a POST request.
func (t *httpTransport) speaksOnlySSE(ctx context.Context, status int) bool {
	ctx, cancel := context.WithTimeout(ctx, t.conn.opts.ProbeTimeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	resp, err := t.get(ctx, "", "")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	events := newEventReader(resp.Body, maxErrorBody)
	defer events.release()
	name, _, err := events.nextEvent()
	if err != nil {
		return status == http.StatusMethodNotAllowed // the URL offers only a stream
	}
	return name == "endpoint"
}
