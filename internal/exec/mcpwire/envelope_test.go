package mcpwire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

func TestOpen(t *testing.T) {
	for in, want := range map[string]struct {
		kind    kind
		problem string
	}{
		`{"jsonrpc":"2.0","id":1,"result":null}`:                     {kind: kindResponse},
		`{"jsonrpc":"2.0","\u0069d":"x","result":[]}`:                {kind: kindResponse},
		`{"jsonrpc":"2.0","id":1,"error":{}}`:                        {kind: kindResponse},
		`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`:          {kind: kindResponse},
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{}}`:          {kind: kindResponse},
		`{"jsonrpc":"2.0","id":null,"error":{}}`:                     {kind: kindOrphan},
		`{"jsonrpc":"2.0","error":{}}`:                               {kind: kindOrphan},
		`{"jsonrpc":"2.0","id":-1,"method":"x"}`:                     {kind: kindRequest},
		`{"jsonrpc":"2.0","method":"\u0078","params":[1],"extra":1}`: {kind: kindNotification},
		`{"jsonrpc":"2.0","id":1}`:                                   {problem: "neither"},
		`{"jsonrpc":"2.0","id":1,"error":"x"}`:                       {problem: "neither"},
		`{"jsonrpc":"2.0","id":{},"result":1}`:                       {problem: "neither"},
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`:            {problem: "at once"},
		`{"jsonrpc":"2.0","id":1,"method":"x","result":1}`:           {problem: "at once"},
		`{"jsonrpc":"2.0","id":null,"method":"x"}`:                   {problem: "neither a string"},
		`{"jsonrpc":"2.0","id":1,"method":1}`:                        {problem: "not a string"},
		`{"jsonrpc":"2.0","id":1,"id":2,"result":1}`:                 {problem: "twice"},
		`{"jsonrpc":"1.0","id":1,"result":1}`:                        {problem: "jsonrpc"},
		`{"id":1,"result":1}`:                                        {problem: "jsonrpc"},
		`{"jsonrpc":"2.0","id":1,"result":1} x`:                      {problem: "after the end"},
		`[]`:                                                         {problem: "object"},
		``:                                                           {problem: "object"},
		`{"jsonrpc":"2.0","id":1,"result":`:                          {problem: "ends"},
	} {
		e, _, problem := readEnvelope([]byte(in))
		if problem == "" && e.kind != want.kind || (problem == "") != (want.problem == "") || !strings.Contains(problem, want.problem) {
			t.Errorf("open(%s) = %d, %q; want %d, %q", in, e.kind, problem, want.kind, want.problem)
		}
	}
}

func TestOpenAllocatesNothing(t *testing.T) {
	msg := []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"hello"}],"_meta":{"a":1}}}`)
	if n := testing.AllocsPerRun(100, func() {
		if _, _, problem := readEnvelope(msg); problem != "" {
			t.Fatal(problem)
		}
	}); n != 0 {
		t.Errorf("open allocates memory %v times, want 0", n)
	}
}

// FuzzOpen compares the envelope that open returns with the result of encoding/json.
func FuzzOpen(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"a":[1,-2.5e3,"x\u00e9\\"],"b":null}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ambit-1"}}`,
		` { "jsonrpc" : "2.0" , "\u0069d" : "x" , "error" : {"code":1} } `,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}",
		`{"jsonrpc":"2.0","id":1,"result":[[[[{}]]]],"unknown":true}`,
		`[{"jsonrpc":"2.0","id":1,"result":1}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		e, badText, problem := readEnvelope(msg)
		if depth(msg) > rawjson.MaxDepth {
			if problem == "" {
				t.Errorf("open accepts a message that is %d levels deep", depth(msg))
			}
			return
		}
		if got, want := rawjson.Valid(msg), json.Valid(msg) && utf8.Valid(msg); got != want {
			t.Errorf("rawjson.Valid(%q) = %v, want %v", msg, got, want)
		}
		if problem != "" {
			if e := reference(msg); e != nil {
				t.Errorf("open(%q): %s; encoding/json reads %v", msg, problem, e)
			}
			return
		}
		if badText == utf8.Valid(msg) {
			t.Errorf("open(%q) reports bad text: %v", msg, badText)
		}
		ref := reference(msg)
		if ref == nil {
			t.Fatalf("open(%q) = %+v; encoding/json does not read it", msg, e)
		}
		same := func(name string, got []byte) {
			// classify removes a result or error that is null.
			if want := ref[name]; !bytes.Equal(got, want) && !(got == nil && string(want) == "null") {
				t.Errorf("open(%q): %s is %q, want %q", msg, name, got, want)
			}
		}
		same("id", e.id)
		same("params", e.params)
		same("result", e.result)
		same("error", e.failure)
		if want := ref["method"]; !badText {
			var method string
			if want != nil {
				_ = json.Unmarshal(want, &method)
			}
			if e.method != method {
				t.Errorf("open(%q): method is %q, want %q", msg, e.method, method)
			}
		}
		if parts, problem := splitBatch(append(append([]byte("["), msg...), ']')); problem != "" || len(parts) != 1 {
			t.Errorf("batch of %q has %d messages, problem %q; want 1 message", msg, len(parts), problem)
		}
	})
}

// reference reads a message with encoding/json and returns its members. It returns nil if msg is not a valid
// JSON-RPC message.
func reference(msg []byte) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(msg))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil
	}
	m = make(map[string]json.RawMessage)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil
		}
		key := name.(string)
		if _, twice := m[key]; twice {
			switch key {
			case "jsonrpc", "id", "method", "params", "result", "error":
				return nil
			}
		}
		m[key] = value
	}
	if !json.Valid(msg) || string(m["jsonrpc"]) != `"2.0"` {
		return nil
	}
	null := func(name string) bool { return m[name] == nil || string(m[name]) == "null" }
	is := func(name, first string) bool { return m[name] != nil && strings.Contains(first, string(m[name][:1])) }
	hasID := is("id", `"-0123456789`)
	_, hasMethod := m["method"]
	_, hasResult := m["result"]
	_, hasError := m["error"]
	if hasMethod {
		if !is("method", `"`) || halfCharacter(m["method"]) || hasResult && !(null("result") && hasError && !null("error")) || hasError && !(null("error") && hasResult) {
			// A message with a method must not have a result or an error. The method must be a valid string.
			return nil
		}
		if hasResult || hasError || m["id"] != nil && !hasID {
			return nil
		}
		return m
	}
	switch {
	case hasResult && hasError && !null("result") && !null("error"):
		return nil
	case hasID && hasResult && (!hasError || null("error")):
		return m
	case (hasID || null("id")) && is("error", "{") && null("result"):
		return m
	default:
		return nil
	}
}

// halfCharacter reports whether a JSON string contains an escape for half of a surrogate pair. encoding/json
// decodes such an escape as a replacement character.
func halfCharacter(raw []byte) bool {
	var s string
	if !utf8.Valid(raw) || json.Unmarshal(raw, &s) != nil {
		return false
	}
	const replacement = "\ufffd"
	written := strings.Count(string(raw), replacement) + strings.Count(strings.ToLower(string(raw)), `\ufffd`)
	return strings.Count(s, replacement) > written
}

// depth returns how deeply the brackets of a text are nested. It ignores brackets in strings.
func depth(b []byte) (deepest int) {
	level, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}
