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
	"github.com/ambit-run/ambit/internal/store/identity"
)

// exitsWith runs one command line and checks its exit code.
func exitsWith(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := cli.Run(t.Context(), args, strings.NewReader(""), &out, &errOut); code != want {
		t.Fatalf("%v: exit code %d, want %d: %s%s", args, code, want, out.String(), errOut.String())
	}
	return out.String(), errOut.String()
}

// remembering writes a program that answers with the text of its task, the caller, and the records in its memory. It
// returns the program's folder.
func remembering(t *testing.T, dir, name, capabilities string) string {
	t.Helper()
	folder := filepath.Join(dir, name)
	manifest := "[agent]\nid = \"" + name + "@local\"\nname = \"" + name + "\"\nversion = \"0.1.0\"\nruntime = \"python3\"\nentry = \"main.py\"\n" +
		"[capabilities]\n" + capabilities + "\n[resources]\nnetwork = \"off\"\n"
	code := `
import json, os, sys
i = json.loads(sys.stdin.readline())
file = os.environ.get('AMBIT_MEMORY')
past = None
if file:
    past = [json.loads(line)['text'].split(' ')[0] for line in open(file)]
    try:
        open(file, 'a')
        past.append('WRITABLE')
    except OSError:
        pass
print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': i['text'] + ' ' + json.dumps([i['issuer'], past])}))
`
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"agent.toml": manifest, "main.py": code} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestCapabilities dispatches tasks to two programs that require capabilities. Each program has its own memory.
func TestCapabilities(t *testing.T) {
	sandboxtest.Need(t)
	dir := t.TempDir()
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	t.Setenv("COVENANT_HOME", "")
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	one := remembering(t, dir, "one", `required = ["tool.web_search"]`+"\n"+`optional = ["memory.read", "memory.write"]`)
	two := remembering(t, dir, "two", `required = ["memory.read"]`+"\n"+`optional = ["memory.write"]`)
	me := identity.LocalName()

	out, _ := exitsWith(t, 1, "dispatch", one, "a", "--json")
	if !strings.Contains(out, `"code": "capability_missing"`) || !strings.Contains(out, "ambit grant "+me+" tool.web_search") {
		t.Errorf("%s", out)
	}
	says := func(folder, text string, past string, as ...string) {
		t.Helper()
		out, _ := exitsWith(t, 0, append([]string{"dispatch", folder, text}, as...)...)
		if !strings.HasPrefix(out, text+" [") || !strings.HasSuffix(out, ", "+past+"]\n") {
			t.Errorf("%s %s: %s", filepath.Base(folder), text, out)
		}
	}
	exitsWith(t, 0, "grant", me, "tool.web_search")
	says(one, "a", "null") // without grants for memory, the program reads and stores nothing
	exitsWith(t, 0, "grant", me, "memory.write", "memory.read", "--scope", "one@local")
	says(one, "b", "[]")
	says(one, "c", `["b"]`)
	exitsWith(t, 0, "grant", me, "memory.write", "memory.read")
	says(two, "canary", "[]") // a program does not see the memory of another agent
	says(one, "d", `["b", "c"]`)
	exitsWith(t, 0, "revoke", me, "memory.write")
	says(one, "e", `["b", "c", "d"]`)
	says(one, "f", `["b", "c", "d"]`)

	// With --as, the grants and the public key of the other principal are used.
	exitsWith(t, 1, "dispatch", one, "g", "--as", "ci@example.com")
	exitsWith(t, 0, "grant", "ci@example.com", "tool.web_search")
	says(one, "g", "null", "--as", "ci@example.com")
	out, _ = exitsWith(t, 0, "whoami", "--json")
	var who struct{ Principal, Pubkey string }
	if err := json.Unmarshal([]byte(out), &who); err != nil || who.Pubkey == "" {
		t.Fatalf("%v: %s", err, out)
	}
	out, _ = exitsWith(t, 0, "dispatch", one, "h")
	if !strings.Contains(out, `{"display": "`+me+`", "pubkey": "`+who.Pubkey+`"}`) {
		t.Errorf("%s", out)
	}
	out, _ = exitsWith(t, 0, "dispatch", one, "h", "--as", "ci@example.com")
	if !strings.Contains(out, `{"display": "ci@example.com", "pubkey": "`) || strings.Contains(out, who.Pubkey) {
		t.Errorf("%s", out)
	}
	out, _ = exitsWith(t, 0, "journal", "show", "--limit", "1", "--json")
	if !strings.Contains(out, `"principal": "ci@example.com"`) || !strings.Contains(out, `"by": "`+me+`"`) {
		t.Errorf("%s", out)
	}

	// The owner can list and purge the memory of each agent.
	out, _ = exitsWith(t, 0, "memory", "list", one)
	if strings.Count(out, "\n") != 3 || strings.Contains(out, "canary") || !strings.Contains(out, me) {
		t.Errorf("%s", out)
	}
	out, _ = exitsWith(t, 0, "memory", "search", "two@local", "canary", "--json")
	var found struct{ Records []struct{ ID, Text string } }
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Records) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if out, _ = exitsWith(t, 0, "memory", "show", "two@local", found.Records[0].ID); !strings.Contains(out, "canary [") {
		t.Errorf("%s", out)
	}
	exitsWith(t, 1, "memory", "show", "one@local", found.Records[0].ID)
	exitsWith(t, 0, "memory", "purge", "two@local", found.Records[0].ID)
	says(two, "i", "[]")
	exitsWith(t, 0, "memory", "purge", one)
	says(one, "j", "[]")
	left, err := filepath.Glob(filepath.Join(tmp, "ambit.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the temporary files %v are left (error %v), want none", left, err)
	}
}

// TestOwnersOnly checks that some verbs work only for the owner of the home. They refuse another user, even
// if this user can read the keys of the home.
func TestOwnersOnly(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "home"))
	one := remembering(t, dir, "one", "")
	exitsWith(t, 0, "why", one, "one", "--as", "ci@example.com")
	exitsWith(t, 0, "grant", "ci@example.com", "tool.a")
	root := filepath.Join(dir, "home", "keys", "root")
	if os.Geteuid() == 0 {
		if err := os.Chown(root, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	} else {
		// Replace the root key with a file that belongs to the user root.
		if err := os.Remove(root); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc/passwd", root); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"why", one, "one", "--as", "ci@example.com"},
		{"call", one, "one", "--input", `{"text":"x"}`, "--as", "ci@example.com"},
		{"dispatch", one, "x", "--as", "ci@example.com"},
		{"grant", "ci@example.com", "tool.b"},
		{"revoke", "ci@example.com", "tool.a"},
		{"memory", "list", "one@local"},
		{"memory", "purge", "one@local"},
	} {
		if _, errOut := exitsWith(t, 1, args...); !strings.Contains(errOut, "only the owner may") || !strings.Contains(errOut, "hint: run the command as the user who owns") {
			t.Errorf("%v: %s", args, errOut)
		}
	}
}
