//go:build !linux

package sqlite

// findHolder always returns false, because there is no implementation for this system.
func findHolder(string) (holder, bool) { return holder{}, false }
