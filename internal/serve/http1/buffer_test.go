package http1

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// Large buffers are released after a large response, both while its stream is open and after its
// end.
func TestBuffersAreReleased(t *testing.T) {
	large := strings.Repeat("x", maxHeld)
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
	}{
		{"at once", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) }},
		{"a stream", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, large)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, large)
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t, c.h)
				client := r.dial()
				defer client.Close()
				synctest.Wait() // until it is served
				var served []*conn
				for c := range r.server.conns {
					served = append(served, c)
				}
				if len(served) != 1 {
					t.Fatalf("%d connections are served", len(served))
				}
				go func() { _, _ = io.WriteString(client, request("/", "abc")) }()
				go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(client)) }()
				synctest.Wait()
				if held, out := cap(served[0].held), cap(served[0].out); held > maxKept || out > maxKept {
					t.Errorf("%d and %d bytes are kept", held, out)
				}
			})
		})
	}
}
