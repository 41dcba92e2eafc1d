package front

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/limit"
)

// sender sends a body. It records the maximum number of unused bytes in the reader's buffer.
type sender struct {
	left, sent, ahead int
	short             bool // the number of bytes by which the Content-Length is larger than the body
}

// spare is how much larger than expected a buffer may be.
const spare = 16 << 10

func (s *sender) Read(p []byte) (int, error) {
	s.ahead = max(s.ahead, len(p)-max(s.sent, maxPrealloc)-spare)
	n := min(s.left, len(p), 4000)
	for i := range p[:n] {
		p[i] = byte((s.sent + i) % 251)
	}
	if s.left, s.sent = s.left-n, s.sent+n; n == 0 && s.short {
		return 0, io.ErrUnexpectedEOF
	} else if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Memory is allocated as the body arrives, not according to the announced Content-Length.
func TestAnnouncedBodyIsNotAllocated(t *testing.T) {
	for _, tt := range []struct{ announced, sent int }{
		{0, 0}, {1, 1}, {maxPrealloc, maxPrealloc}, {maxPrealloc + 1, maxPrealloc + 1}, {5*maxPrealloc + 7, 5*maxPrealloc + 7}, {maxMessage, 1}, {maxMessage, 3 * maxPrealloc}, {10, 9},
	} {
		from := &sender{left: tt.sent, short: tt.sent < tt.announced}
		r := httptest.NewRequest(http.MethodPost, "/", from)
		r.ContentLength = int64(tt.announced)
		w := httptest.NewRecorder()
		body, err := NewHTTP(nil, HTTPOptions{}).body(w, r, http.NewResponseController(w))
		if whole := tt.sent == tt.announced; (err == nil) != whole || whole && len(body) != tt.sent {
			t.Errorf("%d of %d: %d bytes, %v", tt.sent, tt.announced, len(body), err)
		}
		for i, b := range body {
			if b != byte(i%251) {
				t.Fatalf("%d of %d: byte %d is %d, want %d", tt.sent, tt.announced, i, b, byte(i%251))
			}
		}
		if from.ahead > 0 {
			t.Errorf("after %d of %d bytes, the buffer has %d unused bytes", tt.sent, tt.announced, from.ahead)
		}
	}
}

// A request beyond the limit of the requests in progress is refused, over HTTP and over stdio.
func TestBusy(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "http://localhost/", nil)
	r.Header.Set("Content-Type", "application/json")
	r.Body = (&limit.Bytes{Each: 10, All: 10}).Body("me", io.NopCloser(strings.NewReader(hello)))
	w := httptest.NewRecorder()
	NewHTTP(nil, HTTPOptions{}).Serve(w, r, "me", nil)
	const says = "your requests in progress exceed"
	if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), says) {
		t.Errorf("over HTTP, the client got %d: %s", w.Code, w.Body)
	}

	var out bytes.Buffer
	s := &session{out: &out, bytes: &limit.Bytes{Each: 10, All: 10}}
	s.peer = newPeer(nil, "", "me", func(message) bool { return true })
	var calls sync.WaitGroup
	s.handle(t.Context(), []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a long name"}}`), &calls)
	calls.Wait()
	if got := out.String(); !strings.Contains(got, says) || !strings.Contains(got, `"id":7`) {
		t.Errorf("over stdio, the client got %s", got)
	}
}

// An answer beyond the limit of the answers in progress is replaced with an error, over HTTP and over stdio.
func TestAnswersAreHeld(t *testing.T) {
	const says = "the request was carried out, but its answer"
	answers := &limit.Bytes{Each: 100_000, All: 100_000}
	ctx := WithAnswers(t.Context(), func(size int64) (func(), error) { return answers.Take("me", size) })
	w := serveHTTP(t, HTTPOptions{})
	var out bytes.Buffer
	s := &session{agent: w.agent, out: &out, bytes: limit.NewBytes()}
	s.peer = newPeer(w.agent, "", "me", func(message) bool { return true })
	for _, held := range []int64{0, 99_990, 0} {
		release, err := answers.Take("me", held)
		if err != nil {
			t.Fatal(err)
		}
		r := w.request("POST", newer("tools/list", ""), newerHeaders("tools/list", "")...)
		rec := httptest.NewRecorder()
		w.face.Serve(rec, r.WithContext(ctx), "me", nil)
		var calls sync.WaitGroup
		out.Reset()
		s.handle(ctx, []byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`), &calls)
		calls.Wait()
		for way, got := range map[string]string{"HTTP": rec.Body.String(), "stdio": out.String()} {
			if got == "" || strings.Contains(got, says) != (held > 0) {
				t.Errorf("over %s with %d bytes of answers in progress, the client got %.300s", way, held, got)
			}
		}
		release()
	}
	if _, err := answers.Take("me", answers.Each); err != nil {
		t.Errorf("after all answers were sent, their bytes still count: %v", err)
	}
}

// A large result is sent without a copy, in one line.
func TestLargeResultIsNotCopied(t *testing.T) {
	result := []byte(`{"text":"` + strings.Repeat("x", 2*maxCopied) + `"}`)
	m := answer([]byte("1"), result, nil)
	if len(m) != 3 || &m[1][0] != &result[0] {
		t.Errorf("the message has %d parts, want three with the result itself", len(m))
	}
	var sent bytes.Buffer
	if err := m.write(&sent); err != nil || sent.String() != `{"jsonrpc":"2.0","id":1,"result":`+string(result)+"}" || sent.Len() != m.size() {
		t.Errorf("%d bytes were sent as %.50q", m.size(), sent.String())
	}
	lines := bytes.Replace(result, []byte(":"), []byte(":\r\n"), 1)
	if m = answer([]byte("1"), lines, nil); len(m) != 1 || bytes.ContainsAny(m[0], "\r\n") || !bytes.Contains(lines, []byte("\r\n")) {
		t.Errorf("a result with line ends is sent as %.50q", m[0])
	}
}
