//go:build race

package secret_test

// race is set under the race detector. Pools then drop values at random, so that tests
// cannot count allocations.
const race = true
