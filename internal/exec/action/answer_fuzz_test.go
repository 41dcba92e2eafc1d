package action

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
)

// FuzzAnswer checks that every answer becomes one JSON value in valid UTF-8. An error status must become an error.
// A redirect must be reported on one line.
func FuzzAnswer(f *testing.F) {
	for _, a := range []struct {
		status      int
		kind, other string
		body        string
	}{
		{200, "application/json", "", `{"a":1.0}`},
		{200, "application/json; charset=utf-16", "", "\xff\xfe{\x00}\x00"},
		{200, "text/html; charset=shift_jis", "", "\x83\x65\x83"},
		{200, "image/png", "", "\x89PNG"},
		{204, "", "", ""},
		{302, "", "https://evil.example\n/\x1b[2J", ""},
		{429, "text/plain; charset=x-user-defined", "soon\x1b", "\xff no"},
		{500, ";;", "", "\x00"},
	} {
		f.Add(a.status, a.kind, a.other, []byte(a.body), false)
	}
	f.Add(200, "text/plain", "", []byte("x"), true)
	b := &binding{Options: Options{MaxResponse: 1 << 10}}
	f.Fuzz(func(t *testing.T, status int, kind, other string, body []byte, head bool) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.com/a?b=c", nil)
		if err != nil {
			t.Fatal(err)
		}
		status = 200 + ((status-200)%400+400)%400
		h := http.Header{"Content-Type": {kind}, "Location": {other}, "Retry-After": {other}, "Etag": {other}}
		resp := &http.Response{StatusCode: status, Header: h, Request: req, Body: io.NopCloser(strings.NewReader(string(body)))}
		r, err := b.toResult(req, resp, agent.Read)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(r.Raw) || !jsontext.Value(r.Raw).IsValid() {
			t.Errorf("not JSON: %q", r.Raw)
		}
		if status >= 300 && !r.IsError {
			t.Errorf("status %d is not reported as an error: %s", status, r.Raw)
		}
		if status/100 == 3 && strings.Contains(string(r.Raw), `\n`) {
			t.Errorf("a redirect is reported on several lines: %s", r.Raw)
		}
	})
}
