package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// An answer is kept for as long as is said, and deleted then, a few at a time;
// what was not answered is kept for ever.
func TestAnswersAreForgotten(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		w := newWorld()
		b := open(t, connect())
		g := New(clerk(), Options{Binding: w, Books: b})
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
			t.Fatal("its answer came")
		}
		forget := func(after time.Duration, want ...int) {
			t.Helper()
			for i, n := range want {
				if got, err := ForgetAnswers(t.Context(), b, time.Now().Add(after), 2); err != nil || got != n {
					t.Errorf("after %v batch %d deleted %d, want %d: %v", after, i+1, got, n, err)
				}
			}
		}
		forget(AnswersKept-time.Hour, 0)
		pay("k0")
		if w.count() != 4 {
			t.Errorf("a key that is remembered made another call: %d", w.count())
		}
		forget(AnswersKept+time.Hour, 2, 1, 0)
		pay("k0")
		if w.count() != 5 {
			t.Errorf("a key that is forgotten made no other call: %d", w.count())
		}
		if _, err := g.Call(t.Context(), &call.Call{Tool: "vanish_write", Principal: "me", IdempotencyKey: "lost"}); codeOf(err) != call.OutcomeUnknown || w.count() != 5 {
			t.Errorf("what was never answered: %v, sent %d times", err, w.count())
		}
	})
}
