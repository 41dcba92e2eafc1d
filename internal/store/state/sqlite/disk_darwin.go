package sqlite

import "golang.org/x/sys/unix"

// networkDisk names the network file system that a folder lies on, or is "".
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
