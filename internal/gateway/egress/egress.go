// Package egress is the way out: it sends the requests of http actions to the
// outside, and only there, and it is the one way out of a sandbox.
//
// # Actions
//
// An action's host is text from a manifest, and what that name means is decided
// by whoever owns it. So the name alone proves nothing: the address that is
// dialled must be a public one. Four choices follow.
//
//   - A name is resolved here, once for each connection. Every address of the
//     answer is judged, and one that is off limits refuses them all: an honest
//     name does not mix the two. The very addresses that were judged are dialled,
//     so that a name that answers differently the next time gains nothing, and
//     the socket is judged once more as it is opened.
//   - Hosts are names. An address in place of a name is refused in all its
//     spellings, also those that only some resolvers understand.
//   - Only https, no proxies from the environment, no redirects, no cookies.
//   - A request that may change something gets a connection of its own, and goes
//     by no other. Where a reused one has died, or a host says over HTTP/2 that it
//     refused a request, net/http would send it again. A method is not enough to
//     tell: a GET may be how a host is made to act.
//     Connections are never shared between clients: each agent has its own.
//
// # The proxy
//
// A program in a sandbox has no network but a [Proxy]. It lets through what the
// manifest names, to addresses that are judged as those of actions are; with full
// access to the network also plain http. Where a program holds placeholders in
// place of credentials, TLS ends here, and the credentials are put in on the way to
// the hosts that they are for.
//
// What is wrong ends in a [call.Refusal], which never holds an address: what a
// name means inside this network is nobody's business outside.
//
// For development there are [Switches], which say in one place where a name
// really dials, which further authority is trusted, and that plain http may be
// spoken with this machine.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Stage is where requests are refused.
const Stage = "act"

const (
	connectTimeout = 10 * time.Second
	idleTimeout    = 60 * time.Second
	maxIdle        = 8
	maxHeaderBytes = 64 << 10
)

// Client sends requests. It is made once for an agent.
type Client struct {
	dialer *Dialer
	// reading keeps connections; those of changing end with their one request.
	reading, changing *http.Transport
}

// New makes a client. The zero Switches are those of production.
func New(s Switches) *Client { return NewClient(NewDialer(s)) }

// NewClient makes a client that connects by a given dialer.
func NewClient(d *Dialer) *Client {
	c := &Client{dialer: d, reading: d.transport(), changing: d.transport()}
	c.changing.DisableKeepAlives = true
	return c
}

func (d *Dialer) transport() *http.Transport {
	return &http.Transport{
		DialContext:            d.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: d.switches.roots},
		TLSHandshakeTimeout:    connectTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    maxIdle,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
	}
}

// Close ends connections that are not in use.
func (c *Client) Close() { c.reading.CloseIdleConnections() }

// Switches are those that the client was made with; no client has none on.
func (c *Client) Switches() Switches {
	if c == nil {
		return Switches{}
	}
	return c.dialer.switches
}

// Reads reports whether a method is one of those by which a host is asked to leave
// everything as it is.
func Reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// Do sends a request that changes only what its method says, as [Client.Send] does.
func (c *Client) Do(req *http.Request) (*http.Response, error) { return c.Send(req, agent.Read) }

// Send sends a request of a tool with that side effect and returns the answer,
// whatever its status. An error is a [*call.Refusal].
func (c *Client) Send(req *http.Request, effect agent.SideEffect) (*http.Response, error) {
	if err := c.dialer.switches.Destination(req); err != nil {
		return nil, call.Unsent(err)
	}
	send := c.change
	if reads(req, effect) {
		send = c.read
	}
	resp, connected, err := send(req)
	switch {
	case err == nil:
		return resp, nil
	case !connected:
		return nil, call.Unsent(failure(req, call.Refuse, "could not be reached", err))
	}
	return nil, Failure(req, effect, err)
}

// read sends a request by whichever connection there is, and again if that is gone.
func (c *Client) read(req *http.Request) (_ *http.Response, connected bool, _ error) {
	var got atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }}
	resp, err := c.reading.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	return resp, got.Load(), err
}

// change sends a request by a new connection, and never again.
func (c *Client) change(req *http.Request) (_ *http.Response, connected bool, _ error) {
	conn, err := c.changing.NewClientConn(req.Context(), req.URL.Scheme, net.JoinHostPort(req.URL.Hostname(), port(req.URL)))
	if err != nil {
		return nil, false, err
	}
	resp, err := conn.RoundTrip(req)
	if err != nil {
		conn.Close()
	}
	return resp, true, err
}

// reads reports whether a request changes nothing: neither its tool does, nor its
// method.
func reads(req *http.Request, effect agent.SideEffect) bool {
	return effect == agent.Read && Reads(req.Method)
}

// Failure says what became of a request of a tool with that side effect that may
// have reached the server and got no whole answer.
func Failure(req *http.Request, effect agent.SideEffect, err error) *call.Refusal {
	refuse := call.Uncertain
	if reads(req, effect) {
		refuse = call.Refuse
	}
	return failure(req, refuse, "ended the connection before it had answered", err)
}

func failure(req *http.Request, refuse func(string, call.Code, string, ...any) *call.Refusal, what string, err error) *call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	host := diag.Quote(req.URL.Hostname())
	switch ctx := req.Context().Err(); {
	case errors.Is(ctx, context.DeadlineExceeded), ctx == nil && isTimeout(err):
		return refuse(Stage, call.TimedOut, "%s did not answer in time", host).Again()
	case ctx != nil:
		return refuse(Stage, call.TimedOut, "the request to %s was cancelled", host)
	}
	if why := badCertificate(err); why != "" {
		r := refuse(Stage, call.ServerUnavailable, "%s cannot prove that it is %s: %s", host, host, why)
		r.Hint = "check the host's certificate"
		return r
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		what = "does not exist"
	}
	r := refuse(Stage, call.ServerUnavailable, "%s %s", host, what).Again()
	r.Hint = "check the host and this machine's connection"
	return r
}

func isTimeout(err error) bool {
	timed, ok := errors.AsType[net.Error](err)
	return ok && timed.Timeout()
}

// badCertificate says what is wrong with a certificate, in words of ours: the
// library's would quote it.
func badCertificate(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for another name"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "nobody who is trusted here has signed its certificate"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "its certificate has expired or is not valid yet"
		}
		return "its certificate is not valid"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate is not valid"
	}
	return ""
}
