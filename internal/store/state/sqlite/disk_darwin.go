package sqlite

import "golang.org/x/sys/unix"

// networkDisk returns the name of the network file system that contains dir. It returns "" for a local file system.
func networkDisk(dir string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", err
	}
	if s.Flags&unix.MNT_LOCAL != 0 {
		return "", nil
	}
	return unix.ByteSliceToString(s.Fstypename[:]), nil
}
