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

// upstream starts a plain http server on this machine for the rest of a script,
// and writes its port in place of PORT in some files: upstream LOG FILE…. What
// it is asked is appended to LOG, and it answers with what it was asked.
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
