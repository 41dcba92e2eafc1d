package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener whose connections are in memory, so that time can be the
// test's own.
type pipes struct {
	conns chan net.Conn
	end   chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.end) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// rig is a server and the way to it.
type rig struct {
	t      *testing.T
	server *Server
	dial   func() net.Conn
	log    bytes.Buffer
}

const (
	headTime = 3 * time.Second
	bodyTime = 7 * time.Second
	idleTime = 60 * time.Second
)

func newRig(t *testing.T, h http.HandlerFunc) *rig {
	r := &rig{t: t}
	r.server = New(&http.Server{Handler: h, ReadHeaderTimeout: headTime, ReadTimeout: bodyTime, IdleTimeout: idleTime, ErrorLog: log.New(&r.log, "", 0)})
	return r
}

// inMemory serves connections that are pipes.
func inMemory(t *testing.T, h http.HandlerFunc) *rig { return newRig(t, h).inMemory() }

func (r *rig) inMemory() *rig {
	l := &pipes{conns: make(chan net.Conn), end: make(chan struct{})}
	r.dial = func() net.Conn {
		here, there := net.Pipe()
		l.conns <- there
		return here
	}
	r.serve(l)
	return r
}

// overTCP serves real ones.
func overTCP(t *testing.T, h http.HandlerFunc) *rig {
	r := newRig(t, h)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.dial = func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute)) // nothing here takes as long
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	r.serve(l)
	return r
}

func (r *rig) serve(l net.Listener) {
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	r.t.Cleanup(func() {
		if err := r.server.Close(); err != nil {
			r.t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			r.t.Errorf("it ended with %v", err)
		}
	})
}

func request(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// ask sends text and reads one answer.
func ask(t *testing.T, c net.Conn, text string) (*http.Response, string) {
	t.Helper()
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(c, text); sent <- err }()
	defer func() { <-sent }() // a refused client may not have sent everything
	return read(t, bufio.NewReader(c))
}

func read(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// ends fails unless the connection ends without another byte.
func ends(t *testing.T, c net.Conn) {
	t.Helper()
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
		t.Fatalf("instead of the end came %q, %v", rest, err)
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = w.Write(body)
}

// dump answers with everything that a handler can know of a request.
func dump(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s %q\n", r.Method, r.URL, r.RequestURI, r.Host, r.URL.Path)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
	}
	_, local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	_, remote, _ := net.SplitHostPort(r.RemoteAddr)
	fmt.Fprintf(w, "%s %d.%d %d %v %v %v %v %q %v\n", r.Proto, r.ProtoMajor, r.ProtoMinor, r.ContentLength, r.TransferEncoding, r.Close, local, remote != "", body, err)
}

// For any request and any handler, clients get the same response as from net/http.
func TestSameAsNetHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/dump", dump)
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/none", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/nothing", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/accepted", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	mux.HandleFunc("/error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) })
	mux.HandleFunc("/twice", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "once")
		w.Header().Set("X-Late", "1")
	})
	mux.HandleFunc("/fields", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["X-Many"] = []string{"a", "b"}
		h["X-Crlf"] = []string{"a\r\nX-Injected: b"}
		h["X Bad"] = []string{"c"}
		h["X-Empty"] = nil
		h.Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
	})
	mux.HandleFunc("/length", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		fmt.Fprint(w, "four")
		_, err := fmt.Fprint(w, "more")
		if !errors.Is(err, http.ErrContentLength) {
			t.Errorf("more than was announced can be written: %v", err)
		}
	})
	mux.HandleFunc("/badlength", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "many")
		fmt.Fprint(w, "few")
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 40 {
			_, _ = io.WriteString(w, strings.Repeat(strconv.Itoa(i%10), 5000))
		}
	})
	mux.HandleFunc("/atonce", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), 3*maxHeld)) })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	})
	mux.HandleFunc("/close", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
	})
	here := overTCP(t, mux.ServeHTTP)
	theirs := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = theirs.Serve(l) }()
	defer theirs.Close()

	var texts []string
	for _, path := range []string{
		"/dump", "/echo", "/none", "/nothing", "/accepted", "/error", "/twice", "/fields", "/length", "/badlength", "/large", "/atonce", "/stream", "/close", "/unknown",
		"/dump?a=b", "/a/../dump", "//dump", "/%64ump",
	} {
		texts = append(texts, request(path, `{"a": 1}`), request(path, ""))
	}
	fields := func(f string) string {
		return strings.Replace(request("/dump", "abc"), "\r\n\r\n", "\r\n"+f+"\r\n\r\n", 1)
	}
	texts = append(texts,
		request("/echo", strings.Repeat("large", 100_000)), request("/echo", strings.Repeat("x", maxLength+1)),
		fields("X-A: b"), fields("x-a:b\r\nX-A:  c "), fields("Connection: close"), fields("Content-Length: 4"), fields("Host: other"),
		fields("X-A: \xff"), fields("X-A : b"), fields(" b"), fields("Cookie: a=b"), fields("Expect: nothing"), fields("Transfer-Encoding: x"),
		"POST /dump HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST /dump HTTP/1.0\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"GET /dump HTTP/1.1\r\nHost: a\r\n\r\n", "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", "DELETE /dump HTTP/1.1\r\nHost: a\r\n\r\n", "DELETE /none HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "HEAD /dump HTTP/1.1\r\nHost: a\r\n\r\n", "POST /dump HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "nonsense\r\n\r\n", "POST\r\n\r\n", "\r\n\r\n", "POST /dump HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
	)
	for _, text := range texts {
		theirConn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		want, got := answerTo(theirConn, text), answerTo(here.dial(), text)
		if got != want {
			t.Errorf("%.80q: here it is\n%.600s\nnet/http says\n%.600s", text, got, want)
		}
	}
}

// answerTo returns a server's response to a text, without the date and the framing.
func answerTo(c net.Conn, text string) string {
	defer c.Close()
	go func() { _, _ = io.WriteString(c, text) }() // until the server has heard enough
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return "nothing"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	_, dated := resp.Header["Date"]
	resp.Header.Del("Date")
	resp.Header.Del("Content-Length")
	return fmt.Sprint(resp.StatusCode, resp.Close, dated, resp.Header, string(body), err)
}
