//go:build !race

package validate

const race = false
