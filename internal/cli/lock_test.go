package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
)

// TestInterruptedProof interrupts verbs while a server is starting. The verbs must not report a result about the
// server, and must not write anything.
func TestInterruptedProof(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dir := t.TempDir()
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	// The server starts and connects to the listener, but never answers a request. A confined server could not connect.
	write("server.mjs", fmt.Sprintf("import { connect } from 'node:net'\nconnect(%d, '127.0.0.1')\n", l.Addr().(*net.TCPAddr).Port))
	const text = `{"schema_version": 1, "agent": "matrix://agent/notes", "allowed_side_effects": ["read"], "servers": [
  {"alias": "s", "transport": "stdio", "command": "node", "args": ["server.mjs"],
   "package_digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000", "version": "1.0.0",
   "tools": [{"name": "read", "side_effect_class": "read"}]}]}`
	notes := write("notes.json", text)
	locked := "interrupted; nothing was locked: " + notes + " is unchanged"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"lock", notes, "--unconfined", "s"}, locked},
		{[]string{"lock", notes, "--unconfined", "s", "--json"}, locked},
		{[]string{"verify", notes, "--unconfined", "s"}, "interrupted; no server was verified"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			go func() {
				if c, err := l.Accept(); err == nil {
					interrupt()
					c.Close()
				}
			}()
			var out, errOut bytes.Buffer
			code := cli.Run(ctx, tt.args, strings.NewReader(""), &out, &errOut)
			all := out.String() + errOut.String()
			if code != 130 || !strings.Contains(all, tt.want) || strings.Contains(all, "canceled") {
				t.Errorf("exit code %d: %s", code, all)
			}
			if now, err := os.ReadFile(notes); err != nil || string(now) != text {
				t.Errorf("the manifest was changed to %s, %v", now, err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "ambit.lock")); err == nil {
		t.Error("ambit.lock was written")
	}

	// Interrupt the verbs before they begin. Use a GPARS agent, because ambit looks up its servers
	// by id.
	needs := filepath.Join("..", "..", "agents", "examples", "gpars-researcher.json")
	for verb, want := range map[string]string{"lock": "interrupted; nothing was locked", "verify": "interrupted; no server was verified"} {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		var out bytes.Buffer
		if code := cli.Run(ctx, []string{verb, needs}, strings.NewReader(""), &out, &out); code != 130 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d: %s", verb, code, out.String())
		}
	}
}
