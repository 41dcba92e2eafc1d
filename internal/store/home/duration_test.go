package home

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{"0": 0, "0d": 0, "90m": 90 * time.Minute, "12h": 12 * time.Hour, "7d": 7 * 24 * time.Hour, "36525d": maxDays * 24 * time.Hour} {
		if got, err := Duration(s); got != want || err != nil {
			t.Errorf("Duration(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "d", "-1d", "-1h", "36526d", "876601h", "1.5d", "7 d", "x", "99999999999999999999d", "12"} {
		if got, err := Duration(s); err == nil {
			t.Errorf("Duration(%q) = %v, want an error", s, got)
		}
	}
}
