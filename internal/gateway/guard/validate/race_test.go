//go:build race

package validate

// race is true under the race detector, which makes the checks many times slower.
const race = true
