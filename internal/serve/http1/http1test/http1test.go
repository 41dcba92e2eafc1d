// Package http1test serves handlers in tests with the daemon's own server loop.
package http1test

import (
	"net"
	"net/http"
	"testing"

	"github.com/ambit-run/ambit/internal/serve/http1"
)

// Serve serves a handler on loopback until the test ends, and returns its URL.
func Serve(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := http1.New(&http.Server{Handler: h})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + l.Addr().String()
}
