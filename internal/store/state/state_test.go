package state_test

import (
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Micros and Instant preserve the microseconds of a time, and the zero time.
func TestTimes(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC)
	if got := state.Instant(state.Micros(at)); !got.Equal(at) {
		t.Errorf("got %[2]s, want %[1]s", at, got)
	}
	if us := state.Micros(time.Time{}); us != 0 || !state.Instant(us).IsZero() {
		t.Errorf("Micros converted the zero time to %d, and Instant converted this back to %s", us, state.Instant(us))
	}
}
