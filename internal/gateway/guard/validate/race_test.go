//go:build race

package validate

// race is true if the race detector is on. The race detector makes the checks many times slower.
const race = true
