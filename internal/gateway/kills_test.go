//go:build !prove

package gateway

// kills is how many workers the kill test kills for each database engine.
const kills = 40
