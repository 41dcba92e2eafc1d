//go:build !linux && !darwin && !windows

package sqlite

// networkDisk cannot tell here.
func networkDisk(string) (string, error) { return "", nil }
