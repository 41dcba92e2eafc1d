package daemon

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// timed is a writer that remembers until when it may write.
type timed struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (w *timed) SetWriteDeadline(t time.Time) error {
	w.until = t
	return nil
}

// Every kind of response has a write deadline.
func TestEveryAnswerHasADeadline(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a head": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
		"a body": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) },
		"flushed": func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &timed{ResponseRecorder: httptest.NewRecorder()}
			s := &shield{loopback: true, cross: http.NewCrossOriginProtection()}
			before := time.Now()
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/", nil)
			h(s.admit(w, r), r)
			if w.until.Before(before.Add(writeTime)) || w.until.After(time.Now().Add(writeTime)) {
				t.Errorf("it may be written until %v, %v from now", w.until, w.until.Sub(before))
			}
		})
	}
}
