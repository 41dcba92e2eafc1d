//go:build !linux

package sqlite

// holder cannot be told here.
func holder(string) (keeper, bool) { return keeper{}, false }
