// Package daemon serves the agents of one or more folders over HTTP. Each agent is at /mcp/NAME. The daemon also
// serves a JSON API below /api/v1 and a web console.
//
// # Authentication
//
// Almost all paths require a key. [Daemon.isPublic] lists the exceptions. The key is an API key, a token of the
// configured OpenID provider, or the daemon's temporary admin key. The daemon creates the temporary key when it
// starts, and writes it to a file that only the daemon's user can read. A key gives access to the agents in its
// scope. An admin key gives access to all agents and to the daemon itself.
//
// The shield checks a request before authentication. It refuses requests for other host names (DNS rebinding),
// requests from other origins, and requests that are too large or too slow. Authentication then removes the key from
// the request, so that no later code can forward the key. The key is checked again during a long request. When a key
// is revoked or expires, its streams are closed and its waiting calls are refused.
//
// # The fleet
//
// The agents come from folders (see [Find]). An agent that cannot be served is listed as rejected, with the reason.
// The other agents are served. To verify an agent, the daemon starts the agent's tool servers and compares their
// tools with the manifest and the lock file. The daemon keeps all agents in one immutable list. A reload reads the
// folders again. It verifies new agents while the old agents still run, and then replaces the list in one step. The
// old agents finish their calls. Agents with an unchanged manifest and lock file keep running.
//
// # Joining
//
// "ambit run" can let a running daemon of the same home serve its client. The comment at the top of join.go describes
// the protocol.
//
// # Shutdown
//
// The daemon stops accepting requests. It waits up to [Options.Grace] for running calls to finish. Then it closes the
// streams and everything else.
package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// Tokens checks the tokens of OpenID providers.
type Tokens interface {
	Checker
	// Issuers returns the issuers of the providers.
	Issuers() []string
}

// Options configures a daemon.
type Options struct {
	// Folders are the paths of the agents folders.
	Folders []string
	// Reading contains the options for reading manifests.
	Reading manifest.Options
	// CanRun returns an error if a valid agent cannot run on this daemon. A nil CanRun means that every valid agent
	// can run.
	CanRun func(*manifest.Manifest) error
	// Allowed returns digests of the rights that a person allowed for the servers of agents, by the name of the agent. A
	// reload restarts an agent whose digest has changed. A nil Allowed means that nothing is allowed.
	Allowed func() (map[string]string, error)
	Start   Starter
	// If Strict is set, New and Reload return a *StrictError when an agent is rejected.
	Strict bool
	// If Production is set, agents with development settings are rejected.
	Production bool
	// Idle is how long an agent can be unused before its servers are stopped. Zero means that the servers are never
	// stopped.
	Idle time.Duration
	// Grace is how long a shutdown waits for calls in progress to finish. Zero means 20 seconds.
	Grace time.Duration

	APIKeys Keys
	// Passing is an admin key that is valid until this daemon exits. It is nil if the daemon has no such key.
	Passing *identity.PassingKey
	// OIDC checks the tokens of the OpenID providers. It is nil if no provider is configured.
	OIDC Tokens
	// SignIns keeps the callers' sign-ins to remote tool servers. If SignIns is nil, no one can sign in.
	SignIns *signin.Keeper
	Journal Journal
	// CheckStore returns an error if the store is unavailable. A nil CheckStore means that the store is always available.
	CheckStore func(context.Context) error
	// PolicyProblem returns the reason why the user's policy is not in force. It returns an empty string if the policy is
	// in force. A nil PolicyProblem means that there is no policy.
	PolicyProblem func() string
	// Hidden reports for each tool of an agent whether the policy denies every call to it by the caller of c. A nil Hidden
	// means that there is no policy.
	Hidden func(a *agent.Agent, name string, c *call.Call) []bool
	// Approvals lists the calls that wait for a person and records the decisions about them. A decision requires an admin
	// key, so the client of an agent cannot approve its own calls.
	Approvals console.Approvals
	// Intents is the queue of intents, which are queued calls to programs.
	Intents Intents
	// Abandoned returns the names of the agents with unfinished calls of dead processes. If it is nil, the daemon does not
	// search for such calls, so each agent must search: see [host.Options.SharedRecovery].
	Abandoned func(context.Context) ([]string, error)
	// Tidy deletes expired rows. If Tidy is nil, no rows are deleted.
	Tidy Tidier
	// Tickets seals the tickets for agents' web pages. If Tickets is nil, no pages are served.
	Tickets *identity.Keys
	// Served lets the intent queue run programs, and lets agents call other agents. If Served is not nil, New connects it
	// to the new daemon.
	Served  *Served
	Metrics *Metrics
	// If MetricsOpen is true, /metrics requires no key.
	MetricsOpen bool
	// Trace traces requests. If Trace is nil, nothing is traced.
	Trace *Trace

	// Listen is the address to listen on. If other machines can reach the address, TLS is required. Cert and Key are the
	// files of the TLS certificate. BehindProxy means that a proxy in front of the daemon terminates TLS.
	Listen      string
	Cert, Key   string
	BehindProxy bool
	// PublicURL is the daemon's public URL, if it differs from the address in Listen.
	PublicURL string

	// JoinTerms are the terms under which processes of "ambit run" can join.
	JoinTerms Terms

	Version string
	// Log receives messages for the operator.
	Log func(format string, args ...any)

	public       *url.URL
	loopback     bool
	recheckEvery time.Duration
	tidyEvery    time.Duration
	recoverEvery time.Duration
}

