// Package daemon is the daemon: every agent of a folder at /mcp/NAME, a JSON API
// beside them, and who may use which.
//
// # Who is let in
//
// What is not open ([Daemon.openTo]) wants a key: an API key, a token of the configured
// OpenID provider, or the passing admin key that a daemon makes for itself when
// it starts and writes to a file that only its own user can read. A key opens
// the agents it is scoped to; an admin key opens all and runs the daemon. Who
// calls is known before anything else looks at a request, and the key itself is
// taken off it there, so that nothing behind can send it on. In front of that
// stands a shield: other host names (DNS rebinding), other origins, requests
// too large or too slow go no further. What goes on for long is looked at again:
// a key that is revoked or expires ends its open streams, and a call that waits
// for a person under it is not made.
//
// # The fleet
//
// Agents come from folders (see [Find]). One that cannot be served is listed as
// rejected with its reasons and the rest go on. What is served is one immutable
// list; a reload reads everything, starts and proves what is new beside what is
// old, changes the list in one step, and lets old agents finish the calls they
// have. Agents whose manifest and lock are the same never notice.
//
// # The end
//
// On shutdown no new request is taken, calls under way have [Options.Grace], then
// streams end, and then everything is closed.
package daemon

import (
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

	"github.com/ambit-run/ambit/internal/serve/http1"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// Tokens are bearer tokens of an OpenID provider.
type Tokens interface {
	Checker
	Issuer() string
}

// Options say how a daemon serves.
type Options struct {
	// Folders are where agents are looked for.
	Folders []string
	// Reading is how their manifests are read.
	Reading manifest.Options
	// CanRun says why an agent that is valid cannot be run here; nil runs all.
	CanRun func(*manifest.Manifest) error
	Start  Starter
	// Strict refuses to start, or to reload, if an agent is rejected.
	Strict bool
	// Production refuses what is only good for trying things out.
	Production bool
	// Idle is how long an agent may be unused before its servers are ended; 0
	// is for ever.
	Idle time.Duration
	// Grace is how long calls under way may take at the end; 0 means 20 s.
	Grace time.Duration

	APIKeys Keys
	// Passing is the daemon's own key; nil if it has none.
	Passing *identity.PassingKey
	// OIDC is nil without a provider.
	OIDC    Tokens
	Journal Journal
	// PolicyProblem says why the rules in force are not those of the user's file;
	// empty if they are. Nil means that there is no policy.
	PolicyProblem func() string
	// Approvals are the calls that wait for a person.
	Approvals Approvals
	// Intents takes what is asked of programs, and Programs is given the daemon so
	// that it can be done.
	Intents  Intents
	Programs *Programs
	// Tidy is asked now and then to delete what is past its time; nil if nobody
	// does.
	Tidy Tidier
	// Tickets seals the addresses of agents' pages; nil shows none.
	Tickets *identity.Keys
	// Neighbours is given the daemon when it is there; nil if no agent calls
	// another.
	Neighbours *Neighbours
	Metrics    *Metrics
	// MetricsOpen lets everybody read the metrics.
	MetricsOpen bool
	// Trace is nil if nobody wants traces.
	Trace *Trace

	// Listen is an address; one that is not loopback needs TLS or BehindProxy.
	Listen      string
	Cert, Key   string
	BehindProxy bool
	// PublicURL is the URL that people know the daemon by, if it is not its
	// address.
	PublicURL string

	Version string
	// Log is told what a person who runs the daemon should know.
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
	settled atomic.Bool // the agents of the start have been proven, or not
	cert    atomic.Pointer[tls.Certificate]
	server  *http.Server
	plain   *http1.Server // the same, for connections without TLS
	streams streams
	console faced
	again   sync.Mutex // held by a reload, so that what was read last is what stays
}

// UsageError says that options contradict each other.
type UsageError struct{ What, Hint string }

func (e *UsageError) Error() string { return e.What }

// New reads the agents. It fails with a *UsageError, a *StrictError, or because
// a folder cannot be read.
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

// fill checks options and fills in what was left out.
func (o *Options) fill() error {
	if o.Grace == 0 {
		o.Grace = 20 * time.Second
	}
	if o.lookAgain == 0 {
		o.lookAgain = lookAgain
	}
	if o.tidyEvery == 0 {
		o.tidyEvery = tidyEvery
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
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
		return &UsageError{"--tls-cert and --tls-key go together", "give both"}
	case !o.loopback && o.Cert == "" && !o.BehindProxy:
		return &UsageError{
			fmt.Sprintf("--listen %s can be reached from elsewhere, and keys would travel in the clear", o.Listen),
			"give --tls-cert and --tls-key, or say --behind-proxy if something in front of it does TLS",
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

// PublicHosts are the names that the daemon is known by elsewhere.
func (o *Options) PublicHosts() []string {
	if u, err := url.Parse(o.PublicURL); err == nil && u.Host != "" {
		return []string{u.Hostname()}
	}
	return nil
}

// readCertificate reads the certificate, at the start and at every reload; there is
// none without TLS.
func (d *Daemon) readCertificate() (*tls.Certificate, error) {
	if d.options.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(d.options.Cert, d.options.Key)
	if err != nil {
		return nil, fmt.Errorf("the TLS certificate cannot be used: %w", err)
	}
	return &pair, nil
}

// Certificate names the TLS certificate; empty without TLS.
func (d *Daemon) Certificate() string {
	if d.options.Cert == "" {
		return ""
	}
	return Fingerprint(d.leaf().Raw)
}

func (d *Daemon) leaf() *x509.Certificate { return d.cert.Load().Leaf }

// Listen takes the address and tells its URL.
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

// Agents tells how each agent is.
func (d *Daemon) Agents() []Card {
	var cards []Card
	for _, e := range d.fleet.current.Load().all {
		cards = append(cards, e.card())
	}
	return cards
}

// Close ends the agents of a daemon that was never served.
func (d *Daemon) Close() { d.fleet.close(context.Background()) }

// Prove starts every agent, a few at a time, and returns when each is proven or
// not. Requests are answered meanwhile.
func (d *Daemon) Prove(ctx context.Context) {
	d.fleet.prove(ctx, d.fleet.current.Load().all)
	d.settled.Store(true)
}

// QueueError says that a reload has changed the agents, but that the queue could
// not be told.
type QueueError struct{ err error }

func (e *QueueError) Error() string {
	return fmt.Sprintf("the agents were read again, but the queue could not be told: %v", e.err)
}

// Unwrap gives the reason.
func (e *QueueError) Unwrap() error { return e.err }

// Reload reads the agents and the certificate again. If that fails, everything
// is as before, but after a *[QueueError].
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
		// A caller that goes away does not leave a reload half done.
		if err := d.options.Intents.Reload(context.WithoutCancel(ctx)); err != nil {
			return c, &QueueError{err}
		}
	}
	return c, nil
}

// Serve answers until ctx ends, then finishes what is under way.
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
	// Both at once: streams end when their agents retire, and the server waits
	// for streams.
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		d.fleet.close(grace)
	}()
	err := server.Shutdown(grace)
	<-closed
	if err != nil {
		return errors.Join(fmt.Errorf("not every call could be finished: %w", err), server.Close())
	}
	return nil
}
