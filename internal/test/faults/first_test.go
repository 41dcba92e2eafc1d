//go:build linux

package faults

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServerIsThereLater covers a server that cannot start when the daemon does. The agent is listed with the reason, its
// calls are refused, and it recovers by itself when the server is available.
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
			t.Fatalf("%s, %v", a.text, err)
		}
		return doc.Agents[0].State, doc.Agents[0].Error
	}
	if s, why := state(); s != "failed" || !strings.Contains(why, "not-there-yet") {
		t.Errorf("it is listed as %s: %s", s, why)
	}
	if a, err := d.pay(); err != nil || a.Error.Effect != "none" || !strings.Contains(a.Error.Message, "not-there-yet") {
		t.Errorf("a call: %+v, %v", a, err)
	}
	if err := os.Symlink(os.Args[0], program); err != nil {
		t.Fatal(err)
	}
	h.until("it is ready", func() bool { s, _ := state(); return s == "ready" })
	if a, err := d.pay(); err != nil || a.status != 200 {
		t.Errorf("with the server available: %+v, %v", a, err)
	}
	if n := h.done(); n != 1 {
		t.Errorf("%d effects", n)
	}
	h.whole()
}
