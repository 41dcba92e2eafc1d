package daemon

import (
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/limit"
)

// These constants limit requests and responses, or are values of security headers.
const (
	maxHeader   = 64 << 10
	maxBody     = 32 << 20 // the same limit as for a message over stdio
	headerTime  = 10 * time.Second
	requestTime = time.Minute // the time to read a whole request; the response may take longer
	writeTime   = time.Minute // the time to write one piece of the response
	keepAlive   = 2 * time.Minute
	maxStreams  = 250 // per HTTP/2 connection
	noReferrer  = "no-referrer"
	contentRule = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

// shield checks every request before any other code does. The Host header of a request must name this daemon, which
// prevents DNS rebinding. The shield also rejects requests from pages of other sites. It limits the size of a request,
// and the time that the client can take to read each piece of the response.
type shield struct {
	// The Host header can contain any IP address and, if loopback is true, "localhost". Any other name must equal the
	// host name in public. If public is nil, the certificate must be valid for the name.
	loopback bool
	public   *url.URL
	cert     func() *x509.Certificate // nil without TLS
	cross    *http.CrossOriginProtection
}

// securityHeaders are set on every response. All responses share the slices in this map. Adding a value to a header of
// one response does not change the map: the slices have no spare capacity, so append copies them.
var securityHeaders = map[string][]string{
	"X-Content-Type-Options":       {"nosniff"},
	"X-Frame-Options":              {"DENY"},
	"Referrer-Policy":              {noReferrer},
	"Content-Security-Policy":      {contentRule},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Cache-Control":                {"no-store"},
}

// admit checks a request. It returns the writer for the response, or nil if it has rejected the request.
func (s *shield) admit(w http.ResponseWriter, r *http.Request) *deadlineWriter {
	h := w.Header()
	for name, value := range securityHeaders {
		h[name] = value
	}
	if s.cert != nil || s.public != nil && s.public.Scheme == "https" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if len(r.TransferEncoding) > 0 {
		// If a request has both Content-Length and Transfer-Encoding, net/http ignores the length. A proxy that uses
		// the length could mistake part of the body for another request (request smuggling). The daemon therefore
		// reads no further request from this connection.
		h.Set("Connection", "close")
	}
	switch {
	case !s.knowsHost(r.Host):
		failure("bad_host", "the Host header does not name this daemon",
			"use the address that the daemon printed, or set its public name with: ambit serve --public-url URL").write(w)
		return nil
	case !s.sameOrigin(r) && !fromPages(r) || s.cross.Check(r) != nil:
		failure("bad_origin", "requests from web pages on other sites are not accepted", "").write(w)
		return nil
	}
	bounded := &deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(bounded, r.Body, maxBody)
	}
	return bounded
}

// knowsHost reports whether a Host header names this daemon. IP addresses are always accepted, because in a DNS
// rebinding attack the browser sends the attacker's host name and never an IP address.
func (s *shield) knowsHost(host string) bool {
	name := hostname(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	switch {
	case name == "":
		return false
	case s.loopback && strings.EqualFold(name, "localhost"):
		return true
	case s.public != nil:
		return strings.EqualFold(name, s.public.Hostname())
	case s.cert != nil:
		return s.cert().VerifyHostname(name) == nil
	}
	return false
}

// sameOrigin reports whether a request comes from a page of this daemon. It returns true for a request without an
// Origin header, because such a request does not come from a page of another site.
func (s *shield) sameOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	if len(origins) > 1 || err != nil || u.Host == "" {
		return false // this also rejects the origin "null"
	}
	if s.public != nil && strings.EqualFold(u.Scheme, s.public.Scheme) && strings.EqualFold(u.Host, s.public.Host) {
		return true
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return u.Scheme == scheme && strings.EqualFold(u.Host, r.Host)
}

// hostname removes the port and the brackets from a host. It returns an empty string if the port is invalid.
func hostname(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return ""
		}
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// bodyProblem converts an error from reading a request body to a problem.
func bodyProblem(err error) *problem {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return failure("too_large", "the request body is larger than 32 MiB", "")
	}
	if busy, ok := errors.AsType[*limit.BusyError](err); ok {
		return failure("busy", busy.Error(), limit.RetryHint)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return failure("timeout", "the request did not arrive in time", "")
	}
	return badRequest("the request body cannot be read", "")
}

// deadlineWriter sets a deadline whenever it writes a piece of a response, so that a client that stops reading is
// disconnected. After each piece, it removes the deadline. Otherwise, HTTP/2 would cancel the request when the deadline
// expires, even if nothing is being written. The response as a whole has no time limit.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// start sets the deadline. It ignores errors, because some connections do not support deadlines.
func (w *deadlineWriter) start() { _ = w.control.SetWriteDeadline(time.Now().Add(writeTime)) }

func (w *deadlineWriter) stop() { _ = w.control.SetWriteDeadline(time.Time{}) }

func (w *deadlineWriter) Write(p []byte) (int, error) {
	w.start()
	defer w.stop()
	return w.ResponseWriter.Write(p)
}

// Flush implements [http.Flusher] for handlers that need it.
func (w *deadlineWriter) Flush() {
	w.start()
	defer w.stop()
	_ = w.control.Flush()
}

// Unwrap lets an [http.ResponseController] find the wrapped writer.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
