package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// mostGarbage is the garbage, in percent of the live heap, that accumulates between two collections.
	mostGarbage = 400
	// garbageLimit is the maximum garbage in bytes, unless the live heap is larger: the percentage is never below 100.
	garbageLimit = 128 << 20
)

// boundGarbage sets the percentage now and after every garbage collection, until the process exits. Otherwise, a daemon
// with thousands of agents would need five times the memory of its data.
func boundGarbage(percent int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if next := garbagePercent(live[0].Value.Uint64()); next != percent {
		debug.SetGCPercent(next)
		percent = next
	}
	// The object is unreachable at once, so the next collection finds it. It holds a pointer, because the runtime combines
	// small objects without pointers.
	runtime.AddCleanup(new(*int), boundGarbage, percent)
}

// garbagePercent returns the percentage for a live heap of the given size in bytes.
func garbagePercent(live uint64) int {
	return int(min(mostGarbage, max(100, garbageLimit*100/max(live, 1))))
}
