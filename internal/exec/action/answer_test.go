package action

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

func answering(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if w.Header()["Content-Type"] = nil; kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func TestAnswers(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n\x00"
	packed := base64.StdEncoding.EncodeToString
	for _, tt := range []struct {
		name       string
		status     int
		kind, body string
		want       string // the type of the content, followed by its text, data or blob
		structured string
		isError    bool
	}{
		{"object", 200, "application/json", "{\n \"a\": 1.0\n}", "text {\n \"a\": 1.0\n}", `{"a":1.0}`, false},
		{"problem details", 201, "application/vnd.x+json; charset=utf-8", `{"a":1}`, `text {"a":1}`, `{"a":1}`, false},
		{"array", 200, "application/json", `[1]`, `text [1]`, "", false},
		{"broken JSON", 200, "application/json", `{"a":`, `text {"a":`, "", false},
		{"a key twice", 200, "application/json", `{"a":1,"a":2}`, `text {"a":1,"a":2}`, "", false},
		{"text", 200, "text/plain", "<a> & é", "text <a> & é", "", false},
		{"JSON that is text", 200, "text/plain", `{"a":1}`, `text {"a":1}`, "", false},
		{"Latin 1", 200, "text/plain; charset=ISO-8859-1", "caf\xe9", "text café", "", false},
		{"Japanese", 200, "text/html; charset=shift_jis", "\x93\xfa\x96{", "text 日本", "", false},
		{"UTF-16", 200, "text/csv; charset=utf-16le", "a\x00\xe9\x00", "text aé", "", false},
		{"UTF-16 with a byte order mark", 200, "text/plain", "\xff\xfea\x00\xe9\x00", "text aé", "", false},
		{"UTF-8 with a byte order mark", 200, "application/json", "\xef\xbb\xbf{\"a\":1}", `text {"a":1}`, `{"a":1}`, false},
		{"not UTF-8", 200, "text/plain", "a\xffb", "text a\uFFFDb", "", false},
		{"unknown charset", 200, "text/plain; charset=klingon", "a", "text a", "", false},
		{"image", 200, "image/png", png, "image " + packed([]byte(png)) + " image/png", "", false},
		{"drawing", 200, "image/svg+xml", "<svg/>", "text <svg/>", "", false},
		{"audio", 200, "audio/mpeg", "\x00\x01", "audio AAE= audio/mpeg", "", false},
		{"binary", 200, "application/pdf", "%PDF\x00", "resource https://api.example.com/v1 application/pdf " + packed([]byte("%PDF\x00")), "", false},
		{"text without a type", 200, "", "hello", "text hello", "", false},
		{"binary without a type", 200, "", "\x00\x01", "resource https://api.example.com/v1 application/octet-stream AAE=", "", false},
		{"odd type", 200, ";;;", "hello", "text hello", "", false},
		{"nothing", 204, "", "", "text api.example.com answered 204 No Content with an empty body", "", false},
		{"not found", 404, "application/json", `{"error":"no such range"}`, "text api.example.com answered 404 Not Found\n\n{\"error\":\"no such range\"}", "", true},
		{"failed", 500, "text/html", "", "text api.example.com answered 500 Internal Server Error", "", true},
		{"binary error", 502, "application/octet-stream", "\x00\x01", "text api.example.com answered 502 Bad Gateway", "", true},
		{"odd status", 599, "text/plain", "x", "text api.example.com answered 599\n\nx", "", true},
		{"long error", 400, "text/plain", strings.Repeat("é", 5000), "text api.example.com answered 400 Bad Request\n\n" + strings.Repeat("é", maxError/2) + "…", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, agent.HTTP{URL: "https://api.example.com/v1?secret=query"}, answering(tt.status, tt.kind, tt.body))
			result, err := r.call(t, `{}`)
			got := read(t, result, err)
			c := got.Content[0]
			said := c.Type + " " + c.Text
			switch c.Type {
			case "image", "audio":
				said = c.Type + " " + c.Data + " " + c.MIMEType
			case "resource":
				said = c.Type + " " + c.Resource.URI + " " + c.Resource.MIMEType + " " + c.Resource.Blob
			}
			if said != tt.want || string(got.StructuredContent) != tt.structured || got.IsError != tt.isError || got.Meta["ambit/http_status"] != float64(tt.status) {
				t.Errorf("result = %s, want %s", result.Raw, tt.want)
			}
		})
	}
}

