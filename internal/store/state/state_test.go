package state_test

import (
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// A time comes back from the store as it went in, and no time as none.
func TestTimes(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC)
	if got := state.Instant(state.Micros(at)); !got.Equal(at) {
		t.Errorf("%s came back as %s", at, got)
	}
	if us := state.Micros(time.Time{}); us != 0 || !state.Instant(us).IsZero() {
		t.Errorf("no time is %d, and comes back as %s", us, state.Instant(us))
	}
}
