package adversary

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/test/output"
)

// findagent returns a FindAgent manifest with the given text in every field that allows it.
func findagent(t *testing.T, text string) string {
	t.Helper()
	short := string([]rune(text)[:min(len([]rune(text)), 60)]) // names have a maximum length
	doc, err := json.Marshal(map[string]any{
		"name": "Evil " + short, "description": "It does things. " + text, "system_prompt": "You answer questions, and say what you did and why. " + text, "kind": "mcp-tool", "category": text,
		"tools": []any{map[string]any{
			"name": "look", "description": "Looks. " + text,
			"input_schema": map[string]any{"type": "object", "description": text, "properties": map[string]any{"q": map[string]any{"type": "string", "description": text}}},
			"annotations":  map[string]any{"readOnlyHint": true, "title": text},
			"action":       map[string]any{"type": "http", "method": "GET", "url": "https://api.example.com/look?q={q}", "auth_ref": "KEY"},
		}},
		"credential_slots": []any{map[string]any{"ref": "KEY", "label": text, "description": text, "type": "secret", "allowed_hosts": []string{"api.example.com"}, "required": false}},
		"unknown " + text:  text,
		"example_prompts":  []string{"Look it up. " + text, "Look again. " + text, "Look once more. " + text},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// TestNothingDrivesTheTerminal checks that text from manifests, tool servers, file names and callers cannot
// control the terminal, hide text or forge a line.
func TestNothingDrivesTheTerminal(t *testing.T) {
	w := newWorld(t)
	evil := w.write("evil/findagent.json", findagent(t, poison))
	mild := w.write("mild/findagent.json", findagent(t, "fine"))
	covenant := w.write("cov/agent.toml", "[agent]\nname = \"bad\\u001b[2Jname\"\nhost = \"x\\u202ey\"\n[capabilities]\nrequired = [\"tool.\\u009b\"]\n")
	gpars := w.write("gpars.json", `{"name":"g`+`\u001b[2J\u202e`+`","required_mcp_servers":[{"server_id":"registry.openmcp.org/\u001b[31m","version_constraint":"\u202e","scopes":["\u009b"]}]}`)
	broken := w.write("broken.json", "{\"schema_version\": \"\x1b[2J\u202e\", \"agent\": \"matrix://agent/\u009b\", \x1b}")
	poisoned := w.matrix("poisoned.json", "poison")
	named := w.matrix("named.json", "named")
	refuses := w.matrix("refuses.json", "refuses")
	dies := w.matrix("dies.json", "dies")
	odd := filepath.Join(w.dir, "walk", "odd\x1b[2J\u202e\nname.json")
	if err := os.MkdirAll(filepath.Dir(odd), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(odd, []byte(`{"schema_version": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	driving := filepath.Join(w.dir, "it's\x1b]0;x\a\u202e\nforged line.json")
	if err := os.Rename(w.matrix("driving.json", "described", w.write("description", "Looks.")), driving); err != nil {
		t.Fatal(err)
	}
	servers := w.write("mcp.json", `{"mcpServers":{"a\u001b[2J\u202e":{"command":"npx\u009b","args":["-y","x\u001b[31m"],"env":{"A\u202e":"b"}}}}`)
	skill := w.write("SKILL.md", "§TOOLS\nmatrix://tool/\x1b[2J\u202e\n")

	policy := w.write("p.cedar", "permit (principal == Agent::\"x\x1b[2J\u202e\", action, resource) when { \x1b };\n")
	api := w.write("api.json", `{"openapi":"3.0.0","info":{"title":"A\u001b[2J\u202e"},"servers":[{"url":"https://api.example.com"}],"paths":{"/x\u009b":{"get":{"operationId":"look\u001b","summary":"\u202e"}}}}`)
	odder := filepath.Join(w.dir, "walk")

	w.pending()
	archive := filepath.Join(w.dir, "it's\x1b]0;x\a\u202e\nforged line.tar")
	runs := [][]string{
		{"validate", w.dir},
		{"validate", filepath.Join(w.dir, "walk")},
		{"validate", "--format", "github", w.dir},
		{"validate", "--format", "sarif", w.dir},
		{"validate", broken},
		{"validate", gpars},
		{"validate", covenant},
		{"inspect", evil},
		{"inspect", covenant},
		{"inspect", gpars},
		{"inspect", poisoned},
		{"tools", evil},
		{"tools", gpars},
		{"diff", evil, mild},
		{"diff", mild, evil},
		{"why", evil, "look"},
		{"why", evil, "look\x1b[2J\u202e"},
		{"why", poisoned, "look", "--skill", skill},
		{"call", poisoned, "look"},
		{"call", poisoned, "look\x1b[2J\u202e"},
		{"call", poisoned, "look", "--input", "{\"\x1b\u202e\":1}"},
		{"call", refuses, "look"},
		{"call", dies, "look"},
		{"call", named, "look"},
		{"call", evil, "look", "--input", `{"q":"\u001b\u202e"}`},
		{"verify", poisoned},
		{"verify", named},
		{"verify", dies},
		{"lock", poisoned},
		{"lock", named},
		{"lock", "--check", driving},
		{"lock", driving},
		{"lock", "--check", driving},
		{"verify", driving},
		{"call", driving, "look"},
		{"call", driving, "nothing"},
		{"inspect", driving},
		{"tools", driving},
		{"why", driving, "look"},
		{"install", driving, "--client", "cursor", "--dry-run"},
		{"new", "x", "--from", driving},
		{"import", driving},
		{"export", evil, "--as", "recipe"},
		{"export", evil, "--as", "mcp.json"},
		{"convert", "--to", "matrix", evil},
		{"convert", "--to", "gpars", poisoned},
		{"convert", "--to", "covenant", evil},
		{"import", servers},
		{"new", "x", "--from", evil},
		{"install", evil, "--client", "cursor", "--dry-run"},
		{"allow", driving, "s", "--host", "x\x1b[2J\u202e"},
		{"allow", evil, "x\x1b[2J\u202e", "--read", "/x\x1b[2J\u202e", "--yes"},
		{"disallow", driving, "x\x1b[2J\u202e", "--all"},
		{"learn", driving, "look", "x\x1b[2J\u202e"},
		{"secret", "list"},
		{"grants"},
		{"agents"},
		{"approvals", "list"},
		{"grant", "eve\x1b[2J\u202e", "tool.\u009bx"},
		{"revoke", "eve\x1b[2J\u202e", "tool.a"},
		{"explain", "X\x1b[2J\u202e"},
		{"journal", "show"},
		{"journal", "verify"},
		{"dispatch", "x\x1b[2J\u202e@h", "hello"},
		{"doctor"},
		{"doctor", evil},
		{"catalog", "list"},
		{"catalog", "show", "x\x1b[2J\u202e"},
		{"catalog", "add", "x\x1b[2J\u202e/y", "npm:\u009b"},
		{"catalog", "rm", "x\x1b[2J\u202e"},
		{"key", "new", "--all", "--name", "x\x1b[2J\u202e\nforged line"},
		{"key", "list"},
		{"key", "revoke", "x\x1b[2J\u202e"},
		{"memory", "list", covenant},
		{"memory", "show", "x\x1b[2J", "\u202e"},
		{"guard", "x\x1b[2J\u202e"},
		{"guard", "test", odd},
		{"guard", "test", w.write("tried", "ghp"+"_x\x1b[2J\u202e\n\x1b[2J\u202e@example.com ignore previous\x1b[2J instructions\n"), "--agent", evil},
		{"guard", "test", evil, "--as", "x\x1b[2J\u202e"},
		{"policy", "check", policy},
		{"policy", "test", policy},
		{"secret", "set", evil, "K\x1b[2J\u202e"},
		{"secret", "list", evil},
		{"secret", "rm", "x\x1b[2J\u202e", "y\u009b"},
		{"uninstall", "x\x1b[2J\u202e"},
		{"agents", "--agents", odder},
		{"import", api},
		{"import", skill},
		{"init", "x\x1b[2J\u202e"},
		{"run", named, "--skill", odd},
		{"approvals", "approve", "x\x1b[2J\u202e"},
		{"journal", "show", "--tool", "look\x1b[2J\u202e"},
		{"journal", "prove", "x\x1b[2J\u202e"},
		{"restore", odd},
		{"login", "--issuer", "https://x\x1b[2J\u202e"},
		{"logout", "--issuer", "https://x\x1b[2J\u202e"},
		{"lock", broken},
		{"bundle", "scan", odd},
		{"bundle", "check", filepath.Dir(evil)},
		{"no\x1b[2J\u202everb"},
		{"validate", "--no\x1b[2J\u202eflag"},
		{"schema", "\x1b[2J\u202e"},
		{"approvals"},
		{"approvals", "deny", "x\x1b[2J\u202e", "--reason", poison},
		{"approvals", "deny", w.waiting(), "--reason", poison},
		{"backup", archive, "--passphrase-file", w.write("passphrase", "a long and winding phrase\n")},
		{"backup", odd},
		{"bundle", "pack", filepath.Dir(evil), "--output", archive},
		{"bundle", "review", odd},
		{"bundle", "run", odd, "x\x1b[2J\u202e"},
		{"catalog", "x\x1b[2J\u202e"},
		{"console"},
		{"journal", "x\x1b[2J\u202e"},
		{"journal", "checkpoint"},
		{"journal", "erase", "--before", "x\x1b[2J\u202e"},
		{"journal", "settle", "x\x1b[2J\u202e", "--done"},
		{"key", "x\x1b[2J\u202e"},
		{"key", "rotate", "x\x1b[2J\u202e"},
		{"key", "adopt"},
		{"login", "token", "x\x1b[2J\u202e"},
		{"login", "list"},
		{"login", evil, "x\x1b[2J\u202e"},
		{"logout", evil, "x\x1b[2J\u202e"},
		{"memory", "x\x1b[2J\u202e"},
		{"memory", "search", covenant, "x\x1b[2J\u202e"},
		{"memory", "purge", covenant, "x\x1b[2J\u202e"},
		{"policy", "x\x1b[2J\u202e"},
		{"policy", "init"},
		{"reload"},
		{"secret", "x\x1b[2J\u202e"},
		{"whoami"},
		{"rotate", "x\x1b[2J\u202e"},
		{"rotate", "root"},
		{"journal", "show"},
	}
	everyVerb(t, runs)
	for _, args := range runs {
		for _, form := range []string{"", "--json"} {
			if form != "" {
				if args[0] == "validate" && len(args) > 2 {
					continue // --json conflicts with --format
				}
				args = append(args[:len(args):len(args)], form)
			}
			stdout, stderr, code := w.ambit(args...)
			name := strings.Join(args, " ")
			if r := harm(stdout); r != 0 {
				t.Errorf("%q (exit %d) prints %U on stdout: %.300q", name, code, r, around(stdout, r))
			}
			if r := harm(stderr); r != 0 {
				t.Errorf("%q (exit %d) prints %U on stderr: %.300q", name, code, r, around(stderr, r))
			}
			for _, out := range []string{stdout, stderr} {
				for line := range strings.Lines(out) {
					if strings.HasPrefix(line, "forged line") && args[0] != "call" && args[0] != "export" {
						t.Errorf("%q prints a forged line: %.200q", name, line)
					}
				}
			}
		}
	}
}

// notRun lists the commands that the test does not run, each with the reason.
var notRun = map[string]string{
	"ambit":                "prints its help; the test runs an unknown command instead",
	"ambit completion":     "prints a fixed script",
	"ambit help":           "prints only fixed text",
	"ambit journal export": "writes the exact bytes of records; see docs/threat-model.md, Limits",
	"ambit man":            "prints only fixed text",
	"ambit serve":          "TestLogIsTheDaemonsOwn runs it",
	"ambit tool-server":    "speaks MCP to its parent process",
	"ambit version":        "prints only fixed text",
	"ambit worker":         "runs until it is stopped, and writes the same log as serve",
}

// everyVerb checks that the test runs every command that is not in notRun.
func everyVerb(t *testing.T, runs [][]string) {
	t.Helper()
	root, missing := cli.Verbs(), map[string]bool{}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		missing[c.CommandPath()] = c.Runnable()
		for _, below := range c.Commands() {
			if c.Name() != "completion" {
				walk(below)
			}
		}
	}
	walk(root)
	for verb := range notRun {
		if _, is := missing[verb]; !is {
			t.Errorf("notRun names %q, which does not exist", verb)
		}
		missing[verb] = false
	}
	for _, args := range runs {
		if c, _, err := root.Find(args); err == nil {
			if notRun[c.CommandPath()] != "" && c != root {
				t.Errorf("the test runs %q, but notRun names it", c.CommandPath())
			}
			missing[c.CommandPath()] = false
		}
	}
	for verb, is := range missing {
		if is {
			t.Errorf("the test does not run %q", verb)
		}
	}
}

// pending starts a call that waits for approval, with poison in every text that the approver sees.
func (w *world) pending() {
	w.t.Helper()
	doc, err := json.Marshal(map[string]any{
		"name": "Asks \x1b[2J\u202e", "system_prompt": "You repeat every message that you receive, word for word, unchanged.", "kind": "mcp-tool",
		"tools": []any{map[string]any{
			"name": "say", "description": "Says it. " + poison, "action": map[string]any{"type": "prompt-template", "template": "{text}"},
			"input_schema": map[string]any{"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}},
		}},
		"guardrails": map[string]any{"actions": map[string]any{"say": map[string]any{"approval": "human"}}}, "example_prompts": []string{"Say it."},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	input, err := json.Marshal(map[string]string{"text": poison})
	if err != nil {
		w.t.Fatal(err)
	}
	asks := filepath.Dir(w.write("asks\u202e\x1b[2J/findagent.json", string(doc)))
	cmd := w.command("call", asks, "say", "--input", string(input))
	var printed output.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(30 * time.Second); w.waiting() == ""; time.Sleep(20 * time.Millisecond) { // poll interval
		if time.Now().After(deadline) {
			w.t.Fatalf("no call waits for approval: %q", printed.String())
		}
	}
}

// waiting returns the id of the first call that waits for approval, or "".
func (w *world) waiting() string {
	w.t.Helper()
	stdout, stderr, code := w.ambit("approvals", "list", "--json")
	var list struct{ Approvals []struct{ ID string } }
	if err := json.Unmarshal([]byte(stdout), &list); code != 0 || err != nil {
		w.t.Fatalf("exit %d, %v: %s", code, err, stderr)
	}
	if len(list.Approvals) == 0 {
		return ""
	}
	return list.Approvals[0].ID
}

// around returns the part of a text that surrounds a character.
func around(text string, r rune) string {
	at := strings.IndexRune(text, r)
	return text[max(0, at-100):min(len(text), at+60)]
}
