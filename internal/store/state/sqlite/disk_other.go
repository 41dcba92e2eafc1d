//go:build !linux && !darwin && !windows

package sqlite

// networkDisk always returns "", because there is no implementation for this system.
func networkDisk(string) (string, error) { return "", nil }
