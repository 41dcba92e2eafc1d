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

// writerFunc calls a function with everything that is written.
type writerFunc func(text string)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

// TestInstallWhileFilesChange changes the files of an agent after ambit has read them and before it installs them, as
// another program can do while the user reads the questions.
func TestInstallWhileFilesChange(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	original := map[string]string{}
	for _, name := range []string{"default.json", "ambit.lock"} {
		text, err := os.ReadFile(filepath.Join("../../agents", name))
		if err != nil {
			t.Fatal(err)
		}
		original[name] = string(text)
	}
	write := func(change func(string) string) {
		for name, text := range original {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(change(text)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	install := func(errOut writerFunc) {
		var out bytes.Buffer
		args := []string{"install", filepath.Join(dir, "default.json"), "--client", "cursor", "--yes", "--offline"}
		if code := cli.Run(t.Context(), args, strings.NewReader(""), &out, errOut); code != 0 {
			t.Fatalf("exit code %d: %s", code, out.String())
		}
	}
	for _, update := range []bool{false, true} {
		write(func(text string) string { return text })
		changed := false
		install(func(text string) {
			if strings.Contains(text, "cursor: ") && !changed { // the client is not found; nothing is installed yet
				changed = true
				write(func(text string) string { return strings.ReplaceAll(text, "2025-11-25", "2024-11-05") + " " })
			}
		})
		if !changed {
			t.Fatal("the files were not changed")
		}
		for name, want := range original {
			text, err := os.ReadFile(filepath.Join(dir, "home", "agents", "default", name))
			if err != nil || string(text) != want {
				t.Errorf("update %v: %s is not as it was when ambit read it: %v", update, name, err)
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, ".cursor")); err != nil {
			t.Fatal(err)
		}
	}
}