// Daemon serves agents.
type Daemon struct {
	options      Options
	fleet        *fleet
	store        storeHealth
	settled      atomic.Bool // set when every agent has been verified or has failed at least once
	cert         atomic.Pointer[tls.Certificate]
	server       *http.Server
	streams      streams
	requestBytes *limit.Bytes // limits the requests in progress
	answerBytes  *limit.Bytes // limits the answers that clients have not read
	console      atomic.Pointer[console.Console]
	again        sync.Mutex // held during a reload
	run          string     // a random id that is different after a restart
}

// UsageError reports invalid or contradictory options. Hint says how to correct them.
type UsageError struct{ What, Hint string }

func (e *UsageError) Error() string { return e.What }

// New creates a daemon and reads its agents, but does not start them. It returns a *UsageError if the options are
// invalid. With [Options.Strict], it returns a *StrictError if agents are rejected. It returns a different error if a
// folder or the certificate cannot be read.
func New(o Options) (*Daemon, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	d := &Daemon{options: o, requestBytes: limit.NewBytes(), answerBytes: limit.NewAnswerBytes(), run: rand.Text()}
	d.streams.keys = map[string]*watchedKey{}
	cert, err := d.readCertificate()
	if err != nil {
		return nil, err
	}
	d.cert.Store(cert)
	if d.fleet, err = newFleet(&d.options); err != nil {
		return nil, err
	}
	o.Metrics.daemon.Store(d)
	if o.Served != nil {
		o.Served.of.Store(d)
	}
	d.server = &http.Server{
		Handler: d.Handler(), ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, IdleTimeout: keepAlive,
		MaxHeaderBytes: maxHeader, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: log.New(logWriter(o.Log), "", 0),
	}
	return d, nil
}

