//go:build race

package guard_test

// race is true under the race detector. A sync.Pool then drops values at random, so tests cannot count allocations.
const race = true
