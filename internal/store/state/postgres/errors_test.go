package postgres

import (
	"net"
	"strings"
	"testing"
)

// A refused connection is reported once, in one line, although pgx tries with and without TLS.
func TestRefusedIsReportedOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), "postgres://u@"+addr+"/x?sslmode=prefer")
	if err == nil {
		db.Close()
		t.Fatal("Open succeeded without a server")
	}
	if n := strings.Count(err.Error(), "dial error"); n != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("the failure is reported %d times, want once in one line: %q", n, err)
	}
}
