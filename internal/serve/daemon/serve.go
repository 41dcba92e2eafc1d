// Package daemon serves every agent of a folder over HTTP: each at /mcp/NAME, beside a JSON API and
// the console.
//
// # Authentication
//
// All paths except the open ones ([Daemon.openTo]) require a key: an API key, a token of the
// configured OpenID provider, or the temporary admin key that the daemon creates when it starts and
// writes to a file that only its own user can read. A key gives access to the agents in its scope;
// an admin key gives access to all agents and to the daemon itself. Authentication comes first and
// removes the key from the request, so that no later code can pass it on. Before authentication, a
// shield rejects other host names (DNS rebinding), other origins, and requests that are too large
// or too slow. Long requests are checked again: a key that is revoked or expires ends its open
// streams, and a call that waits for a person under that key is not made.
//
// # The fleet
//
// Agents come from folders (see [Find]). An agent that cannot be served is listed as rejected with
// its reasons; the others are served. The served agents are one immutable list. A reload reads
// everything, starts and proves new agents beside the old ones, replaces the list in one step, and
// lets old agents finish their calls. Agents with the same manifest and lock keep running.
//
// # Shutdown
//
// The daemon stops accepting requests, gives open calls [Options.Grace], ends the streams, and then
// closes everything.
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/serve/http1"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

type Tokens interface {
	Checker
	Issuer() string
}

type Options struct {
	// Folders contain the agents.
	Folders []string
	// Reading are the options for reading manifests.
	Reading manifest.Options
	// CanRun returns why a valid agent cannot run here; nil runs all.
	CanRun func(*manifest.Manifest) error
	Start  Starter
	// Strict refuses to start or to reload if an agent is rejected.
	Strict bool
	// Production refuses settings that are meant for development.
	Production bool
	// Idle is how long an agent may be unused before its servers are stopped; 0 means forever.
	Idle time.Duration
	// Grace is how long open calls may take at shutdown; 0 means 20 s.
	Grace time.Duration

	APIKeys Keys
	// Passing is the daemon's temporary key; nil if it has none.
	Passing *identity.PassingKey
	// OIDC is nil without a provider.
	OIDC    Tokens
	Journal Journal
	// PolicyProblem returns why the user's policy is not in force; empty if it is. Nil means that
	// there is no policy.
	PolicyProblem func() string
	// Approvals are the calls that wait for a person.
	Approvals Approvals
	// Intents queues requests to programs. Programs is given the daemon, so that the queue can run
	// them.
	Intents  Intents
	Programs *Programs
	// Tidy deletes expired rows; nil deletes none.
	Tidy Tidier
	// Tickets seals the addresses of agents' pages; nil serves no pages.
	Tickets *identity.Keys
	// Neighbours is given the daemon; nil if no agent calls another.
	Neighbours *Neighbours
	Metrics    *Metrics
	// MetricsOpen serves the metrics without a key.
	MetricsOpen bool
	// Trace is nil without tracing.
	Trace *Trace

	// Listen is an address. An address that is not loopback requires TLS or BehindProxy.
	Listen      string
	Cert, Key   string
	BehindProxy bool
	// PublicURL is the daemon's public URL, if it differs from its address.
	PublicURL string

	Version string
	// Log receives messages for the operator.
	Log func(format string, args ...any)

	public    *url.URL
	loopback  bool
	lookAgain time.Duration
	tidyEvery time.Duration
}

// Daemon serves agents.
type Daemon struct {
	options Options
	fleet   *fleet
	settled atomic.Bool // the initial proofs are complete
	cert    atomic.Pointer[tls.Certificate]
	server  *http.Server
	plain   *http1.Server // the same, for connections without TLS
	streams streams
	console atomic.Pointer[console.Console]
	again   sync.Mutex // held during a reload, so that the last one read is the one served
}

// UsageError reports contradictory options.
type UsageError struct{ What, Hint string }

func (e *UsageError) Error() string { return e.What }

// New reads the agents. It returns a *UsageError, a *StrictError, or the error of a folder that
// cannot be read.
func New(o Options) (*Daemon, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	d := &Daemon{options: o}
	d.streams.daemon = d
	cert, err := d.readCertificate()
	if err != nil {
		return nil, err
	}
	d.cert.Store(cert)
	if d.fleet, err = newFleet(&d.options); err != nil {
		return nil, err
	}
	o.Metrics.watch(d.fleet)
	if o.Neighbours != nil {
		o.Neighbours.of.Store(d)
	}
	if o.Programs != nil {
		o.Programs.of.Store(d)
	}
	d.server = &http.Server{
		Handler: d.Handler(), ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, IdleTimeout: keepAlive, MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams}, ErrorLog: logTo(o.Log),
	}
	d.plain = http1.New(d.server)
	return d, nil
}

