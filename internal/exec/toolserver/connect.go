package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// generation is the MCP protocol generation of a server. A greeting in the wrong generation is slow: it may time out,
// or the server may have to be started again. Therefore, ambit remembers the generation while it runs, and stores the
// MCP revision in the lock file.
type generation int

const (
	unknown   generation = iota // before the first greeting
	handshake                   // MCP revisions up to 2025-11-25, which begin with initialize
	stateless                   // MCP revisions from 2026-07-28, which have no handshake
)

func generationOf(revision string) generation {
	switch {
	case revision == "":
		return unknown
	case revision < "2026":
		return handshake
	}
	return stateless
}

func (s *server) rememberedGeneration() generation {
	if locked := s.lockEntry(); locked != nil {
		return generationOf(locked.Protocol)
	}
	return unknown
}

// fallback returns the generation to try after a greeting in generation g has failed with the given error. The second
// result is false if another attempt would not help.
func (g generation) fallback(err error) (next generation, ok bool) {
	_, refused := errors.AsType[*mcpwire.RPCError](err)
	_, foreign := errors.AsType[*mcpwire.VersionError](err)
	switch {
	case g == unknown && (errors.Is(err, mcpwire.ErrRespawnLegacy) || errors.Is(err, context.DeadlineExceeded)):
		return handshake, true
	case g == unknown && refused:
		// The server rejects the handshake, so it is stateless. It started too slowly to answer the first probe.
		return stateless, true
	case g != unknown && (refused || foreign || errors.Is(err, mcpwire.ErrClosed)):
		return unknown, true // the remembered generation may be outdated
	}
	return g, false
}

// connect starts a local server or connects to a remote server, and greets it. If the greeting fails, connect may try
// once more with a different protocol generation.
func (s *server) connect(ctx context.Context, l *plan, p *Proof) (*mcpwire.Conn, *process, error) {
	l.greeting = s.options.greetTimeout
	conn, proc, err := s.launch(ctx, l, p)
	next, again := s.speaks.fallback(err)
	if err == nil || !again || ctx.Err() != nil {
		return conn, proc, err
	}
	end(conn, proc)
	s.speaks = next
	return s.launch(ctx, l, p)
}

// launch starts a local server or connects to a remote server. Then it sends a greeting in the protocol generation
// s.speaks.
func (s *server) launch(ctx context.Context, l *plan, p *Proof) (conn *mcpwire.Conn, proc *process, err error) {
	defer s.contain(&err) // the caller ends the program and the connection
	log := s.logOutput
	if s.remote() {
		transport, err := s.transport()
		if err != nil {
			return nil, nil, err
		}
		s.progress("connecting")
		conn = mcpwire.New(transport, s.connOptions(log, s.owner(ctx)))
		return conn, nil, s.greet(ctx, conn, l, p)
	}
	env, err := s.environment(l)
	if err != nil {
		return nil, nil, err
	}
	owner := s.owner(ctx)
	s.progress("starting")
	switch {
	case s.spec.Launch != nil:
		proc, err = s.launched(ctx)
	case s.options.Confine != nil && !s.unconfined():
		proc, err = s.startConfined(l, env, log)
	default:
		if s.unconfined() {
			s.warn("this server runs WITHOUT confinement, because of --unconfined: it can do everything that you can do")
		}
		argv, refusal := s.arguments(l.argv)
		if refusal != nil {
			return nil, nil, refusal
		}
		hidden := append([]string{s.options.Home.Dir()}, l.hidden...)
		proc, err = start(program{argv: argv, env: env, hidden: hidden, visible: l.visible, log: log})
	}
	if err != nil {
		return nil, nil, err
	}
	if p.Contained = proc.contained; !p.Contained {
		p.notes = append(l.warnings,
			"the server is not contained and can read ambit's files; to prevent that on Linux, install bubblewrap")
	}
	conn = mcpwire.New(mcpwire.Stdio(proc.stdout, proc.stdin), s.connOptions(log, owner))
	err = s.greet(ctx, conn, l, p)
	if errors.Is(err, mcpwire.ErrClosed) {
		end(conn, proc)
		err = fmt.Errorf("%w%s", err, proc.exitReport())
	}
	return conn, proc, err
}

// unconfined reports whether the owner runs this server without a sandbox.
func (s *server) unconfined() bool {
	return s.options.Confine != nil && slices.Contains(s.options.Confine.Unconfined, s.alias)
}

