package toolserver

import (
	"context"
	"errors"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
)

// generation is how a server wants to be greeted. Asking for the newer way
// first costs a server that chokes on it a second start, and one that stays
// silent a wait, so the answer is remembered: here, and in the lock.
type generation int

const (
	unknown   generation = iota // ask
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

// another is the generation to try after one has failed, if that may help.
func (g generation) another(err error) (next generation, ok bool) {
	_, refused := errors.AsType[*mcpwire.RPCError](err)
	_, foreign := errors.AsType[*mcpwire.VersionError](err)
	switch {
	case g == unknown && (errors.Is(err, mcpwire.ErrRespawnLegacy) || errors.Is(err, context.DeadlineExceeded)):
		return handshake, true
	case g == unknown && refused:
		// It knows no handshake, and was not up in time to answer the question.
		return stateless, true
	case g != unknown && (refused || foreign || errors.Is(err, mcpwire.ErrClosed)):
		return unknown, true // what was remembered may be over
	}
	return g, false
}

// connect starts or reaches the server and greets it; if that fails for the way
// it was greeted, once more in another.
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
