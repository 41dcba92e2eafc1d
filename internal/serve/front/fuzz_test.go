package front

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzServeStdio sends arbitrary lines. Every line of output must be a JSON-RPC message. There must
// not be more answers than lines of input.
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
				t.Fatalf("the output line %q is not a JSON-RPC message: %v", line, err)
			}
			_, isResult := m["result"]
			_, isError := m["error"]
			if m["method"] != nil {
				continue
			}
			if answers++; m["id"] == nil || isResult == isError {
				t.Fatalf("the answer %q has no id, or not exactly one of result and error", line)
			}
		}
		if lines := 1 + bytes.Count(input, []byte("\n")); answers > lines {
			t.Fatalf("got %d answers to %d lines", answers, lines)
		}
	})
}

// FuzzHTTP posts arbitrary requests. Every answer must have an expected status. Every JSON body and
// every event must be valid JSON.
func FuzzHTTP(f *testing.F) {
	keys, err := testKeys()
	if err != nil {
		f.Fatal(err)
	}
	release := make(chan struct{})
	close(release)
	a := testAgent(f, &stage{began: make(chan string, 1<<20), release: release})
	a.Keys = testKeys
	face := NewHTTP(a, HTTPOptions{Keys: keys})
	post := func(ctx context.Context, body []byte, headers ...headerLine) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for _, h := range headers {
			r.Header.Set(h.name, h.value)
		}
		w := httptest.NewRecorder()
		face.Serve(w, r, "me", nil)
		return w
	}
	session := post(f.Context(), []byte(hello)).Header().Get("Mcp-Session-Id")
	f.Add([]byte(hello), "", "", "", "", "application/json")
	f.Add([]byte(calls(1, "read", `{}`)), "2025-11-25", "", "", session, "text/event-stream")
	f.Add([]byte(newer("tools/call", `"name":"read","arguments":{}`)), newerRevision, "tools/call", "=?base64?cmVhZA==?=", "", "*/*")
	f.Add([]byte(newer("subscriptions/listen", `"notifications":{"toolsListChanged":true}`)), newerRevision, "subscriptions/listen", "", "", "text/event-stream")
	f.Add([]byte(newer("tools/call", `"name":"ask","requestState":"x","inputResponses":{}`)), newerRevision, "tools/call", "ask", "", "")
	f.Fuzz(func(t *testing.T, body []byte, version, method, name, id, accept string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if method == "subscriptions/listen" {
			cancel() // such a stream would never end
		}
		w := post(ctx, body, headerLine{"Mcp-Protocol-Version", version}, headerLine{"Mcp-Method", method}, headerLine{"Mcp-Name", name}, headerLine{"Mcp-Session-Id", id}, headerLine{"Accept", accept})
		switch w.Code {
		case 200, 202, 400, 404, 406:
		default:
			t.Errorf("got the unexpected status %d", w.Code)
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("the body is not valid JSON: %s", w.Body)
		}
		for _, message := range events(w.Body.String()) {
			if !json.Valid([]byte(message)) {
				t.Errorf("the event is not valid JSON: %s", message)
			}
		}
	})
}
