//go:build prove

package dispatch

import "time"

const (
	kills     = 60
	killEvery = time.Second
	askEvery  = 10 * time.Millisecond
)
