package cli

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/serve/daemon"
)

// newJoined returns both ends of a connection of a joined client.
func newJoined(t *testing.T) (*daemon.Joined, *net.UnixConn) {
	t.Helper()
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.DialUnix("unix", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); far.Close() })
	return &daemon.Joined{UnixConn: conn, Lines: bufio.NewReader(conn)}, far
}

// If the daemon ends before it answers, the next session answers the requests that change nothing. A call is never sent
// again.
func TestRequestsOfALostSession(t *testing.T) {
	for name, tt := range map[string]struct{ sent, answer, again string }{
		"initialize": {
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, "",
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
		},
		"a list": {`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`, "", `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{}}`},
		"a call": {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`, `"code":"outcome_unknown"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, far := newJoined(t)
			var out bytes.Buffer
			b := newBridge(&out)
			in, client := io.Pipe()
			go func() {
				_, _ = io.WriteString(client, tt.sent+"\n")
				_, _ = bufio.NewReader(far).ReadString('\n')
				far.Close()
			}()
			rest, err := b.pass(t.Context(), in, conn)
			client.Close()
			if rest == nil || err != nil {
				t.Fatalf("pass returned %v, %v", rest, err)
			}
			next, _ := b.carryOn(rest)
			again, err := io.ReadAll(next)
			if err != nil || strings.TrimSpace(string(again)) != tt.again {
				t.Errorf("the next session gets %q, %v, want %q", again, err, tt.again)
			}
			if got := out.String(); (got == "") != (tt.answer == "") || !strings.Contains(got, tt.answer) {
				t.Errorf("the client got %q, want %q", got, tt.answer)
			}
		})
	}
}

func TestTooLongForTheBridge(t *testing.T) {
	conn, far := newJoined(t)
	go func() {
		_, _ = io.Copy(io.Discard, far)
		far.Close()
	}()
	var out bytes.Buffer
	rest, err := newBridge(&out).pass(t.Context(), strings.NewReader(strings.Repeat("x", maxLine+2)), conn)
	if rest != nil || err == nil || !strings.Contains(out.String(), "larger than 32 MiB") {
		t.Errorf("pass returned %v, %v; the client got %q", rest, err, out.String())
	}
}
