//go:build unix

package sqlite

import "os"

// remove removes an owner's file while it is locked, so that nobody can have
// claimed it in between.
func remove(f *os.File) error { return os.Remove(f.Name()) }
