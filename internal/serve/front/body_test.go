package front

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// sender sends a body and records the largest unused part of the reader's buffer.
type sender struct {
	left, sent, ahead int
}

func (s *sender) Read(p []byte) (int, error) {
	s.ahead = max(s.ahead, len(p)-max(s.sent, trusted))
	n := min(s.left, len(p), 4000)
	for i := range p[:n] {
		p[i] = byte((s.sent + i) % 251)
	}
	if s.left, s.sent = s.left-n, s.sent+n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Memory is allocated as a body arrives, not as it is announced.
func TestAnnouncedBodyIsNotAllocated(t *testing.T) {
	for _, tt := range []struct{ announced, sent int }{
		{0, 0}, {1, 1}, {trusted, trusted}, {trusted + 1, trusted + 1}, {5*trusted + 7, 5*trusted + 7}, {maxMessage, 1}, {maxMessage, 3 * trusted}, {10, 9},
	} {
		from := &sender{left: tt.sent}
		r := httptest.NewRequest(http.MethodPost, "/", from)
		r.ContentLength = int64(tt.announced)
		w := httptest.NewRecorder()
		body, status := NewHTTP(nil, HTTPOptions{}).body(w, r, http.NewResponseController(w))
		if whole := tt.sent == tt.announced; (status == 0) != whole || whole && len(body) != tt.sent {
			t.Errorf("%d of %d: %d bytes, status %d", tt.sent, tt.announced, len(body), status)
		}
		for i, b := range body {
			if b != byte(i%251) {
				t.Fatalf("%d of %d: byte %d is another", tt.sent, tt.announced, i)
			}
		}
		if from.ahead > 0 {
			t.Errorf("%d of %d: the buffer has %d unused bytes", tt.sent, tt.announced, from.ahead)
		}
	}
}
