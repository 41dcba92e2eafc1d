package front

import (
	"bytes"
	"testing"
)

// A client that does not read its stream cannot make ambit queue more than maxQueuedBytes, however large a server's
// notifications are. An event without params still fits.
func TestQueueIsBoundedInBytes(t *testing.T) {
	for _, size := range []int{1 << 10, 100 << 10, maxQueuedBytes + 1, 8 << 20} {
		a := Agent{Gateway: fakeGateway{}}
		s := a.addSubscriber((&request{}).caller)
		defer a.removeSubscriber(s)
		params := append(append([]byte(`{"x":"`), bytes.Repeat([]byte("a"), size-8)...), `"}`...)
		for range maxQueued - 1 {
			a.Publish("notifications/elicitation/complete", params)
		}
		a.Publish("notifications/tools/list_changed", nil)
		queued, last := 0, ""
		for len(s.events) > 0 {
			e, _ := a.next(t.Context(), s)
			queued, last = queued+len(e.params), e.method
		}
		if queued > maxQueuedBytes || size <= maxQueuedBytes && queued < maxQueuedBytes-size {
			t.Errorf("events of %d bytes: %d bytes were queued, the limit is %d", size, queued, maxQueuedBytes)
		}
		if last != "notifications/tools/list_changed" {
			t.Errorf("events of %d bytes: the last event is %q", size, last)
		}
		if a.Publish("x", params); (len(s.events) == 1) != (size <= maxQueuedBytes) {
			t.Errorf("events of %d bytes: after the queue was read, it holds %d events", size, len(s.events))
		}
	}
}