// fill checks the options and sets defaults.
func (o *Options) fill() error {
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.lookAgain = cmp.Or(o.lookAgain, lookAgain)
	o.tidyEvery = cmp.Or(o.tidyEvery, tidyEvery)
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return &UsageError{fmt.Sprintf("--listen %s is not an address", o.Listen), "write HOST:PORT with a port up to 65535, such as 127.0.0.1:7411"}
	}
	addr, err := netip.ParseAddr(host)
	o.loopback = host == "localhost" || err == nil && addr.IsLoopback()
	switch {
	case (o.Cert == "") != (o.Key == ""):
		return &UsageError{"--tls-cert and --tls-key must be set together", "set both"}
	case !o.loopback && o.Cert == "" && !o.BehindProxy:
		return &UsageError{
			fmt.Sprintf("--listen %s is reachable from other machines, and keys would be sent unencrypted", o.Listen),
			"set --tls-cert and --tls-key, or --behind-proxy if a proxy in front of the daemon terminates TLS",
		}
	}
	if o.PublicURL != "" {
		u, err := url.Parse(o.PublicURL)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return &UsageError{fmt.Sprintf("--public-url %s is not a URL", o.PublicURL), "write https://NAME"}
		}
		o.public = u
	}
	return nil
}

// PublicHosts returns the daemon's public host names.
func (o *Options) PublicHosts() []string {
	if u, err := url.Parse(o.PublicURL); err == nil && u.Host != "" {
		return []string{u.Hostname()}
	}
	return nil
}

// readCertificate reads the certificate, at the start and at every reload; nil without TLS.
func (d *Daemon) readCertificate() (*tls.Certificate, error) {
	if d.options.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(d.options.Cert, d.options.Key)
	if err != nil {
		return nil, fmt.Errorf("the TLS certificate is invalid: %w", err)
	}
	return &pair, nil
}

// Certificate is the fingerprint of the TLS certificate; empty without TLS.
func (d *Daemon) Certificate() string {
	if d.options.Cert == "" {
		return ""
	}
	return Fingerprint(d.leaf().Raw)
}

func (d *Daemon) leaf() *x509.Certificate { return d.cert.Load().Leaf }

// Listen opens the address and returns its URL.
func (d *Daemon) Listen() (net.Listener, string, error) {
	l, err := net.Listen("tcp", d.options.Listen)
	if err != nil {
		return nil, "", err
	}
	url := "http://" + l.Addr().String()
	if d.options.Cert != "" {
		url = "https://" + l.Addr().String()
		l = tls.NewListener(l, &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return d.cert.Load(), nil },
		})
	}
	return l, url, nil
}

// Agents returns the state of each agent.
func (d *Daemon) Agents() []Card {
	var cards []Card
	for _, e := range d.fleet.current.Load().all {
		cards = append(cards, e.card())
	}
	return cards
}

// Close ends the agents of a daemon that was never served.
func (d *Daemon) Close() { d.fleet.close(context.Background()) }

// Prove starts every agent, a few at a time, and returns when each is proven or has failed.
// Requests are answered meanwhile.
func (d *Daemon) Prove(ctx context.Context) {
	d.fleet.prove(ctx, d.fleet.current.Load().all)
	d.settled.Store(true)
}

// QueueError reports a reload that changed the agents but could not notify the queue.
type QueueError struct{ err error }

func (e *QueueError) Error() string {
	return fmt.Sprintf("the agents were reloaded, but the queue could not be notified: %v", e.err)
}

func (e *QueueError) Unwrap() error { return e.err }

// Reload reads the agents and the certificate again. If it fails, nothing has changed, except after
// a *[QueueError].
func (d *Daemon) Reload(ctx context.Context) (Change, error) {
	d.again.Lock()
	defer d.again.Unlock()
	c, err := d.readAgain(ctx)
	d.options.Metrics.reloaded(err)
	return c, err
}

func (d *Daemon) readAgain(ctx context.Context) (Change, error) {
	cert, err := d.readCertificate()
	if err != nil {
		return Change{}, err
	}
	c, err := d.fleet.reload(ctx)
	if err != nil {
		return Change{}, err
	}
	d.cert.Store(cert)
	if d.options.Intents != nil {
		// A reload completes even if the caller disconnects.
		if err := d.options.Intents.Reload(context.WithoutCancel(ctx)); err != nil {
			return c, &QueueError{err}
		}
	}
	return c, nil
}

// Serve answers requests until ctx ends, then finishes open calls.
func (d *Daemon) Serve(ctx context.Context, l net.Listener) error {
	var server interface {
		Serve(net.Listener) error
		Shutdown(context.Context) error
		Close() error
	} = d.plain
	if d.options.Cert != "" {
		server = d.server
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	tidying, stop := context.WithCancel(ctx)
	tidied := make(chan struct{})
	go func() {
		defer close(tidied)
		d.tidy(tidying)
	}()
	defer func() {
		stop()
		<-tidied // before the store is closed
	}()
	select {
	case err := <-failed:
		d.fleet.close(context.WithoutCancel(ctx))
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.options.Grace)
	defer cancel()
	// At the same time: streams end when their agents retire, and the server waits for streams.
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		d.fleet.close(grace)
	}()
	err := server.Shutdown(grace)
	<-closed
	if err != nil {
		return errors.Join(fmt.Errorf("some calls did not finish in time: %w", err), server.Close())
	}
	return nil
}
