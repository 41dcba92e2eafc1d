package daemon

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// The total size of one principal's requests in progress is limited. Other principals are not affected. The principal
// can send more as soon as an earlier request is answered.
func TestBytesInProgress(t *testing.T) {
	hold, held := make(chan struct{}), make(chan string, 2)
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(r *rig, _ *Options) {
		r.make = func(f *fake) { f.hold, f.calls = hold, held; close(f.ready) }
	})
	r.requestBytes = &limit.Bytes{Each: 2000, All: 3000}
	ci, other := r.key(identity.KeySpec{Principal: "ci"}), r.key(identity.KeySpec{Principal: "other"})
	call := func(key string, size int) *answer {
		return r.ask(key, "POST", "/api/v1/agents/alpha/call", `{"tool": "echo", "arguments": {"text": "`+strings.Repeat("x", size)+`"}}`)
	}
	first := make(chan *answer)
	go func() { first <- call(ci, 1500) }()
	select {
	case <-held:
	case a := <-first:
		t.Fatalf("the first request got %d: %s", a.status, a.body)
	}
	if a := call(ci, 1000); a.status != 429 || a.code() != "busy" || !strings.Contains(a.body, "your requests in progress exceed") {
		t.Errorf("the request beyond the limit got %d: %s", a.status, a.body)
	}
	if a := call(other, 1600); a.status != 429 || !strings.Contains(a.body, "of all callers") {
		t.Errorf("the request beyond the limit of the daemon got %d: %s", a.status, a.body)
	}
	close(hold)
	if a := <-first; a.status != 200 {
		t.Errorf("the first request got %d: %s", a.status, a.body)
	}
	if a := call(ci, 1500); a.status != 200 {
		t.Errorf("after an answer, the request got %d: %s", a.status, a.body)
	}
}

// Calls from an agent's pages count as requests of the principal that requested the ticket.
func TestBytesOfPages(t *testing.T) {
	r, _ := uiRig(t)
	r.requestBytes = &limit.Bytes{Each: 2000, All: 3000}
	at, _ := r.ask(r.key(identity.KeySpec{Principal: "ada", Agents: []string{"pages"}}), "GET", "/api/v1/agents/pages/ui", "").doc["url"].(string)
	call := func() *answer {
		return r.ask("", "POST", at, `{"tool": "echo", "arguments": {"text": "`+strings.Repeat("x", 1500)+`"}}`)
	}
	release, err := r.requestBytes.Take("ada", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if a := call(); a.status != 429 || !strings.Contains(a.body, "your requests in progress exceed") {
		t.Errorf("the call beyond the limit got %d: %s", a.status, a.body)
	}
	release()
	for range 2 {
		if a := call(); a.status != 200 {
			t.Errorf("a call within the limit got %d: %s", a.status, a.body)
		}
	}
}

// The total size of the answers that a principal has not read yet is limited. Each answer that was read makes room for
// another.
func TestAnswersInProgress(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	r.answerBytes = &limit.Bytes{Each: 2000, All: 3000}
	ci := r.key(identity.KeySpec{Principal: "ci"})
	call := func(size int) *answer {
		return r.ask(ci, "POST", "/api/v1/agents/alpha/call", `{"tool": "echo", "arguments": {"text": "`+strings.Repeat("x", size)+`"}}`)
	}
	for range 3 {
		if a := call(1500); a.status != 200 {
			t.Fatalf("a request whose answer is within the limit got %d: %s", a.status, a.body)
		}
	}
	release, err := r.answerBytes.Take("ci", 1900) // this client does not read its answer
	if err != nil {
		t.Fatal(err)
	}
	if a := call(1500); a.status != 429 || a.code() != "busy" || !strings.Contains(a.body, "the request was carried out, but its answer") {
		t.Errorf("a request whose answer is beyond the limit got %d: %s", a.status, a.body)
	}
	release()
	if a := call(1500); a.status != 200 {
		t.Errorf("after the other answer was read, the request got %d: %s", a.status, a.body)
	}
	if _, err := r.answerBytes.Take("ci", 2000); err != nil {
		t.Errorf("after all answers were read, the limit is still in use: %v", err)
	}
}
