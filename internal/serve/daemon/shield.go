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
)

// Limits of a request.
const (
	maxHeader   = 64 << 10
	maxBody     = 32 << 20 // as large as a message on stdio
	headerTime  = 10 * time.Second
	requestTime = time.Minute // for all of it to arrive; answers may take longer
	writeTime   = time.Minute // for each piece of an answer
	keepAlive   = 2 * time.Minute
	maxStreams  = 250 // of one HTTP/2 connection
	noReferrer  = "no-referrer"
	contentRule = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

// shield checks every request first. It admits only requests that name this
// daemon as their host, which stops DNS rebinding, and refuses requests made by
// pages of other sites. It bounds the size of a request and the time that a
// client may take to read each piece of an answer.
type shield struct {
	// The daemon answers to addresses, to localhost on loopback, and to its public
	// name or the names on its certificate.
	loopback bool
	public   *url.URL
	cert     func() *x509.Certificate // nil without TLS
	cross    *http.CrossOriginProtection
}

// securityHeaders are set on every response. Their values are shared and have no spare capacity:
// appending to one copies it.
var securityHeaders = map[string][]string{
	"X-Content-Type-Options":       {"nosniff"},
	"X-Frame-Options":              {"DENY"},
	"Referrer-Policy":              {noReferrer},
	"Content-Security-Policy":      {contentRule},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Cache-Control":                {"no-store"},
}

// admit returns the writer for the answer to a request, or refuses the request
// and returns nil.
func (s *shield) admit(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	h := w.Header()
	for name, value := range securityHeaders {
		h[name] = value
	}
	if s.cert != nil || s.public != nil && s.public.Scheme == "https" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if len(r.TransferEncoding) > 0 {
		// net/http accepts a Content-Length beside Transfer-Encoding and drops
		// it. A proxy that went by the length would see another request in the
		// bytes that follow (request smuggling), so none follow.
		h.Set("Connection", "close")
	}
	switch {
	case !s.knowsHost(r.Host):
		(&problem{
			status: http.StatusMisdirectedRequest, Code: "bad_host", Message: "this daemon is not known by this host name",
			Hint: "use the address that it printed, or set the name: ambit serve --public-url URL",
		}).write(w)
		return nil
	case !s.sameOrigin(r) && !fromPages(r) || s.cross.Check(r) != nil:
		(&problem{status: http.StatusForbidden, Code: "bad_origin", Message: "requests from pages of other sites are not accepted"}).write(w)
		return nil
	}
	bounded := &deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(bounded, r.Body, maxBody)
	}
	return bounded
}

// knowsHost reports whether a Host header means this daemon. Addresses always
// do: a page cannot make a browser send one for a name.
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

// sameOrigin reports whether a request comes from no page, or from a page of
// this daemon.
func (s *shield) sameOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	if len(origins) > 1 || err != nil || u.Host == "" {
		return false // "null" among them
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

// hostname is a host without its port and brackets.
func hostname(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return "" // not a valid host
		}
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// bodyProblem explains why a body cannot be read.
func bodyProblem(err error) *problem {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &problem{
			status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: "the request body is larger than 32 MiB",
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &problem{status: http.StatusRequestTimeout, Code: "timeout", Message: "the request did not arrive in time"}
	}
	return badRequest("the request body cannot be read", "")
}

// deadlineWriter gives a slow client a deadline for each piece of a response, however long the
// response is.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// WriteHeader sets the deadline too: a response may have no body.
func (w *deadlineWriter) WriteHeader(status int) {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTime))
	w.ResponseWriter.WriteHeader(status)
}

func (w *deadlineWriter) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTime)) // not every connection has one
	return w.ResponseWriter.Write(p)
}

// Flush is for handlers that look for an [http.Flusher].
func (w *deadlineWriter) Flush() {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTime))
	_ = w.control.Flush()
}

// Unwrap is for [http.ResponseController].
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
