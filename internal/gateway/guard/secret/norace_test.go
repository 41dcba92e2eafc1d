//go:build !race

package secret_test

const race = false
