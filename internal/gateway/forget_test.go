package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// An answer is kept for AnswersKept and then deleted in small batches. The key of a call without an answer is never
// deleted.
func TestAnswersAreForgotten(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		w := newWorld()
		b := open(t, connect())
		g := New(behaviorAgent(), Options{Binding: w, Store: b})
		pay := func(key string) {
			t.Helper()
			if _, err := g.Call(t.Context(), &call.Call{Tool: "do_write", Principal: "me", IdempotencyKey: key}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			pay(fmt.Sprint("k", i))
		}
		if _, err := g.Call(t.Context(), &call.Call{Tool: "vanish_write", Principal: "me", IdempotencyKey: "lost"}); err == nil {
			t.Fatal("vanish_write returned an answer")
		}
		forget := func(after time.Duration, want ...int) {
			t.Helper()
			for i, n := range want {
				if got, err := ForgetAnswers(t.Context(), b, time.Now().Add(after), 2); err != nil || got != n {
					t.Errorf("after %v, batch %d deleted %d answers, want %d: %v", after, i+1, got, n, err)
				}
			}
		}
		forget(AnswersKept-time.Hour, 0)
		pay("k0")
		if w.count() != 4 {
			t.Errorf("a remembered key made another call: %d calls", w.count())
		}
		forget(AnswersKept+time.Hour, 2, 1, 0)
		pay("k0")
		if w.count() != 5 {
			t.Errorf("a forgotten key made no new call: %d calls", w.count())
		}
		if _, err := g.Call(t.Context(), &call.Call{Tool: "vanish_write", Principal: "me", IdempotencyKey: "lost"}); codeOf(err) != call.OutcomeUnknown || w.count() != 5 {
			t.Errorf("the repeat of an unanswered call ended with %v, sent %d times", err, w.count())
		}
	})
}
