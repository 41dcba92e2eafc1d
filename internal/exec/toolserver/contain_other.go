//go:build !linux

package toolserver

// containable reports whether programs are contained here.
func containable() bool { return false }
