package front

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// discard is a ResponseWriter that discards what is written.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkHTTP measures a call over HTTP in each generation, without a network and with a gateway that
// admits every call.
func BenchmarkHTTP(b *testing.B) {
	keys, err := testKeys()
	if err != nil {
		b.Fatal(err)
	}
	a := testAgent(b, &stage{})
	face := NewHTTP(a, HTTPOptions{Keys: keys})
	defer face.Close()
	recorder := httptest.NewRecorder()
	post := func(body string, headers ...headerLine) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for _, h := range headers {
			r.Header.Set(h.name, h.value)
		}
		return r
	}
	face.Serve(recorder, post(hello), "me", nil)
	session := headerLine{"Mcp-Session-Id", recorder.Header().Get("Mcp-Session-Id")}
	payload := `{"text":"` + strings.Repeat("x", 64) + `"}`
	for _, tt := range []struct {
		name, body string
		headers    []headerLine
	}{
		{"older", calls(1, "work", payload), []headerLine{session}},
		{"newer", newer("tools/call", `"name":"work","arguments":`+payload), newerHeaders("tools/call", "work")},
	} {
		b.Run(tt.name, func(b *testing.B) {
			r := post(tt.body, tt.headers...)
			b.ReportAllocs()
			for b.Loop() {
				r.Body = io.NopCloser(strings.NewReader(tt.body))
				face.Serve(&discard{http.Header{}}, r, "me", nil)
			}
		})
	}
}
