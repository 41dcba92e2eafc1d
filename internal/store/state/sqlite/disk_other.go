//go:build !linux && !darwin && !windows

package sqlite

// networkDisk cannot be determined on this system.
func networkDisk(string) (string, error) { return "", nil }
