package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// generation is the protocol generation that a server speaks. A wrong first greeting costs a second start
// or a timeout, so the result is kept here and in the lock.
type generation int

const (
	unknown   generation = iota // probe
	handshake                   // initialize: up to 2025-11-25
	stateless                   // no handshake: from 2026-07-28
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
	if locked := s.locked(); locked != nil {
		return generationOf(locked.Protocol)
	}
	return unknown
}

// another returns the generation to try after a failure, if another attempt may help.
func (g generation) another(err error) (next generation, ok bool) {
	_, refused := errors.AsType[*mcpwire.RPCError](err)
	_, foreign := errors.AsType[*mcpwire.VersionError](err)
	switch {
	case g == unknown && (errors.Is(err, mcpwire.ErrRespawnLegacy) || errors.Is(err, context.DeadlineExceeded)):
		return handshake, true
	case g == unknown && refused:
		// The server has no handshake and was not up in time for the probe.
		return stateless, true
	case g != unknown && (refused || foreign || errors.Is(err, mcpwire.ErrClosed)):
		return unknown, true // the remembered generation may be outdated
	}
	return g, false
}

// connect starts or reaches the server and greets it. If the greeting fails, connect tries another
// generation once.
func (s *server) connect(ctx context.Context, l *plan, p *Proof) (*mcpwire.Conn, *process, error) {
	conn, proc, err := s.launch(ctx, l, p)
	next, again := s.speaks.another(err)
	if err == nil || !again || ctx.Err() != nil {
		return conn, proc, err
	}
	end(conn, proc)
	s.speaks = next
	return s.launch(ctx, l, p)
}

// launch starts the program, or connects to the address, and greets the server.
func (s *server) launch(ctx context.Context, l *plan, p *Proof) (*mcpwire.Conn, *process, error) {
	log := limited(s.log)
	if s.remote() {
		transport, err := s.transport()
		if err != nil {
			return nil, nil, err
		}
		s.progress("connecting")
		conn := mcpwire.New(transport, s.wire(log, s.owner(ctx)))
		return conn, nil, s.greet(ctx, conn, p)
	}
	env, err := s.environment(l)
	if err != nil {
		return nil, nil, err
	}
	owner := s.owner(ctx)
	s.progress("starting")
	var proc *process
	if s.spec.Launch != nil {
		proc, err = s.launched(ctx)
	} else {
		hide := append([]string{s.options.Home.Dir()}, l.hide...)
		proc, err = start(program{argv: l.argv, env: env, hide: hide, show: l.show, log: log})
	}
	if err != nil {
		return nil, nil, err
	}
	if p.Contained = proc.contained; !p.Contained {
		p.notes = append(l.warnings,
			"the server is not contained and can read ambit's files; bubblewrap (Linux) prevents that")
	}
	conn := mcpwire.New(mcpwire.Stdio(proc.stdout, proc.stdin), s.wire(log, owner))
	err = s.greet(ctx, conn, p)
	if errors.Is(err, mcpwire.ErrClosed) {
		end(conn, proc)
		err = fmt.Errorf("%w%s", err, proc.exitReport())
	}
	return conn, proc, err
}

func (s *server) transport() (mcpwire.Transport, error) {
	o := mcpwire.HTTPOptions{Header: s.headers, RoundTripper: s.spec.RoundTripper}
	return mcpwire.HTTP(s.spec.Endpoint, o)
}

func (s *server) greet(ctx context.Context, conn *mcpwire.Conn, p *Proof) error {
	if s.speaks == unknown {
		// Leave time to start a server again that fails on the newer greeting.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.startTimeout/2)
		defer cancel()
	}
	hello, err := conn.Negotiate(ctx)
	if err != nil {
		return err
	}
	p.Protocol = hello.Version
	s.speaks = generationOf(hello.Version)
	return nil
}

// wire returns the options of a connection that belongs to owner; nil means that clients share it.
func (s *server) wire(log func(string), owner *call.Client) mcpwire.Options {
	o := mcpwire.Options{
		Name: "ambit", Version: s.options.Version, Legacy: s.speaks == handshake, Modern: s.speaks == stateless,
		ProbeTimeout: s.options.probe, OnGap: s.gap,
		OnNotification: func(n mcpwire.Notification) {
			switch n.Method {
			case mcpwire.MethodToolsChanged:
				s.doubt() // clients are notified after the next proof
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
		OnNoise: func(line []byte) { log("(not a message) " + string(line)) },
	}
	if owner != nil {
		o.Capabilities, o.OnRequest = owner.Capabilities, relay(owner)
	}
	return o
}

// logMessage formats a log notification of a server.
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

// headers adds the declared headers and credentials just before a request is sent.
func (s *server) headers(ctx context.Context, h http.Header) error {
	for _, set := range s.spec.Headers {
		value, err := s.resolve(set)
		if err != nil {
			return err
		}
		h.Set(set.Name, value)
	}
	if s.options.Authorize == nil || h.Get("Authorization") != "" {
		return nil
	}
	secret, err := s.options.Authorize(ctx, &s.spec.Server, h)
	if err == nil && secret != "" {
		s.secrets.keep("login", secret)
	}
	return err
}
