package mcpwire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestHTTPModernHeaders(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.modern = true
	s.session = "never"
	schema := `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},` +
		`"deep":{"properties":{"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}},` +
		`"absent":{"type":"string","x-mcp-header":"Absent"}}}`
	s.tools = `{"tools":[{"name":"té","inputSchema":` + schema + `},` +
		`{"name":"bad","inputSchema":{"properties":{"x":{"type":"number","x-mcp-header":"X"}}}}]}`
	var seen http.Header
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		seen = r.Header.Clone()
		answerJSON(w, m, `{}`)
	}
	c := s.connect(Options{}, HTTPOptions{Header: func(_ context.Context, h http.Header) error {
		h.Set("Authorization", "Bearer x")
		h.Set("Mcp-Method", "forged")
		return nil
	}})
	negotiate(t, c)
	tools, err := c.ListTools(t.Context())
	if err != nil || len(tools) != 2 || tools[0].Invalid != nil || tools[1].Invalid == nil {
		t.Fatalf("ListTools = %+v, %v", tools, err)
	}
	check := func(want map[string]string) {
		t.Helper()
		for name, value := range want {
			if got := seen.Get(name); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
	}
	mustCall(t, c, "té", `{"region":" x ","deep":{"n":4.2e1,"b":true},"absent":null}`, `{}`)
	check(map[string]string{
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?dMOp?=",
		"Mcp-Param-Region": "=?base64?IHgg?=", "Mcp-Param-N": "42", "Mcp-Param-B": "true", "Mcp-Param-Absent": "",
		"Mcp-Session-Id": "", "Authorization": "Bearer x", "Content-Type": "application/json",
	})
	if _, err := c.Call(t.Context(), "resources/read", []byte(`{"uri":"file:///x"}`)); err != nil {
		t.Error(err)
	}
	check(map[string]string{"Mcp-Method": "resources/read", "Mcp-Name": "file:///x", "Mcp-Param-Region": ""})
}

func TestParamHeaders(t *testing.T) {
	for schema, want := range map[string]string{
		``:                  "",
		`true`:              "",
		`{"properties":[]}`: "",
		`{"properties":{"a":true,"\ud800":{"x-mcp-header":"A"}}}`:                                            "",
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`:                                          "Mcp-Param-A",
		`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`:                                           "not a header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":7}}}`:                                            "not a header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`:                                        "not a header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"a\r\nX: y"}}}`:                                  "not a header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"é"}}}`:                                          "not a header name",
		`{"properties":{"a":{"type":"array","x-mcp-header":"A"}}}`:                                           "of type",
		`{"properties":{"a":{"type":["string"],"x-mcp-header":"A"}}}`:                                        "of type",
		`{"properties":{"a":{"properties":{"b":{"type":"string","x-mcp-header":"A b"}}}}}`:                   "not a header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`: "twice",
	} {
		headers, err := paramHeaders([]byte(schema))
		got := fmt.Sprint(err)
		if err == nil {
			got = ""
			for _, h := range headers {
				got += h.name
			}
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("paramHeaders(%s) = %s, want %s", schema, got, want)
		}
	}
	for arguments, want := range map[string]string{
		`{}`: "", `{"a":null}`: "", `{"a":[]}`: "", `{"a":1.5}`: "", `{"a":9007199254740993}`: "", `{"a":1e400}`: "",
		`{"a":"\ud800"}`: "", `{"a":-7}`: "-7", `{"a":1e2}`: "100", `{"a":false}`: "false", `{"a":"x\u0079"}`: "xy",
	} {
		got, ok := paramHeader{path: []string{"a"}, name: "N"}.fromArguments([]byte(arguments))
		if ok != (want != "") || ok && got.value != want {
			t.Errorf("the header of %s is %q, want %q", arguments, got.value, want)
		}
	}
}

func TestHeaderValue(t *testing.T) {
	for in, want := range map[string]string{
		"us-west1":             "us-west1",
		"a b":                  "a b",
		"Hello, 世界":            "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":             "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":         "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=":   "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?not at all?": "=?base64?not at all?",
	} {
		if got := headerValue(in); got != want {
			t.Errorf("headerValue(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestHTTPCredentials checks that HTTPOptions.Header is called for every request and can refuse it.
func TestHTTPCredentials(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		answerJSON(w, m, `"`+r.Header.Get("Authorization")+`"`)
	}
	n := 0
	refused := errors.New("no credentials today")
	c := s.connect(Options{Legacy: true}, HTTPOptions{Header: func(_ context.Context, h http.Header) error {
		if n++; n > 4 {
			return refused
		}
		h.Set("Authorization", fmt.Sprintf("Bearer %d", n))
		return nil
	}})
	negotiate(t, c)
	mustCall(t, c, "tool", `{}`, `"Bearer 3"`)
	mustCall(t, c, "tool", `{}`, `"Bearer 4"`)
	_, err := callTool(t, c, "tool", `{}`)
	wantError(t, err, refused, ErrNotSent)
}

func TestHTTPAddress(t *testing.T) {
	for _, address := range []string{"", "ftp://x/", "http://", "http://user:secret@host/", "://", "http://[::1/secret"} {
		_, err := HTTP(address, HTTPOptions{})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("HTTP(%q) returned error %v, want an error without the secret", address, err)
		}
	}
}
