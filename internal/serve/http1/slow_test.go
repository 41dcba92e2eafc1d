package http1

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Slow clients are disconnected after the server's timeouts.
func TestSlowClients(t *testing.T) {
	for _, c := range []struct {
		name, sent string
		later      bool          // than a request that was answered
		gone       time.Duration // at most
	}{
		{"nothing comes", "", false, headTime},
		{"a head does not end", "POST / HTTP/1.1\r\nHost: a\r\n", false, 2 * headTime},
		{"a first line does not end", "POST", false, 2 * headTime},
		{"another method does not end", "PUT / HTTP/1.1\r\n", false, 2 * headTime},
		{"a body does not end", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", false, bodyTime + headTime},
		{"there is no second request", request("/", "abc"), false, idleTime},
		{"a second head does not end", request("/", "abc") + "POST / HT", false, 2 * headTime},
		{"a later head does not end", "POST / HT", true, 2 * headTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t, echo)
				conn := r.dial()
				defer conn.Close()
				if c.later {
					ask(t, conn, request("/", "before"))
					synctest.Wait() // for the next
				}
				start := time.Now()
				go func() { _, _ = io.WriteString(conn, c.sent) }()
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > c.gone || took < c.gone/4 {
					t.Errorf("it was waited for %v", took)
				}
			})
		})
	}
}

// drip sends a text one byte at a time until a write fails.
func drip(c net.Conn, text string, every time.Duration) *sync.WaitGroup {
	var dripping sync.WaitGroup
	dripping.Go(func() {
		for _, b := range []byte(text) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(every) // of the test's own time
		}
	})
	return &dripping
}

// A head that comes a byte at a time is not a way around that.
func TestDrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, echo)
		conn := r.dial()
		defer conn.Close()
		start := time.Now()
		dripping := drip(conn, request("/", "abc"), headTime/4)
		ends(t, conn)
		if took := time.Since(start); took > 2*headTime {
			t.Errorf("it was waited for %v", took)
		}
		dripping.Wait()
	})
}

// A body has its time as a whole, however it comes.
func TestBodyDrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, echo)
		conn := r.dial()
		defer conn.Close()
		start := time.Now()
		whole := request("/", strings.Repeat("x", 1000))
		head := len(whole) - 1000
		if _, err := io.WriteString(conn, whole[:head]); err != nil {
			t.Fatal(err)
		}
		dripping := drip(conn, whole[head:], bodyTime/4)
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*bodyTime {
			t.Errorf("it was waited for %v", took)
		}
		dripping.Wait()
	})
}

// A server without timeouts has none, also after a long request.
func TestWithoutTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(time.Hour)
			_, _ = io.WriteString(w, "late")
		})
		r.server.HTTP.ReadHeaderTimeout, r.server.HTTP.ReadTimeout, r.server.HTTP.IdleTimeout = 0, 0, 0
		c := r.inMemory().dial()
		defer c.Close()
		for range 3 {
			if _, body := ask(t, c, request("/", "x")); body != "late" {
				t.Errorf("the answer is %q", body)
			}
			time.Sleep(time.Hour)
		}
	})
}
