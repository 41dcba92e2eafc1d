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
	short             bool // the Content-Length announces more than is sent
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
		body, status := NewHTTP(nil, HTTPOptions{}).body(w, r, http.NewResponseController(w))
		if whole := tt.sent == tt.announced; (status == 0) != whole || whole && len(body) != tt.sent {
			t.Errorf("%d of %d: %d bytes, status %d", tt.sent, tt.announced, len(body), status)
		}
		for i, b := range body {
			if b != byte(i%251) {
				t.Fatalf("%d of %d: byte %d is %d, want %d", tt.sent, tt.announced, i, b, byte(i%251))
			}
		}
		if from.ahead > 0 {
			t.Errorf("%d of %d: the buffer has %d unused bytes", tt.sent, tt.announced, from.ahead)
		}
	}
}
