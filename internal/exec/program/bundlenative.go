package program

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// A server lives as long as its agent. It is ended after a year all the same,
// and may write this much to the log.
const (
	serverWall = 365 * 24 * time.Hour
	serverLog  = 256 << 20
)

// Server is a bundle's own MCP server, in its sandbox.
type Server struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// Native reports whether the bundle is its own server.
func (b *Bundle) Native() bool { return b.agent.Program.Contract == agent.NativeMCP }

// Launch starts the bundle's own server. It must be stopped. The error is a
// refusal.
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
	talking := make(chan struct{})
	r.Wall, r.MaxStderr, r.Pool = serverWall, serverLog, nil
	r.Talk = func(stdin io.WriteCloser, stdout io.ReadCloser) {
		s.Stdin, s.Stdout = stdin, stdout
		close(talking)
	}
	go func() {
		defer close(s.ended)
		defer r.end()
		defer stop()
		out, err := sandbox.Run(ctx, r.Spec)
		if errors.Is(err, sandbox.ErrNotStarted) {
			err = failed(NotStarted, "%v", err)
		}
		if f := ended(&out, r.Wall); err == nil && f != nil {
			err = f
		}
		s.err = err
	}()
	select {
	case <-talking:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.server, b.lacks = s, len(l.missing) > 0
		return s, nil
	case <-s.ended:
		if s.err == nil {
			s.err = failed(NoAnswer, "the server ended before it was spoken to")
		}
		return nil, s.err
	}
}

// Stop ends the server and everything it started, and tells how it ended if it
// did so by itself.
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

// Complete refuses calls while a credential that the code requires is missing.
// The server is up all the same, so that it can be proven; when the credential
// is there, it is ended, and whoever keeps it running starts it with it.
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
