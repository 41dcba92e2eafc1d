package store

import (
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// A used id stays used after it expires. The clock may have been ahead and may be set back.
func TestSpentBeyondItsTime(t *testing.T) {
	b := &Store{DB: statetest.Open(t)}
	for _, c := range []struct {
		id    string
		until time.Duration
		again bool
	}{{"good", time.Hour, false}, {"over", -24 * time.Hour, false}, {"long over", -40 * 24 * time.Hour, true}} {
		until := time.Now().Add(c.until)
		if first, err := b.Spend(t.Context(), c.id, until); !first || err != nil {
			t.Fatalf("the first Spend(%q) returned %v (error %v), want true", c.id, first, err)
		}
		if _, err := b.Spend(t.Context(), "another of "+c.id, until); err != nil {
			t.Fatal(err)
		}
		if first, err := b.Spend(t.Context(), c.id, until); first != c.again || err != nil {
			t.Errorf("the second Spend(%q) returned %v (error %v), want %v", c.id, first, err, c.again)
		}
	}
}