func (s *server) transport() (mcpwire.Transport, error) {
	in := s.signingIn()
	o := mcpwire.HTTPOptions{RoundTripper: s.spec.RoundTripper}
	o.Header = func(ctx context.Context, h http.Header) error { return s.headers(ctx, h, in) }
	if in != nil {
		o.Prove, o.Refused = in.Prove, in.Refused
	}
	return mcpwire.HTTP(s.spec.Endpoint, o)
}

// signingIn returns the sign-in for a remote server's requests. It returns nil if the manifest declares an
// Authorization header. In that case, a refusal by the server means that the declared header is wrong.
func (s *server) signingIn() SignIn {
	if s.options.SignIn == nil || s.spec.SendsAuthorization() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signIn == nil {
		s.signIn = s.options.SignIn(&s.spec.Server)
	}
	return s.signIn
}

// errSilent means that the server did not answer a greeting in time.
var errSilent = errors.New("the server did not answer ambit's first request in time")

// greet greets the server. All greetings during one start together must take no longer than l.greeting.
func (s *server) greet(ctx context.Context, conn *mcpwire.Conn, l *plan, p *Proof) error {
	limit := l.greeting
	if s.speaks == unknown {
		// Some servers fail when they receive the newer greeting. Leave time for a second start with the older one.
		limit = limit * 2 / 3
	}
	answering, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	hello, err := conn.Negotiate(answering)
	l.greeting -= time.Since(began)
	if err != nil && answering.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	if err != nil {
		return err
	}
	p.Protocol = hello.Version
	s.speaks = generationOf(hello.Version)
	return nil
}

// connOptions returns the options for a new connection. The owner is the only client that uses the connection, or nil
// if clients share the connection.
func (s *server) connOptions(log func(string), owner *call.Client) mcpwire.Options {
	var noise guard.KeyLines
	o := mcpwire.Options{
		Name: "ambit", Version: s.options.Version, Legacy: s.speaks == handshake, Modern: s.speaks == stateless,
		ProbeTimeout: s.options.probe, OnGap: s.handleGap,
		OnNotification: func(n mcpwire.Notification) {
			switch n.Method {
			case mcpwire.MethodToolsChanged:
				s.requestRecheck() // clients are notified only after the verification
				return
			case "notifications/message":
				log(logMessage(n.Params))
			}
			if owner != nil && owner.Notify != nil {
				owner.Notify(n.Method, s.secrets.maskJSON(n.Params))
			} else if owner == nil {
				s.options.OnNotify(s.alias, n.Method, s.secrets.maskJSON(n.Params))
			}
		},
		OnLargeNotification: func(size int) {
			s.warnLarge.Do(func() {
				s.warn(fmt.Sprintf("the server sent a notification of %d KiB; ambit drops notifications larger than %d KiB",
					size>>10, mcpwire.MaxNotification>>10))
			})
		},
		OnPanic: func(description string) {
			s.warn("ambit failed while it handled a message from the server, and closed the connection: " + description)
		},
		OnNoise: func(line []byte) { log("(not an MCP message) " + noise.Hide(string(line))) },
	}
	if owner != nil {
		o.Capabilities, o.OnRequest = owner.Capabilities, s.relay(owner)
	}
	return o
}

func logMessage(params []byte) string {
	var m struct {
		Level string          `json:"level"`
		Data  json.RawMessage `json:"data"`
	}
	if json.Unmarshal(params, &m) != nil {
		return string(params)
	}
	var text string
	if json.Unmarshal(m.Data, &text) != nil {
		text = string(m.Data)
	}
	return m.Level + ": " + text
}

// headers adds the manifest's headers and the credentials to a request, just before the request is sent.
func (s *server) headers(ctx context.Context, h http.Header, in SignIn) error {
	for _, set := range s.spec.Headers {
		value, err := s.resolve(set)
		if err != nil {
			return err
		}
		h.Set(set.Name, value)
	}
	if h.Get("Authorization") != "" {
		return nil
	}
	if in != nil {
		token, err := in.Header(ctx, h)
		if err != nil {
			return err
		}
		if token != "" {
			s.secrets.add("signin", token)
			return nil
		}
	}
	if on, err := s.byCaller(); err != nil || on || s.options.Authorize == nil {
		return err // callers must not use the owner's credentials
	}
	secret, err := s.options.Authorize(ctx, &s.spec.Server, h)
	if err == nil && secret != "" {
		s.secrets.add("login", secret)
	}
	return err
}
