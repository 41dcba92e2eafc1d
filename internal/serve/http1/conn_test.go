package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Requests that follow each other closely are answered in their order.
func TestPipelined(t *testing.T) {
	r := overTCP(t, echo)
	c := r.dial()
	var all strings.Builder
	for i := range 50 {
		all.WriteString(request("/", strings.Repeat(fmt.Sprintf("%d,", i), i*20)))
	}
	go func() { _, _ = io.WriteString(c, all.String()) }()
	in := bufio.NewReader(c)
	for i := range 50 {
		if _, body := read(t, in); body != strings.Repeat(fmt.Sprintf("%d,", i), i*20) {
			t.Fatalf("the answer %d is %.100q", i, body)
		}
	}
}

// A request may come in pieces of any size.
func TestInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, echo)
		c := r.dial()
		defer c.Close()
		for _, size := range []int{1, 2, 3, 7, 50} {
			text := request("/", "a body") + request("/", "another")
			go func() {
				for text != "" {
					n := min(size, len(text))
					_, _ = io.WriteString(c, text[:n])
					text = text[n:]
				}
			}()
			in := bufio.NewReader(c)
			if _, body := read(t, in); body != "a body" {
				t.Errorf("in pieces of %d: %q", size, body)
			}
			if _, body := read(t, in); body != "another" {
				t.Errorf("in pieces of %d: %q", size, body)
			}
		}
	})
}

// A request that is not plain moves its connection to net/http, at any position.
func TestHandedOver(t *testing.T) {
	r := overTCP(t, dump)
	c := r.dial()
	in := bufio.NewReader(c)
	for i, text := range []string{
		request("/a", "plain"), "GET /b HTTP/1.1\r\nHost: a\r\n\r\n", request("/c", "plain again"), "GET /d?e HTTP/1.1\r\nHost: a\r\n\r\n", request("/e", "as theirs"), "POST /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
	} {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if _, body := read(t, in); !strings.Contains(body, "/"+string(rune('a'+i))) {
			t.Errorf("%q is answered by %q", text, body)
		}
	}
	// In one piece, too.
	c = r.dial()
	go func() { _, _ = io.WriteString(c, request("/a", "x")+"GET /b?c HTTP/1.1\r\nHost: a\r\n\r\n") }()
	in = bufio.NewReader(c)
	for _, path := range []string{"/a", "/b"} {
		if _, body := read(t, in); !strings.Contains(body, path) {
			t.Errorf("%s is answered by %q", path, body)
		}
	}
}

// A request whose client has gone is cancelled.
func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		r := inMemory(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			cause = r.Context().Err()
		})
		c := r.dial()
		go func() { _, _ = io.WriteString(c, request("/", "abc")) }()
		synctest.Wait()
		start := time.Now()
		c.Close()
		time.Sleep(3 * lookEvery)
		synctest.Wait()
		if !errors.Is(cause, context.Canceled) {
			t.Fatalf("after %v: %v", time.Since(start), cause)
		}
	})
}

// One whose client waits is not, however long it takes, and others follow it.
func TestLongRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if string(body) == "long" {
				select {
				case <-r.Context().Done():
					return
				case <-time.After(10 * idleTime):
				}
			}
			_, _ = w.Write(body)
		})
		c := r.dial()
		defer c.Close()
		for _, text := range []string{"short", "long", "short", "long"} {
			if _, body := ask(t, c, request("/", text)); body != text {
				t.Fatalf("%s is answered by %q", text, body)
			}
		}
		// Bytes that a client sends meanwhile are not lost.
		in := bufio.NewReader(c)
		go func() {
			_, _ = io.WriteString(c, request("/", "long"))
			time.Sleep(idleTime)
			_, _ = io.WriteString(c, request("/", "ahead"))
		}()
		for _, text := range []string{"long", "ahead"} {
			if _, body := read(t, in); body != text {
				t.Fatalf("%s is answered by %q", text, body)
			}
		}
	})
}

// The watcher runs only while there are requests.
func TestLooksOnlyWhileNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, echo)
		c := r.dial()
		defer c.Close()
		ask(t, c, request("/", "abc"))
		if !r.server.looking.Load() {
			t.Error("the watcher did not run during a request")
		}
		time.Sleep(idleTime / 2)
		synctest.Wait()
		if r.server.looking.Load() {
			t.Error("the watcher is still running")
		}
	})
}

// An answer that is given before the body has come reaches a client that still
// sends.
func TestRefusedEarly(t *testing.T) {
	r := overTCP(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) })
	c := r.dial()
	resp, body := ask(t, c, request("/", strings.Repeat("x", 500_000)))
	if resp.StatusCode != http.StatusUnauthorized || body != "no\n" || !resp.Close {
		t.Errorf("it is %d %q, close is %v", resp.StatusCode, body, resp.Close)
	}
}

