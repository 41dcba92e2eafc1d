package program

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// A server runs as long as its agent, within these bounds.
const (
	serverWall = 365 * 24 * time.Hour
	serverLog  = 256 << 20
)

// Server is the MCP server of a bundle, in its sandbox.
type Server struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// Native reports whether the bundle is an MCP server.
func (b *Bundle) Native() bool { return b.agent.Program.Contract == agent.NativeMCP }

// Launch starts the bundle's MCP server. The caller stops it. The error is a refusal.
func (b *Bundle) Launch() (*Server, error) {
	l, err := b.lend()
	if err != nil {
		return nil, err
	}
	r, err := b.prepare(l)
	if err != nil {
		return nil, err
	}
	s := &Server{ended: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	started := make(chan struct{})
	r.Wall, r.MaxStderr, r.Pool = serverWall, serverLog, nil
	r.Talk = func(stdin io.WriteCloser, stdout io.ReadCloser) {
		s.Stdin, s.Stdout = stdin, stdout
		close(started)
	}
	go func() {
		defer close(s.ended)
		defer r.end()
		defer stop()
		out, err := sandbox.Run(ctx, r.Spec)
		if errors.Is(err, sandbox.ErrNotStarted) {
			err = failed(NotStarted, "%v", err)
		}
		if f := exitFailure(&out, r.Wall); err == nil && f != nil {
			err = f
		}
		s.err = err
	}()
	select {
	case <-started:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.server, b.lacks = s, len(l.missing) > 0
		return s, nil
	case <-s.ended:
		if s.err == nil {
			s.err = failed(NoAnswer, "the server exited before the first request")
		}
		return nil, s.err
	}
}

// Stop ends the server and all its processes. If the server had already exited, Stop
// returns its failure.
func (s *Server) Stop() error {
	select {
	case <-s.ended:
		return s.err
	default:
	}
	s.stop()
	<-s.ended
	return nil
}

// Complete refuses calls while a required credential is missing. The server runs
// without it, so that its tools can be proven. Once the credential is set, Complete
// stops the server, and its supervisor starts it again with the credential.
func (b *Bundle) Complete() error {
	b.mu.Lock()
	server, lacks := b.server, b.lacks
	b.mu.Unlock()
	if !lacks {
		return nil
	}
	l, err := b.lend()
	if err == nil {
		err = l.complete()
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.lacks = false
	b.mu.Unlock()
	server.Stop()
	return nil
}
