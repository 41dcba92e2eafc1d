package front

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// timed records the current write deadline, and the deadline at the time of the last write.
type timed struct {
	*httptest.ResponseRecorder
	until, atWrite time.Time
}

func (w *timed) SetWriteDeadline(t time.Time) error { w.until = t; return nil }

func (w *timed) Write(p []byte) (int, error) {
	w.atWrite = w.until
	return w.ResponseRecorder.Write(p)
}

// A stream has a deadline while it writes a message, but not between two messages.
func TestSilenceHasNoDeadline(t *testing.T) {
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	s := &reply{w: w, control: http.NewResponseController(w), stream: true}
	if !s.event(message{[]byte("{}")}) || w.atWrite.IsZero() || !w.until.IsZero() {
		t.Errorf("the deadline is %v during the message and %v after it", w.atWrite, w.until)
	}
	// After the handler returns, net/http writes the end of the stream.
	if s.finish(http.StatusOK, message{[]byte("{}")}); w.atWrite.IsZero() || w.until.IsZero() {
		t.Errorf("the deadline is %v during the last message and %v after it", w.atWrite, w.until)
	}
}