// A handler that panics ends its own connection only. The panic is logged, unless it is
// http.ErrAbortHandler.
func TestPanic(t *testing.T) {
	for _, c := range []struct {
		value  any
		logged bool
	}{{"oh no", true}, {http.ErrAbortHandler, false}} {
		synctest.Test(t, func(t *testing.T) {
			r := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/panic" {
					_, _ = io.WriteString(w, "half")
					panic(c.value)
				}
				echo(w, r)
			})
			other, bad := r.dial(), r.dial()
			defer other.Close()
			defer bad.Close()
			ask(t, other, request("/", "a"))
			go func() { _, _ = io.WriteString(bad, request("/panic", "a")) }()
			ends(t, bad)
			if _, body := ask(t, other, request("/", "b")); body != "b" {
				t.Errorf("the other gets %q", body)
			}
			if got := strings.Contains(r.log.String(), "oh no"); got != c.logged {
				t.Errorf("the log is %q", r.log.String())
			}
		})
	}
}

// A handler that keeps an answered request reaches neither the next request nor its response.
func TestAfterTheEnd(t *testing.T) {
	var kept struct {
		w http.ResponseWriter
		r *http.Request
	}
	r := overTCP(t, func(w http.ResponseWriter, r *http.Request) {
		if kept.w == nil {
			kept.w, kept.r = w, r
			r.Header.Set("X-Seen", "1")
			w.Header().Set("X-First", "1")
			return
		}
		if _, err := kept.w.Write([]byte("late")); err == nil {
			t.Error("an answer that is over can be written to")
		}
		if err := http.NewResponseController(kept.w).Flush(); err == nil {
			t.Error("an answer that is over can be flushed")
		}
		if n, err := kept.r.Body.Read(make([]byte, 10)); n > 0 || err == nil {
			t.Errorf("a body that is over can be read: %d, %v", n, err)
		}
		if r.Header.Get("X-Seen") != "" || kept.r.Header.Get("X-Mine") != "first" || kept.r.URL.Path != "/first" {
			t.Errorf("requests share their fields: %v and %v", kept.r.Header, r.Header)
		}
		echo(w, r)
	})
	c := r.dial()
	ask(t, c, strings.Replace(request("/first", "one"), "\r\n\r\n", "\r\nX-Mine: first\r\n\r\n", 1))
	resp, body := ask(t, c, strings.Replace(request("/second", "two"), "\r\n\r\n", "\r\nX-Mine: second\r\n\r\n", 1))
	if body != "two" || resp.Header.Get("X-First") != "" {
		t.Errorf("the second answer is %q, %v", body, resp.Header)
	}
}

// A deadline of one answer is not one of the next.
func TestWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		r := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/soon" {
				if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
					t.Error(err)
				}
			}
			_, _ = io.WriteString(w, "an answer")
			if err := http.NewResponseController(w).Flush(); err != nil {
				failed <- err
			}
		})
		c := r.dial()
		defer c.Close()
		ask(t, c, request("/soon", "x"))
		time.Sleep(5 * time.Second)
		if _, body := ask(t, c, request("/", "x")); body != "an answer" {
			t.Errorf("the next is %q", body)
		}
		go func() { _, _ = io.WriteString(c, request("/soon", "x")) }() // and the client does not read
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
			t.Errorf("it failed with %v", err)
		}
	})
}

// Pieces of a response are sent when the handler flushes.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		r := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "one\n")
			w.(http.Flusher).Flush()
			<-more
			_, _ = io.WriteString(w, "two\n")
		})
		c := r.dial()
		defer c.Close()
		go func() { _, _ = io.WriteString(c, request("/", "")) }()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		if line, err := in.ReadString('\n'); line != "one\n" || err != nil {
			t.Fatalf("first comes %q, %v", line, err)
		}
		close(more)
		if rest, err := io.ReadAll(in); string(rest) != "two\n" || err != nil {
			t.Fatalf("then %q, %v", rest, err)
		}
	})
}

// Shutdown ends who has no request at once, and waits for the others.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-answer
			}
			echo(w, r)
		})
		idle, used, busy, theirs := r.dial(), r.dial(), r.dial(), r.dial()
		for _, c := range []net.Conn{idle, used, busy, theirs} {
			defer c.Close()
		}
		ask(t, used, request("/", "x"))
		ask(t, theirs, "GET /?a HTTP/1.1\r\nHost: a\r\n\r\n")
		go func() { _, _ = io.WriteString(busy, request("/wait", "late")) }()
		synctest.Wait()
		var ended error
		over := make(chan struct{})
		go func() { ended = r.server.Shutdown(context.Background()); close(over) }()
		ends(t, idle)
		ends(t, used)
		ends(t, theirs)
		select {
		case <-over:
			t.Fatal("it did not wait")
		default:
		}
		close(answer)
		if resp, body := read(t, bufio.NewReader(busy)); body != "late" || !resp.Close {
			t.Errorf("the last answer is %q, close is %v", body, resp.Close)
		}
		<-over
		if ended != nil {
			t.Error(ended)
		}
	})
}

