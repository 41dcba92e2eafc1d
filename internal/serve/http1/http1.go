// Package http1 serves the requests that clients of agents send all the time,
// small and plain ones over HTTP/1.1, without most of what net/http does for each.
//
// net/http starts a goroutine with every request, to notice that the client is
// gone, and wakes it again to end it; it sets several deadlines; it makes every
// header anew. Beside a tool call of a fraction of a millisecond that is a quarter
// of the CPU (docs/benchmarks.md). Here a connection is one goroutine that reads a
// request, has it answered and writes the answer. Clients are watched for having
// gone only where a request takes long, and deadlines are moved only when they
// would be too near.
//
// What a request means is not decided here. A head that is exactly as plain as
// this package expects (see [head.read]) means the same to net/http, which a fuzz
// test holds it to. Whatever is not, be it good or bad, is left to net/http: the
// connection goes there with every byte of it, for good. So there is one place
// that judges odd requests, and it is not this one. Answers are made by the
// [http.Handler] of the same [http.Server], whose timeouts and log hold for both.
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

// lookEvery is how often requests under way are looked at. One that is there
// twice has its client watched.
const lookEvery = 50 * time.Millisecond

// Server serves connections, those with requests that are not plain by HTTP.
type Server struct {
	HTTP *http.Server

	mu      sync.Mutex
	conns   map[*conn]struct{}
	closing atomic.Bool
	left    chan struct{} // made by whoever waits for the last connection to end
	others  *others
	plain   net.Listener
	end     chan struct{} // closed when no more connections are taken
	cut     chan struct{} // closed when none are left
	once    sync.Once
	looking atomic.Bool
}

// New makes a server of one that is set up and not serving. Its handler, log and
// timeouts count; its BaseContext, ConnContext and ConnState are told only of the
// connections that it gets.
func New(h *http.Server) *Server {
	return &Server{HTTP: h, conns: map[*conn]struct{}{}, end: make(chan struct{}), cut: make(chan struct{})}
}

// Serve takes connections until the server is shut down or closed, when it
// returns [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	o := &others{addr: l.Addr(), conns: make(chan net.Conn), end: make(chan struct{})}
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	s.others, s.plain = o, l
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.HTTP.Serve(o)
	}()
	err := s.accept(l)
	_ = o.Close()
	<-ended // because of that
	return err
}

func (s *Server) accept(l net.Listener) error {
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.take(c)
			continue
		case s.closing.Load():
			return http.ErrServerClosed
		case !passing(err):
			return err
		}
		// No more files, say: others may end meanwhile.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.logf("a connection cannot be taken: %v", err)
		select {
		case <-s.end:
		case <-time.After(pause):
		}
	}
}

// passing reports whether a listener may yet take connections after an error.
func passing(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && t.Temporary()
}

// take begins to serve a connection.
func (s *Server) take(nc net.Conn) {
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

// forget is told that a connection has ended, or is no longer served here.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 && s.left != nil {
		close(s.left)
		s.left = nil
	}
}

// give hands a connection to net/http.
func (s *Server) give(c net.Conn) {
	select {
	case s.others.conns <- c:
	case <-s.others.end:
		_ = c.Close()
	}
}

// Shutdown takes no more connections and ends those without a request. It
// returns when the others have ended, or ctx has.
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

// Close ends every connection.
func (s *Server) Close() error {
	s.stop((*conn).abort)
	s.once.Do(func() { close(s.cut) })
	return s.HTTP.Close()
}

// stop takes no more connections, and ends those that there are.
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

// look finds requests that take long and has their clients watched. It goes on
// while there are requests: between calls that follow each other nothing is
// started or ended.
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

// underWay are the connections that have a request, with its number.
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

// rest lets the next request have another look, unless one has begun that saw
// this one still going.
func (s *Server) rest() bool {
	s.looking.Store(false)
	return len(s.underWay()) == 0 || !s.looking.CompareAndSwap(false, true)
}

// headTime is how long a head may take, by the rules of net/http.
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

// others is a listener for connections that net/http is to serve.
type others struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	end   chan struct{}
}

func (o *others) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.end:
		return nil, net.ErrClosed
	}
}

func (o *others) Close() error {
	o.once.Do(func() { close(o.end) })
	return nil
}

func (o *others) Addr() net.Addr { return o.addr }
