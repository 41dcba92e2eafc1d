//go:build linux

package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The daemon reads the manifests in $COVENANT_HOME/agents when it starts, and serves the valid ones. Changes to these
// files after the start take effect at the next start.
func TestCovenantHome(t *testing.T) {
	h := newProgramHome(t)
	flat := func(name, entry string) {
		t.Helper()
		text := "[agent]\nid = \"" + name + "@local\"\nname = \"" + name + "\"\nversion = \"0.1.0\"\nruntime = \"python3\"\nentry = \"" + entry + "\"\n[resources]\nnetwork = \"off\"\n"
		if err := os.WriteFile(filepath.Join(h.dir, "agents", name+".toml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.program("first", "off", "answer('first program')")
	h.program("second", "off", "answer('second program')")
	flat("one", "first/main.py")
	if err := os.WriteFile(filepath.Join(h.dir, "agents", "bad.toml"), []byte("[agent\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	asks := func(d *process, id string, want int, says string) {
		t.Helper()
		if status, text := d.ask("POST", "/api/v1/intents", `{"agent":"`+id+`","text":"go"}`); status != want || !strings.Contains(text, says) {
			t.Errorf("%s: got %d %s, want %d and %q", id, status, text, want, says)
		}
	}
	d := startDaemon(t)
	if _, text := d.ask("GET", "/api/v1/agents", ""); !strings.Contains(text, "bad.toml:1:") {
		t.Errorf("the daemon does not report the bad manifest: %s", text)
	}
	asks(d, "one@local", http.StatusOK, "first program")
	flat("one", "second/main.py")
	flat("two", "second/main.py")
	asks(d, "one@local", http.StatusOK, "first program")
	asks(d, "two@local", http.StatusNotFound, "")
	d.stop()
	d = startDaemon(t)
	defer d.stop()
	asks(d, "one@local", http.StatusOK, "second program")
	asks(d, "two@local", http.StatusOK, "second program")
}
