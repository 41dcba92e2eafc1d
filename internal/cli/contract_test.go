//go:build linux

package cli_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
)

// TestContract dispatches tasks to programs that break the contract, each in a different way. Each failure must have
// its own reason, must be journaled, and must leave no process running.
func TestContract(t *testing.T) {
	h := newProgramHome(t)
	marker := "marker-" + rand.Text()
	// This code starts a child process in a new session. Without a sandbox, the child would run for ten minutes.
	daemon := "if os.fork() == 0:\n    os.setsid()\n    os.execv('/usr/bin/python3', ['python3', '-c', 'import time; time.sleep(600)', '" + marker + "'])\n"
	for _, tt := range []struct {
		name, code, text string
		reason           string // the reason for the failure; empty if the program answers correctly
		more             string
	}{
		{name: "noline", code: "pass", reason: "no_answer"},
		{name: "twolines", code: "answer('a')\nanswer('b')", reason: "two_answers"},
		{name: "hugeline", code: "for _ in range(100): sys.stdout.write('x' * (1 << 20))", reason: "too_large"},
		{name: "badjson", code: "print('{\"intent_id\":')", reason: "bad_json"},
		{name: "otherintent", code: "i['id'] = 'x'\nanswer('a')", reason: "wrong_intent"},
		{name: "exit", code: "print('last words', file=sys.stderr)\nanswer('a')\nsys.exit(3)", reason: "exit_code"},
		{name: "flood", code: "while True: sys.stderr.write('x' * 10000 + '\\n')", reason: "too_large"},
		{name: "unread", code: "raw", text: strings.Repeat("x", 100_000), reason: "no_answer"},
		{name: "hungry", code: "b = bytearray(1 << 30)", reason: "oom", more: "memory_mb = 64"},
		{name: "slow", code: daemon + "time.sleep(600)", reason: "timed_out", more: "cpu_ms_per_task = 1500"},
		{name: "daemon", code: daemon + "print('forked', file=sys.stderr)\nanswer('gone')"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &programHome{t: t, dir: h.dir}
			h.program(tt.name, "off", tt.code, tt.more)
			if tt.code == "raw" { // the program does not read its input
				if err := os.WriteFile(filepath.Join(h.dir, "agents", tt.name, "main.py"), []byte("pass\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text := tt.text
			if text == "" {
				text = "hello"
			}
			want := 1
			if tt.reason == "" {
				want = 0
			}
			out, _ := h.dispatch(want, tt.name, text, "--json")
			if tt.reason != "" && (!strings.Contains(out, `"code": "program_failed"`) || !strings.Contains(out, `"reason": "`+tt.reason+`"`)) {
				t.Errorf("%s", out)
			}
			r := lastRecord(t)
			if r.Agent != tt.name || (r.Decision == "allow") != (tt.reason == "") || !strings.HasPrefix(r.Detail, tt.reason) {
				t.Errorf("got the journal record %+v, want one of this program with the reason for the failure", r)
			}
			if says := map[string]string{"exit": "last words\n", "daemon": "forked\n"}[tt.name]; says != "" {
				sum := sha256.Sum256([]byte(says))
				wanted := "sha256:" + hex.EncodeToString(sum[:])
				if tt.reason != "" {
					wanted += `; last line: "last words"`
				}
				if !strings.HasSuffix(r.Detail, wanted) {
					t.Errorf("got %s, want the hash of the program's stderr, and its last line if it failed", r.Detail)
				}
			}
			if left := running(t, marker); left != "" {
				t.Errorf("a process is still running: %s", left)
			}
		})
	}
}

// If a program answers with the status "error", ambit prints the whole answer and exits with 1.
func TestContractErrorStatus(t *testing.T) {
	h := newProgramHome(t)
	h.program("status", "off", "print(json.dumps({'intent_id': i['id'], 'status': 'error', 'text': 'no luck', 'sources': ['a', 'b']}))", "")
	out, _ := h.dispatch(1, "status", "hello", "--json")
	var doc struct {
		ID      string `json:"intent_id"`
		Status  string
		Text    string
		Sources []string
		Error   any
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(doc.ID) != 36 || doc.Status != "error" || doc.Text != "no luck" || len(doc.Sources) != 2 || doc.Error != nil {
		t.Errorf("got %s", out)
	}
	if r := lastRecord(t); r.Agent != "status" || r.Decision != "failed" || !r.ToolError {
		t.Errorf("got the journal record %+v, want a failed call of the program status with a tool error", r)
	}
	out, errOut := h.dispatch(1, "status", "hello")
	if out != "no luck\n" || !strings.Contains(errOut, "the tool reported an error") {
		t.Errorf("got stdout %q and stderr %q, want the program's text and a message that the tool reported an error",
			out, errOut)
	}
}

type record struct {
	Agent, Decision, Code, Detail string
	ToolError                     bool `json:"tool_error"`
}

// lastRecord returns the newest record in the journal.
func lastRecord(t *testing.T) record {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := cli.Run(t.Context(), []string{"journal", "show", "--json", "--limit", "1"}, strings.NewReader(""), &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	var doc struct{ Records []record }
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || len(doc.Records) != 1 {
		t.Fatalf("%v: %s", err, out.String())
	}
	return doc.Records[0]
}

// running finds a process that has the word in its command line. It returns the /proc file of this
// process, or "" if there is no such process.
func running(t *testing.T, word string) string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// A process can exit before its file is read.
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(word)) {
			return file
		}
	}
	return ""
}
