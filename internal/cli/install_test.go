package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

// TestInstalledProgram installs a program and calls it by its name. If the test runs as root, the program runs as
// another user. This user must be able to read the installed copy.
func TestInstalledProgram(t *testing.T) {
	sandboxtest.Need(t)
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	run := func(args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := cli.Run(t.Context(), args, strings.NewReader(""), &out, &errOut); code != 0 {
			t.Fatalf("%v: exit code %d: %s%s", args, code, out.String(), errOut.String())
		}
		return out.String()
	}
	run("new", "counter", "--from", "wordcount", "-o", filepath.Join(dir, "counter", "agent.toml"))
	run("install", filepath.Join(dir, "counter"), "--client", "cursor", "--yes")
	if out := run("call", "counter", "counter", "--input", `{"text": "a b"}`); !strings.HasPrefix(out, "2 words,") {
		t.Error(out)
	}
	info, err := os.Stat(filepath.Join(dir, "home", "agents"))
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("other users can look into the agents folder, or Stat failed: %v, %v", info, err)
	}
}
