// Package egress sends requests to the outside: those of http actions, and those of
// programs in a sandbox.
//
// # Actions
//
// An action's host is a name from a manifest, and the owner of the name decides where it
// leads. So the dialled address must be public:
//
//   - The dialer resolves a name once for each connection and checks every address of the
//     answer. One blocked address refuses the connection: an honest name does not mix
//     both. It dials exactly the addresses that it checked, so that a name that resolves
//     differently the next time gains nothing, and checks the socket again as it opens.
//   - Hosts are names. An address in place of a name is refused in every spelling, also
//     in those that only some resolvers accept.
//   - Only https, no proxies from the environment, no redirects, no cookies.
//   - A request that may change something gets a connection of its own. On a reused
//     connection that has died, or after an HTTP/2 refusal, net/http would send it again.
//     The method alone does not decide, because a GET may have effects too.
//     Clients never share connections: each agent has its own client.
//
// # The proxy
//
// A program in a sandbox has no network except a [Proxy]. The proxy connects to the hosts
// in the manifest, at addresses that are checked like those of actions; with full network
// access also over plain http. If a program has placeholders instead of credentials, the
// proxy terminates TLS and inserts the credentials into requests to their hosts.
//
// Every failure is a [call.Refusal]. It never contains an address, because addresses
// inside this network must not leak.
//
// [Switches] are for development: they set where a name really dials, which further
// authority is trusted, and whether plain http to this machine is allowed.
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

// Stage is the name of the stage in refusals.
const Stage = "act"

const (
	connectTimeout = 10 * time.Second
	idleTimeout    = 60 * time.Second
	maxIdle        = 8
	maxHeaderBytes = 64 << 10
)

// Client sends requests. Each agent has one.
type Client struct {
	dialer *Dialer
	// reading reuses connections; changing closes them after one request.
	reading, changing *http.Transport
}

// New returns a client. The zero Switches are for production.
func New(s Switches) *Client { return NewClient(NewDialer(s)) }

// NewClient returns a client that connects with a dialer.
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

// Close closes idle connections.
func (c *Client) Close() { c.reading.CloseIdleConnections() }

// Switches returns the switches of the client; a nil client has none.
func (c *Client) Switches() Switches {
	if c == nil {
		return Switches{}
	}
	return c.dialer.switches
}

// Reads reports whether a method asks the host to change nothing.
func Reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// Do sends a request like [Client.Send]; the method alone decides whether it changes something.
func (c *Client) Do(req *http.Request) (*http.Response, error) { return c.Send(req, agent.Read) }

// Send sends a request of a tool with this side effect and returns the answer, whatever
// its status. An error is a [*call.Refusal].
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

// read sends a request over any connection, and again if the connection has died.
func (c *Client) read(req *http.Request) (_ *http.Response, connected bool, _ error) {
	var got atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }}
	resp, err := c.reading.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	return resp, got.Load(), err
}

// change sends a request over a new connection, and never again.
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

// reads reports whether neither the tool nor the method of a request changes anything.
func reads(req *http.Request, effect agent.SideEffect) bool {
	return effect == agent.Read && Reads(req.Method)
}

// Failure returns the refusal for a request of a tool with this side effect that may have
// reached the server and got no complete answer.
func Failure(req *http.Request, effect agent.SideEffect, err error) *call.Refusal {
	refuse := call.Uncertain
	if reads(req, effect) {
		refuse = call.Refuse
	}
	return failure(req, refuse, "closed the connection before it answered", err)
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
		r := refuse(Stage, call.ServerUnavailable, "%s could not be authenticated: %s", host, why)
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

// badCertificate describes the problem with a certificate. The library's message would
// quote the certificate.
func badCertificate(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for another name"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "its certificate is not signed by a trusted authority"
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
