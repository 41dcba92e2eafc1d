package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
)

// A bundle that is an MCP server refuses calls while a required credential is missing. After the credential is
// set, ambit starts the server again with the credential.
func TestBundleNativeCredential(t *testing.T) {
	b := newBundles(t)
	const value = "tok-0123456789abcdefghij"
	dir := filepath.Join(b.home, "agents", "native")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(b.agents, "code-bundle-native"))); err != nil {
		t.Fatal(err)
	}
	change := func(name, old, with string) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s: %v", name, err)
		}
		b.file(filepath.Join("agents/native", name), strings.Replace(string(text), old, with, 1))
	}
	change("findagent.json", `"allowed_hosts": [],`, `"allowed_hosts": ["api.example.com"], "credential_slots": [{"ref": "token", "label": "Token", "env": "API_TOKEN", "allowed_hosts": ["api.example.com"], "type": "secret", "required": true}],`)
	change("server/main.mjs", "call: () => Object.entries(UNITS)", "call: () => `token of ${(process.env.API_TOKEN ?? '').length} pid ${process.pid}` || Object.entries(UNITS)")

	ctx, cancel := context.WithCancel(t.Context())
	stdin, toStdin := io.Pipe()
	fromStdout, stdout := io.Pipe()
	ended := make(chan int, 1)
	var errOut bytes.Buffer
	go func() {
		ended <- cli.Run(ctx, []string{"run", dir}, stdin, stdout, &errOut)
		stdout.Close()
	}()
	defer func() {
		cancel()
		toStdin.Close()
		go io.Copy(io.Discard, fromStdout)
		<-ended
	}()
	answers := bufio.NewScanner(fromStdout)
	id := 0
	ask := func(method, params string) string {
		id++
		if _, err := fmt.Fprintf(toStdin, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
			t.Fatal(err)
		}
		for answers.Scan() {
			if strings.Contains(answers.Text(), fmt.Sprintf(`"id":%d`, id)) {
				return answers.Text()
			}
		}
		t.Fatalf("the server sent no answer to the request %s", method)
		return ""
	}
	ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	list := `{"name":"list_units","arguments":{}}`
	if got := ask("tools/call", list); !strings.Contains(got, "credential_missing") || strings.Contains(got, "token of") {
		t.Fatalf("without the credential: %s", got)
	}
	var out bytes.Buffer
	if code := cli.Run(t.Context(), []string{"secret", "set", dir, "token"}, strings.NewReader(value), &out, &out); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	if got, want := ask("tools/call", list), fmt.Sprintf("token of %d ", len(value)); !strings.Contains(got, want) {
		t.Errorf("with the credential: got %s, want %s", got, want)
	}
}
