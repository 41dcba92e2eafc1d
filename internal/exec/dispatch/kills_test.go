//go:build !prove

package dispatch

import "time"

const (
	kills     = 4
	killEvery = 300 * time.Millisecond
	askEvery  = 5 * time.Millisecond
)
