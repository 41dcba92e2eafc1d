// Package egress sends requests to other hosts, for http actions and for programs in a sandbox.
//
// # Actions
//
// The host of an action is a name from a manifest. The owner of the name decides to which address the
// name resolves. Therefore, the client dials only public addresses:
//
//   - The dialer resolves a name once for each connection and checks every address in the answer. If
//     one address is blocked, the connection is refused, because an honest name does not mix public
//     and blocked addresses. The dialer connects only to addresses that it has checked. A different
//     answer to a later lookup therefore has no effect. The address is checked again when the
//     socket is opened.
//   - A host must be a name. An IP address is refused in every spelling, including spellings that
//     only some resolvers accept.
//   - The client uses only https. It follows no redirects, keeps no cookies, and uses no proxies
//     from the environment.
//   - A request that may change something gets a new connection. On a reused connection, net/http might send the
//     request twice. A GET may have effects too. It may reuse a connection only if the tool's side effect is read.
//   - Clients never share connections. Each agent has its own client.
//
// # Programs
//
// A program in a sandbox can reach other hosts only through a [Network]. The network connects only to the
// hosts that its [Policy] allows. It checks their addresses as for actions, except for the private hosts in
// the policy. A program may have placeholders instead of credentials. In that case, a proxy in the network
// terminates TLS and inserts each credential into requests to the credential's hosts.
//
// Every failure is a [call.Refusal]. A refusal never contains an IP address, because addresses of the local
// network must not leak.
//
// [Switches] are for development. They dial another address for a name, trust an additional certificate
// authority, and allow plain http to this machine.
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

// Stage is the stage name in every refusal from this package.
const Stage = "act"

const (
	connectTimeout = 10 * time.Second
	idleTimeout    = 60 * time.Second
	maxIdle        = 8
	maxHeaderBytes = 64 << 10
)

// Client sends requests. Each agent has its own client.
type Client struct {
	dialer *Dialer
	// The first transport reuses connections. The second transport uses each connection for a single request.
	reused, single *http.Transport
}

// New returns a client with the given development switches. In production, all switches are off.
func New(s Switches) *Client { return NewClient(NewDialer(s)) }

// NewClient returns a client that uses the given dialer.
func NewClient(d *Dialer) *Client {
	c := &Client{dialer: d, reused: d.transport(), single: d.transport()}
	c.single.DisableKeepAlives = true
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
func (c *Client) Close() { c.reused.CloseIdleConnections() }

// Switches returns the development switches of the client. For a nil client, all switches are off.
func (c *Client) Switches() Switches {
	if c == nil {
		return Switches{}
	}
	return c.dialer.switches
}

// Reads reports whether the HTTP method is GET or HEAD. By definition, these methods change nothing.
func Reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// Do sends a request on behalf of a tool that only reads. Therefore, only the HTTP method determines whether the
// request can change something.
func (c *Client) Do(req *http.Request) (*http.Response, error) { return c.Send(req, agent.Read) }

// Send sends a request on behalf of a tool with the given side effect. It returns every HTTP response, whatever its
// status. The error is a [*call.Refusal].
func (c *Client) Send(req *http.Request, effect agent.SideEffect) (*http.Response, error) {
	if err := c.dialer.switches.Destination(req); err != nil {
		return nil, call.Unsent(err)
	}
	send := c.change
	if onlyReads(req, effect) {
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

// read sends a request over a new or reused connection. If a reused connection has died, net/http sends the request
// again.
func (c *Client) read(req *http.Request) (_ *http.Response, connected bool, _ error) {
	var got atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }}
	resp, err := c.reused.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	return resp, got.Load(), err
}

// change sends a request over a new connection. The request is never sent twice.
func (c *Client) change(req *http.Request) (_ *http.Response, connected bool, _ error) {
	conn, err := c.single.NewClientConn(req.Context(), req.URL.Scheme,
		net.JoinHostPort(req.URL.Hostname(), port(req.URL)))
	if err != nil {
		return nil, false, err
	}
	resp, err := conn.RoundTrip(req)
	if err != nil {
		conn.Close()
	}
	return resp, true, err
}

// onlyReads reports whether a request cannot change anything. The tool's side effect must be Read, and the HTTP method
// must be GET or HEAD.
func onlyReads(req *http.Request, effect agent.SideEffect) bool {
	return effect == agent.Read && Reads(req.Method)
}

// Failure returns the refusal for a request that may have reached the server but got no complete answer. Unless the
// request only reads, the refusal states that the effect is unknown.
func Failure(req *http.Request, effect agent.SideEffect, err error) *call.Refusal {
	refuse := call.Uncertain
	if onlyReads(req, effect) {
		refuse = call.Refuse
	}
	return failure(req, refuse, "closed the connection before it answered", err)
}

func failure(
	req *http.Request, refuse func(string, call.Code, string, ...any) *call.Refusal, what string, err error,
) *call.Refusal {
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
	r.Hint = "check the host name and this machine's network connection"
	return r
}

func isTimeout(err error) bool {
	timed, ok := errors.AsType[net.Error](err)
	return ok && timed.Timeout()
}

// badCertificate describes the problem with a certificate. It returns "" if the error has a different cause. It does
// not use the error message of the TLS library, because that message quotes the certificate.
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