// A shutdown that runs out of time returns an error, and Close then ends everything.
func TestShutdownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c := r.dial()
		defer c.Close()
		go func() { _, _ = io.WriteString(c, request("/", "")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it is %v", err)
		}
		if err := r.server.Close(); err != nil {
			t.Error(err)
		}
		ends(t, c)
	})
}

// A closed server accepts no connections.
func TestClosed(t *testing.T) {
	s := New(&http.Server{Handler: http.HandlerFunc(echo)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("it is %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("its listener is open")
	}
}

// A listener that fails for a while is asked again; one that fails for good ends
// the server.
func TestListenerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t, echo)
		broken := errors.New("gone")
		if err := s.server.Serve(&failing{errs: []error{passingError{}, passingError{}, broken}}); !errors.Is(err, broken) {
			t.Errorf("it is %v", err)
		}
		if n := strings.Count(s.log.String(), "cannot accept"); n != 2 {
			t.Errorf("the log is %q", s.log.String())
		}
		_ = s.server.Close()
	})
}

type passingError struct{}

func (passingError) Error() string   { return "too many open files" }
func (passingError) Temporary() bool { return true }

type failing struct{ errs []error }

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, err
}
func (f *failing) Close() error   { return nil }
func (f *failing) Addr() net.Addr { return &net.TCPAddr{} }

// Many clients at once each get their own answers, also while the server ends.
func TestCrowd(t *testing.T) {
	r := overTCP(t, echo)
	var wg sync.WaitGroup
	var ending atomic.Bool
	failed := func(err error) {
		if !ending.Load() {
			t.Error(err)
		}
	}
	for i := range 20 {
		c := r.dial()
		wg.Go(func() {
			in := bufio.NewReader(c)
			for j := range 200 {
				text := strings.Repeat(fmt.Sprintf("%d/%d ", i, j), j)
				if _, err := io.WriteString(c, request("/", text)); err != nil {
					failed(err)
					return
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					failed(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				if string(body) != text || err != nil {
					t.Errorf("%d/%d is answered by %.60q, %v", i, j, body, err)
				}
				if i == 0 && j == 150 {
					ending.Store(true)
					go func() { _ = r.server.Shutdown(context.Background()) }()
				}
			}
		})
	}
	wg.Wait()
	if !ending.Load() {
		t.Error("the server was never ended")
	}
}

// A stream whose client cannot be written to is cancelled, even if the client had sent bytes before
// it disconnected.
func TestStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := false
		r := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, ":\n\n") // like a handler that ignores errors
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Second):
				}
			}
			over = true
		})
		c := r.dial()
		go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") }()
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, c) }()
		time.Sleep(5 * lookEvery) // it is watched
		if _, err := io.WriteString(c, "G"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !over {
			t.Error("the stream is still open")
		}
	})
}

// A client is watched in the second of two requests that came together, too.
func TestGoneInTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled := false
		r := inMemory(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/one" {
				time.Sleep(time.Second)
				return
			}
			<-r.Context().Done()
			cancelled = true
		})
		c := r.dial()
		go func() {
			_, _ = io.WriteString(c, "GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\n\r\n")
		}()
		read(t, bufio.NewReader(c))
		time.Sleep(time.Second) // it is watched
		c.Close()
		time.Sleep(time.Second)
		synctest.Wait()
		if !cancelled {
			t.Error("the disconnected client was not noticed")
		}
	})
}

// A response ends before its request's context does: later writes are discarded.
func TestLateWriter(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() { _, _ = io.Copy(io.Discard, here) }()
	c := newConn(newRig(t, echo).server, there)
	b := &body{c: c}
	w := &response{c: c, body: b, header: http.Header{}, length: -1, cancel: func() {}}
	if !w.finish() {
		t.Fatal("there cannot be another request")
	}
	if _, err := w.Write([]byte("late")); !errors.Is(err, errOver) {
		t.Errorf("what is late was taken: %v", err)
	}
	if err := w.FlushError(); !errors.Is(err, errOver) {
		t.Errorf("what is late was sent: %v", err)
	}
	w.WriteHeader(http.StatusTeapot)
	if len(c.held)+len(c.out) > 0 {
		t.Errorf("%q and %q wait for the next answer", c.held, c.out)
	}
}

// Writes after a flush are framed like those before, with a type or without.
func TestFlushThenWrite(t *testing.T) {
	r := overTCP(t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "after")
	})
	if _, body := ask(t, r.dial(), request("/", "")); body != "after" {
		t.Errorf("the answer is %q", body)
	}
}

// A handler that ends its goroutine ends its connection, and does not keep the
// server from ending.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, func(http.ResponseWriter, *http.Request) { runtime.Goexit() })
		c := r.dial()
		defer c.Close()
		go func() { _, _ = io.WriteString(c, request("/", "")) }()
		ends(t, c)
		if err := r.server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
