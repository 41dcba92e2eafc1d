//go:build linux

package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// purse is the manifest of an agent whose tools have the guardrails that depend on time.
const purse = `{
 "name": "Purse", "description": "Spends what it is given, and asks before it does anything large.", "kind": "mcp-tool",
 "system_prompt": "You spend the given amount of money, and explain on request what you spent it on and why.",
 "tools": [
  {"name": "spend", "description": "Spends an amount.", "input_schema": {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]},
   "action": {"type": "prompt-template", "template": "spent {amount}"}},
  {"name": "ask", "description": "Asks a person first.", "input_schema": {"type": "object", "properties": {}}, "action": {"type": "prompt-template", "template": "asked"}}
 ],
 "guardrails": {"actions": {"spend": {"max_amount": {"per_day": 100}}, "ask": {"approval": "human"}}},
 "example_prompts": ["Spend ten on tea.", "Spend ten on milk.", "Spend ten on cake."]
}`

// purse writes the manifest and returns its path.
func (h *fixture) purse() string {
	h.t.Helper()
	file := filepath.Join(h.dir, "purse", "findagent.json")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(purse), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return file
}

// waiting returns the ids of pending approvals.
func (h *fixture) waiting() (ids []string) {
	h.t.Helper()
	stdout, stderr, code := h.ambit("approvals", "list", "--json")
	var doc struct{ Approvals []struct{ ID string } }
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != 0 {
		h.t.Fatalf("ambit approvals list failed: %v: %s %s", err, stdout, stderr)
	}
	for _, a := range doc.Approvals {
		ids = append(ids, a.ID)
	}
	return ids
}

// TestKilledWhileAPersonThinks kills a process whose call waits for approval. A later approval does not
// start the call. If the same call is made again, it uses the approval. The approval works only once.
func TestKilledWhileAPersonThinks(t *testing.T) {
	h := newFixture(t, "-", 0)
	agent := h.purse()
	cmd := exec.CommandContext(t.Context(), h.binary, "call", agent, "ask")
	cmd.Env, cmd.Dir = h.env, h.dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.until("the call waits for approval", func() bool { return len(h.waiting()) == 1 })
	id := h.waiting()[0]
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the only possible error is that the process was killed
	if _, stderr, code := h.ambit("approvals", "approve", id); code != 0 {
		t.Fatal(stderr)
	}
	if list := h.decisions(); slices.Contains(list, "allow") {
		t.Errorf("the approval made the call: the journal has the decisions %v", list)
	}
	if _, stderr, code := h.ambit("call", agent, "ask"); code != 0 {
		t.Errorf("making the same call again: got exit code %d: %s", code, stderr)
	}
	if n := count(h.decisions(), "allow"); n != 1 || len(h.waiting()) != 0 {
		t.Errorf("the journal has %d allowed calls, and %d approvals are pending; want 1 and 0", n, len(h.waiting()))
	}
	if _, _, code := h.ambit("approvals", "approve", id); code == 0 {
		t.Error("a used approval could be approved again")
	}
	h.whole()
}
