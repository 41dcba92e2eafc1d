//go:build prove

package gateway

// kills is how many workers the kill test ends on each engine.
const kills = 600
