package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

// TestDispatch finds programs by id, by name and by path, and gives them tasks.
func TestDispatch(t *testing.T) {
	sandboxtest.Need(t)
	dir := t.TempDir()
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	t.Setenv("COVENANT_HOME", dir)
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	manifest := func(name, entry string) string {
		return "[agent]\nid = \"" + name + "@local\"\nname = \"" + name + "\"\nversion = \"0.1.0\"\nruntime = \"python3\"\nentry = \"" + entry + "\"\n[resources]\nnetwork = \"off\"\n"
	}
	write("agents/flat.toml", manifest("flat", "bin/flat.py"))
	write("agents/bin/flat.py", `
import json, sys
i = json.loads(sys.stdin.readline())
print('thinking', file=sys.stderr)
print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': ' '.join([i['text'], i['priority'], str(i['parent']), i['issuer']['display'], str(len(i['issuer']['pubkey']))]), 'sources': ['s']}))
`)
	write("mute/agent.toml", manifest("mute", "main.py"))
	write("mute/main.py", "")
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := cli.Run(t.Context(), append([]string{"dispatch"}, args...), strings.NewReader(""), &out, &errOut); code != want {
			t.Fatalf("%v: exit code %d, want %d: %s%s", args, code, want, out.String(), errOut.String())
		}
		return out.String(), errOut.String()
	}
	out, errOut := run(0, "flat@local", "hello")
	if !strings.HasPrefix(out, "hello normal None ") || !strings.HasSuffix(out, "@local 44\n") || !strings.Contains(errOut, "[flat] thinking") {
		t.Errorf("ambit dispatch printed stdout %q and stderr %q, want the answer and the program's stderr",
			out, errOut)
	}
	parent := "01234567-89ab-cdef-0123-456789abcdef"
	out, _ = run(0, "flat", "hello", "--json", "--priority", "high", "--parent", parent)
	var doc struct {
		IntentID string `json:"intent_id"`
		Status   string
		Text     string
		Sources  []string
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.IntentID) != 36 || doc.Status != "ok" || len(doc.Sources) != 1 || !strings.HasPrefix(doc.Text, "hello high "+parent) {
		t.Errorf("%v: %s", err, out)
	}
	out, _ = run(1, filepath.Join(dir, "mute"), "hello", "--json")
	if !strings.Contains(out, `"code": "program_failed"`) || !strings.Contains(out, "no_answer: ") {
		t.Error(out)
	}
}
