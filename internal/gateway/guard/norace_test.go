//go:build !race

package guard_test

const race = false
