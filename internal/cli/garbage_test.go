package cli

import "testing"

// The garbage of a small process is bounded by a percentage, and that of a large process by its size, but the heap may
// always double.
func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 10 << 20: 400, 32 << 20: 400, 64 << 20: 200, 128 << 20: 100, 1 << 40: 100} {
		if got := garbagePercent(live); got != want {
			t.Errorf("a live heap of %d bytes gets %d percent, want %d", live, got, want)
		}
	}
}
