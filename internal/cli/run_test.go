package cli_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/ambit-run/ambit/internal/cli"
)

// unpack writes the files of a transcript into a folder of the test's own.
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

// A signal ends run although the client keeps its end of the input open.
func TestRunEndsWithItsContext(t *testing.T) {
	dir := unpack(t, "run.txtar")
	t.Chdir(dir)
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	in, client := io.Pipe()
	answers, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	var log strings.Builder
	go func() {
		code <- cli.Run(ctx, []string{"run", "agent.json"}, in, out, &log)
		out.Close()
	}()
	if _, err := io.WriteString(client, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil || line != `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n" {
		t.Fatalf("it said %q, %v", line, err)
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("it ended with %d: %s", got, log.String())
	}
	client.Close()
}
