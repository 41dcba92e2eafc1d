//go:build linux

package faults

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServerIsThereLater covers a tool server that cannot start when the daemon starts. The agent is listed
// with the reason, and its calls are refused. The agent recovers without help when the server is available.
func TestServerIsThereLater(t *testing.T) {
	h := newFixture(t, "-", 0)
	program := filepath.Join(h.dir, "not-there-yet")
	h.declare(map[string]any{
		"transport": "stdio", "command": program, "args": []string{effector, h.effects, h.gate}, "package_digest": "sha256:" + strings.Repeat("0", 64),
	}, 0)
	d := h.serve()
	state := func() (state, why string) {
		t.Helper()
		a, err := d.send("GET", "/api/v1/agents", "")
		var doc struct {
			Agents []struct{ State, Error string }
		}
		if err == nil {
			err = json.Unmarshal([]byte(a.text), &doc)
		}
		if err != nil || len(doc.Agents) != 1 {
			t.Fatalf("listing the agents: got %s, %v", a.text, err)
		}
		return doc.Agents[0].State, doc.Agents[0].Error
	}
	if s, why := state(); s != "failed" || !strings.Contains(why, "not-there-yet") {
		t.Errorf("the agent is listed as %s: %s", s, why)
	}
	if a, err := d.pay(); err != nil || a.Error.Effect != "none" || !strings.Contains(a.Error.Message, "not-there-yet") {
		t.Errorf("calling without the server: got %+v, %v", a, err)
	}
	if err := os.Symlink(os.Args[0], program); err != nil {
		t.Fatal(err)
	}
	h.until("the agent is ready", func() bool { s, _ := state(); return s == "ready" })
	if a, err := d.pay(); err != nil || a.status != 200 {
		t.Errorf("calling with the server: got %+v, %v", a, err)
	}
	if n := h.done(); n != 1 {
		t.Errorf("there were %d effects, want 1", n)
	}
	h.whole()
}
