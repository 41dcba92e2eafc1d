package front

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A session with state in memory ends when its sealed token expires.
func TestHeldSessionEnds(t *testing.T) {
	keys, err := testKeys()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		const life = time.Minute
		agent := testAgent(t, &stage{began: make(chan string, 10), release: make(chan struct{}), gone: make(chan struct{}, 10)})
		face := NewHTTP(agent, HTTPOptions{Keys: keys, SessionLife: life, Idle: time.Hour})
		defer face.Close()
		post := func(body, session string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp/x", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			if session != "" {
				r.Header.Set("Mcp-Session-Id", session)
			}
			w := httptest.NewRecorder()
			face.Serve(w, r, "me@local", nil)
			return w
		}
		id := post(hello, "").Header().Get("Mcp-Session-Id")
		for range 2 { // the second request finds the session in memory
			if w := post(calls(2, "read", `{}`), id); w.Code != http.StatusOK {
				t.Fatalf("before the session expired, a request got %d: %s", w.Code, w.Body)
			}
		}
		time.Sleep(life + 2*time.Second)
		if len(face.peers) != 1 {
			t.Fatalf("%d sessions are in memory, want 1; otherwise this test proves nothing", len(face.peers))
		}
		if w := post(calls(3, "read", `{}`), id); w.Code != http.StatusNotFound {
			t.Errorf("after the session expired, a request got %d: %s", w.Code, w.Body)
		}
	})
}
