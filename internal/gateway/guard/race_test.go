//go:build race

package guard_test

// race is true if the race detector is on. The race detector makes sync.Pool drop values at random, so tests cannot
// count allocations.
const race = true
