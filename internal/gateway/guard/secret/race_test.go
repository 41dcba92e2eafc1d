//go:build race

package secret_test

// race says that the race detector is on. Pools drop things at random then, so
// that allocations tell nothing.
const race = true