func TestRetryAfterIsReported(t *testing.T) {
	r := newRig(t, agent.HTTP{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	result, err := r.call(t, `{}`)
	if got := read(t, result, err); !got.IsError || got.Content[0].Text != "api.example.com answered 429 Too Many Requests (retry after: 120)" {
		t.Errorf("result = %s, want the value of Retry-After", result.Raw)
	}
}

func TestHead(t *testing.T) {
	r := newRig(t, agent.HTTP{Method: "HEAD"}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/csv")
		w.Header().Set("Etag", `"e1"`)
		w.Header().Set("Set-Cookie", "session="+canary)
	})
	result, err := r.call(t, `{}`)
	if got := read(t, result, err); got.Content[0].Text != "200 OK\nContent-Type: text/csv\nEtag: \"e1\"" {
		t.Errorf("result = %s, want the status, Content-Type and Etag", result.Raw)
	}
}

// TestLargeAnswers checks that the limit applies to the decompressed bytes.
func TestLargeAnswers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		bytes   int
		packed  bool
		limit   int64
		isError bool
		text    string
	}{
		{"at the limit", maxResponse, false, 0, false, ""},
		{"one byte too many", maxResponse + 1, false, 0, true, "api.example.com answered with more than 1 MiB; the answer was discarded"},
		{"a gzip bomb", 64 << 20, true, 0, true, "api.example.com answered with more than 1 MiB; the answer was discarded"},
		{"a smaller limit", 101, false, 100, true, "api.example.com answered with more than 100 bytes; the answer was discarded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, agent.HTTP{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				var to io.Writer = w
				if tt.packed {
					if r.Header.Get("Accept-Encoding") != "gzip" {
						t.Error("the request does not accept gzip")
					}
					w.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(w)
					defer z.Close()
					to = z
				}
				io.CopyN(to, endless64{}, int64(tt.bytes))
			})
			r.o.MaxResponse = tt.limit
			result, err := r.call(t, `{}`)
			got := read(t, result, err)
			if got.IsError != tt.isError || tt.text != "" && got.Content[0].Text != tt.text || !tt.isError && len(got.Content[0].Text) != tt.bytes {
				t.Errorf("the result has %d bytes, isError %v", len(result.Raw), got.IsError)
			}
		})
	}
}

// TestEndlessAnswers checks that the body is not read beyond the limit.
func TestEndlessAnswers(t *testing.T) {
	const all = 256 << 20
	taken := make(chan int64, 1)
	r := newRig(t, agent.HTTP{}, func(w http.ResponseWriter, _ *http.Request) {
		n, _ := io.CopyN(w, endless64{}, all)
		taken <- n
	})
	result, err := r.call(t, `{}`)
	if got := read(t, result, err); !got.IsError {
		t.Error("the endless answer was accepted")
	}
	if n := <-taken; n > all/4 {
		t.Errorf("%d bytes were read, want at most %d", n, all/4)
	}
}

type endless64 struct{}

func (endless64) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }

// TestCutAnswers checks calls whose answer breaks off. Such a call has an unknown effect. The exception is a
// read-only tool with a read-only HTTP method.
func TestCutAnswers(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, tt := range []struct {
		method string
		of     agent.SideEffect
		effect call.Effect
	}{
		{"GET", agent.Read, call.NoEffect},
		{"GET", agent.Write, call.EffectUnknown},
		{"POST", agent.Read, call.EffectUnknown},
		{"POST", agent.Write, call.EffectUnknown},
	} {
		r := newRig(t, agent.HTTP{Method: tt.method}, cut)
		r.agent.Tools[0].SideEffect = tt.of
		_, err := r.call(t, `{}`)
		if got := wantCode(t, err, call.ServerUnavailable, tt.effect); got.Retryable != (tt.effect == call.NoEffect) || got.Unsent {
			t.Errorf("a call with method %s and side effect %s ended with %+v", tt.method, tt.of, got)
		}
	}
}

func TestNothingIsSentWithoutEgress(t *testing.T) {
	r := newRig(t, agent.HTTP{}, answering(200, "", ""))
	r.o.Egress = nil
	_, err := r.call(t, `{}`)
	wantCode(t, err, call.ServerUnavailable, call.NoEffect)
}