// fill checks the options and sets defaults.
func (o *Options) fill() error {
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.recheckEvery = cmp.Or(o.recheckEvery, recheckEvery)
	o.tidyEvery = cmp.Or(o.tidyEvery, tidyEvery)
	o.recoverEvery = cmp.Or(o.recoverEvery, recoverEvery)
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
		return &UsageError{
			"--listen " + o.Listen + " is not an address",
			"use HOST:PORT with a port up to 65535, such as 127.0.0.1:7411",
		}
	}
	addr, err := netip.ParseAddr(host)
	o.loopback = host == "localhost" || err == nil && addr.IsLoopback()
	switch {
	case (o.Cert == "") != (o.Key == ""):
		return &UsageError{"--tls-cert and --tls-key must be set together", "set both flags, or neither"}
	case !o.loopback && o.Cert == "" && !o.BehindProxy:
		return &UsageError{
			fmt.Sprintf("--listen %s is reachable from other machines, so keys would be sent unencrypted", o.Listen),
			"set --tls-cert and --tls-key, or --behind-proxy if a proxy in front of the daemon terminates TLS",
		}
	}
	if o.PublicURL != "" {
		u, err := url.Parse(o.PublicURL)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return &UsageError{
				fmt.Sprintf("--public-url %s is not an http or https URL", o.PublicURL), "use a URL such as https://NAME",
			}
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

// readCertificate reads the TLS certificate. It returns nil if the daemon does not use TLS.
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

// Certificate returns the fingerprint of the TLS certificate, or an empty string without TLS.
func (d *Daemon) Certificate() string {
	if d.options.Cert == "" {
		return ""
	}
	return Fingerprint(d.leaf().Raw)
}

func (d *Daemon) leaf() *x509.Certificate { return d.cert.Load().Leaf }

// Listen starts listening on the configured address. It returns the listener and the listener's URL.
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

// Agents returns a description of each agent.
func (d *Daemon) Agents() []Card {
	var cards []Card
	for _, e := range d.fleet.current.Load().all {
		cards = append(cards, e.card())
	}
	return cards
}

// Close closes the agents of a daemon on which Serve was never called. Serve closes the agents itself.
func (d *Daemon) Close() { d.fleet.close(context.Background()) }

// Prove starts and verifies every agent, a few at a time. It returns when every agent is verified or has failed. The
// daemon can already answer requests while Prove is running.
func (d *Daemon) Prove(ctx context.Context) {
	d.fleet.prove(ctx, d.fleet.current.Load().all)
	d.settled.Store(true)
}

// QueueError reports that a reload replaced the agents but could not notify the queue.
type QueueError struct{ err error }

func (e *QueueError) Error() string {
	return fmt.Sprintf("the agents were reloaded, but the queue could not be notified: %v", e.err)
}

func (e *QueueError) Unwrap() error { return e.err }

// Reload reads the agents and the certificate again. If it returns a *[QueueError], the new agents are already served.
// If it returns any other error, nothing has changed.
func (d *Daemon) Reload(ctx context.Context) (c Change, err error) {
	d.again.Lock()
	defer d.again.Unlock()
	defer func() { d.options.Metrics.reloaded(err) }()
	cert, err := d.readCertificate()
	if err != nil {
		return c, err
	}
	if c, err = d.fleet.reload(ctx); err != nil {
		return c, err
	}
	d.cert.Store(cert)
	if d.options.Intents != nil {
		// A reload continues even if the caller disconnects.
		if err := d.options.Intents.Reload(context.WithoutCancel(ctx)); err != nil {
			return c, &QueueError{err}
		}
	}
	return c, nil
}

// Serve answers requests until ctx is done. It then waits up to [Options.Grace] for running calls to finish.
func (d *Daemon) Serve(ctx context.Context, l net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- d.server.Serve(l) }()
	var background sync.WaitGroup
	defer background.Wait() // the caller closes the store afterwards
	tidying, stop := context.WithCancel(ctx)
	defer stop()
	background.Go(func() { d.tidy(tidying) })
	background.Go(func() { d.recover(tidying) })
	select {
	case err := <-failed:
		d.fleet.close(context.WithoutCancel(ctx))
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.options.Grace)
	defer cancel()
	// The fleet and the server must shut down at the same time, because the server waits for streams, and a stream is
	// closed only when its agent retires.
	var closing sync.WaitGroup
	closing.Go(func() { d.fleet.close(grace) })
	err := d.server.Shutdown(grace)
	closing.Wait()
	if err != nil {
		return errors.Join(fmt.Errorf("some calls did not finish in time: %w", err), d.server.Close())
	}
	return nil
}
