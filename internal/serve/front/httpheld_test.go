package front

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestStreamsEndWithTheirContext checks that every request that listens begins a stream, however its header is written,
// and that the stream ends with its context.
func TestStreamsEndWithTheirContext(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{})
	session := w.session()
	ended := make(chan context.CancelFunc, 1)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.face.Serve(rw, r.WithContext(WithStreams(r.Context(), func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			ended <- cancel
			return ctx, cancel
		})), r.Header.Get(who), nil)
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	listen := newer("subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
	encoded := "=?base64?" + base64.StdEncoding.EncodeToString([]byte("subscriptions/listen")) + "?="
	for name, open := range map[string]func() *http.Response{
		"GET":            func() *http.Response { return w.do("GET", "", session, headerLine{"Accept", "text/event-stream"}) },
		"plain header":   func() *http.Response { return w.do("POST", listen, newerHeaders("subscriptions/listen", "")...) },
		"encoded header": func() *http.Response { return w.do("POST", listen, newerHeaders(encoded, "")...) },
	} {
		t.Run(name, func(t *testing.T) {
			resp := open()
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d", resp.StatusCode)
			}
			select {
			case end := <-ended:
				end()
			case <-time.After(20 * time.Second):
				t.Fatal("the request began no stream")
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Errorf("the stream ended with %v", err)
			}
		})
	}
}
