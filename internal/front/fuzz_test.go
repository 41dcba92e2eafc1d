package front

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzServeStdio says anything at all. Every answer is one line of JSON-RPC, and
// no line gets more than one answer and a call's notifications.
func FuzzServeStdio(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		script, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(script)) {
			if after, ok := strings.CutPrefix(line, "> "); ok {
				f.Add([]byte(after))
			}
		}
	}
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n\n\xff\xfe{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}\n"))
	f.Fuzz(func(t *testing.T, input []byte) {
		release := make(chan struct{})
		close(release)
		a := testAgent(t, &stage{began: make(chan string, 1+bytes.Count(input, []byte("\n"))), release: release})
		var out bytes.Buffer
		if err := ServeStdio(t.Context(), a, "me@local", bytes.NewReader(input), &out); err != nil && err != errTooLong {
			t.Fatal(err)
		}
		answers := 0
		for line := range bytes.Lines(out.Bytes()) {
			var m map[string]json.RawMessage
			if err := json.Unmarshal(line, &m); err != nil || string(m["jsonrpc"]) != `"2.0"` || line[len(line)-1] != '\n' {
				t.Fatalf("it said %q: %v", line, err)
			}
			_, isResult := m["result"]
			_, isError := m["error"]
			if m["method"] != nil {
				continue
			}
			if answers++; m["id"] == nil || isResult == isError {
				t.Fatalf("it said %q", line)
			}
		}
		if lines := 1 + bytes.Count(input, []byte("\n")); answers > lines {
			t.Fatalf("%d answers to %d lines", answers, lines)
		}
	})
}
