//go:build !linux

package sqlite

// findHolder has no implementation on this system.
func findHolder(string) (holder, bool) { return holder{}, false }
