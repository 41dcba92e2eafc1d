package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// upstream is the script command "upstream LOG FILE…". Until the end of the script, it runs a plain HTTP server on
// this machine. In each FILE, it replaces PORT with the port of the server. The server appends every request to LOG.
// Its answer contains the host and the URL of the request.
func upstream(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: upstream LOG FILE...")
	}
	log, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		host, _, _ := strings.Cut(r.Host, ":")
		fmt.Fprintf(log, "%s %s%s %s\n", r.Method, host, r.URL, r.Header.Get("Authorization"))
		fmt.Fprintf(w, "%s asked for %s", host, r.URL)
	}))
	ts.Defer(func() {
		server.Close()
		log.Close()
	})
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	ts.Setenv("PORT", port)
	for _, file := range args[1:] {
		text := strings.ReplaceAll(ts.ReadFile(file), "PORT", port)
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}
