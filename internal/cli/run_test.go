package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/test/output"
)

// unpack writes the files of a script in testdata into a temporary folder.
func unpack(t *testing.T, script string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", script))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range archive.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A signal ends ambit run, even if the client keeps standard input open.
func TestRunEndsWithItsContext(t *testing.T) {
	dir := unpack(t, "run.txtar")
	t.Chdir(dir)
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	in, client := io.Pipe()
	answers, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	var log output.Buffer // a server can still write for a moment after ambit has exited
	go func() {
		code <- cli.Run(ctx, []string{"run", "agent.json"}, in, out, &log)
		out.Close()
	}()
	if _, err := io.WriteString(client, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil || line != `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d, want 0: %s", got, log.String())
	}
	client.Close()
}

// Over HTTP, a client needs the key of this run. The key file is removed at the end of the run.
func TestRunOverHTTP(t *testing.T) {
	dir := unpack(t, "run.txtar")
	t.Chdir(dir)
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	stdout, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	var log output.Buffer // a server can still write for a moment after ambit has exited
	go func() {
		code <- cli.Run(ctx, []string{"run", "agent.json", "--http", "127.0.0.1:0", "--json"}, strings.NewReader(""), out, &log)
		out.Close()
	}()
	var ready struct {
		URL     string `json:"url"`
		KeyFile string `json:"key_file"`
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &ready) != nil {
		t.Fatalf("got %q, %v", line, err)
	}
	key, err := os.ReadFile(ready.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(ready.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file has the mode %v, %v; want 0600", info.Mode(), err)
	}
	post := func(authorization string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, ready.URL,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", authorization)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	secret := strings.TrimSpace(string(key))
	if status, body := post("Bearer " + secret); status != 200 || !strings.Contains(body, `"name":"ambit/demo"`) {
		t.Errorf("with the key: got the status %d, want 200 and the name of the agent: %s", status, body)
	}
	for _, wrong := range []string{"", "Bearer ", "Bearer x" + secret, secret} {
		if status, _ := post(wrong); status != http.StatusUnauthorized {
			t.Errorf("with a wrong key: got the status %d, want 401", status)
		}
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
	if _, err := os.Stat(ready.KeyFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key file still exists: %v", err)
	}
	if strings.Contains(log.String(), secret) {
		t.Error("the key is in the log")
	}
}
