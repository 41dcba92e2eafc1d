package sqlite

import "golang.org/x/sys/unix"

// networkDisks lists file systems on which locks or shared memory do not work between machines. FUSE and 9p are listed
// because they can give access to files on another machine. Examples are sshfs, Windows drives in WSL, and shared
// folders of virtual machines.
var networkDisks = map[int64]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC:  "SMB",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	unix.V9FS_MAGIC:        "9p",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	0x01161970:             "GFS2",
	0x0BD00BD0:             "Lustre",
	0x47504653:             "GPFS",
}

// networkDisk returns the name of the network file system that contains dir. It returns "" for a local file system.
func networkDisk(dir string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", err
	}
	// The type of the field depends on the architecture. Only the lower 32 bits are used.
	return networkDisks[int64(uint32(s.Type))], nil
}
