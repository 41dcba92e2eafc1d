// Package http1 serves small, plain HTTP/1.1 requests, which clients of agents send all the time,
// with less work per request than net/http.
//
// net/http starts a goroutine for every request to notice a disconnected client, wakes it again to
// end it, sets several deadlines, and allocates every header. For a tool call of a fraction of a
// millisecond that is a quarter of the CPU time (docs/benchmarks.md). Here one goroutine per
// connection reads a request, calls the handler and writes the response. Only slow requests are
// watched for a disconnected client, and deadlines move only when they are too near.
//
// This package does not interpret unusual requests. A head that is exactly as plain as [head.read]
// expects means the same to net/http; a fuzz test compares the two. For all other heads, valid or
// not, the connection moves to net/http for good, with every byte that was read. So one parser
// decides about unusual requests, and it is not this one. The [http.Handler] of the same
// [http.Server] answers both, and its timeouts and log apply to both.
package http1

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lookEvery is how often open requests are checked. A request that is seen twice has its client
// watched.
const lookEvery = 50 * time.Millisecond

// Server serves connections, and passes those with requests that are not plain to HTTP.
type Server struct {
	HTTP *http.Server

	mu      sync.Mutex
	conns   map[*conn]struct{}
	closing atomic.Bool
	left    chan struct{} // closed with the last connection; nil unless Shutdown waits
	handed  *handedOver
	plain   net.Listener
	end     chan struct{} // closed when no more connections are accepted
	cut     chan struct{} // closed when all connections are cut
	once    sync.Once
	looking atomic.Bool
}

// New wraps a configured server that is not serving. Its handler, log and timeouts apply; its
// BaseContext, ConnContext and ConnState see only the connections that move to it.
func New(h *http.Server) *Server {
	return &Server{HTTP: h, conns: map[*conn]struct{}{}, end: make(chan struct{}), cut: make(chan struct{})}
}

// Serve accepts connections until Shutdown or Close, and then returns [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	o := &handedOver{addr: l.Addr(), conns: make(chan net.Conn), end: make(chan struct{})}
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	s.handed, s.plain = o, l
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.HTTP.Serve(o)
	}()
	err := s.accept(l)
	_ = o.Close()
	<-ended // because o is closed
	return err
}

func (s *Server) accept(l net.Listener) error {
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(c)
			continue
		case s.closing.Load():
			return http.ErrServerClosed
		case !temporary(err):
			return err
		}
		// Too many open files, for example: connections may end meanwhile.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.logf("cannot accept a connection: %v", err)
		select {
		case <-s.end:
		case <-time.After(pause):
		}
	}
}

// temporary reports whether a listener can continue after an error.
func temporary(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && t.Temporary()
}

// start begins to serve a connection.
func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	go c.serve()
}

// forget removes a connection that has ended or moved to net/http.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 && s.left != nil {
		close(s.left)
		s.left = nil
	}
}

// give passes a connection to net/http.
func (s *Server) give(c net.Conn) {
	select {
	case s.handed.conns <- c:
	case <-s.handed.end:
		_ = c.Close()
	}
}

// Shutdown stops accepting connections and closes idle ones. It returns when the others have ended,
// or ctx has.
func (s *Server) Shutdown(ctx context.Context) error {
	var left chan struct{}
	s.stop((*conn).endIdle)
	s.mu.Lock()
	if len(s.conns) > 0 {
		if s.left == nil {
			s.left = make(chan struct{})
		}
		left = s.left
	}
	s.mu.Unlock()
	err := s.HTTP.Shutdown(ctx)
	if left != nil && err == nil {
		select {
		case <-left:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// Close closes every connection.
func (s *Server) Close() error {
	s.stop((*conn).abort)
	s.once.Do(func() { close(s.cut) })
	return s.HTTP.Close()
}

// stop stops accepting connections and calls end for the open ones.
func (s *Server) stop(end func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.CompareAndSwap(false, true) {
		close(s.end)
		if s.plain != nil {
			_ = s.plain.Close()
		}
	}
	for c := range s.conns {
		end(c)
	}
}

// look finds slow requests and has their clients watched. It runs while there are requests, so that
// nothing is started or stopped between consecutive calls.
func (s *Server) look() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	seen := map[*conn]uint64{}
	for idle := 0; idle < 20 || !s.rest(); idle++ {
		select {
		case <-s.cut:
			return
		case <-tick.C:
		}
		under := s.underWay()
		if len(under) == 0 && s.closing.Load() {
			return
		}
		for c, turn := range under {
			if seen[c] == turn {
				c.watch(turn)
			}
			idle = 0
		}
		seen = under
	}
}

// underWay returns the connections with an open request, and its number.
func (s *Server) underWay() map[*conn]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	under := map[*conn]uint64{}
	for c := range s.conns {
		if turn := c.turn.Load(); turn%2 == 1 {
			under[c] = turn
		}
	}
	return under
}

// rest stops looking, unless a request has begun meanwhile that relied on it.
func (s *Server) rest() bool {
	s.looking.Store(false)
	return len(s.underWay()) == 0 || !s.looking.CompareAndSwap(false, true)
}

// headTime is the timeout for a head, by the rules of net/http.
func (s *Server) headTime() time.Duration {
	return cmp.Or(s.HTTP.ReadHeaderTimeout, s.HTTP.ReadTimeout)
}

func (s *Server) logf(format string, args ...any) {
	if l := s.HTTP.ErrorLog; l != nil {
		l.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

// handedOver is a listener for the connections that move to net/http.
type handedOver struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	end   chan struct{}
}

func (o *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.end:
		return nil, net.ErrClosed
	}
}

func (o *handedOver) Close() error {
	o.once.Do(func() { close(o.end) })
	return nil
}

func (o *handedOver) Addr() net.Addr { return o.addr }
