package shim

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// bindAsOwner binds a path so that the run's user has the rights of the path's owner, and
// files that the user creates belong to the owner. The kernel translates between the two
// users at the mount; no file on the disk changes.
func bindAsOwner(fd int, to string, user int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := createTarget(&st, to); err != nil {
		return err
	}
	namespace, err := mapping(int(st.Uid), int(st.Gid), user)
	if err != nil {
		return err
	}
	defer unix.Close(namespace)
	tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace)}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("the file system does not support mounts for another user: %w", err)
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// mapping returns a user namespace in which the owner of a path is the run's user. Only a process can create a
// namespace. It ends as soon as ambit has opened the namespace.
func mapping(owner, group, user int) (int, error) {
	holder, err := os.StartProcess("/proc/self/exe", []string{"ambit", Holder}, &os.ProcAttr{
		Env: []string{}, Files: []*os.File{nil, nil, nil},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: owner, HostID: user, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: group, HostID: user, Size: 1}},
		},
	})
	if err != nil {
		return 0, err
	}
	defer holder.Wait()
	defer holder.Kill()
	return unix.Open("/proc/"+strconv.Itoa(holder.Pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// hold waits to be killed.
func hold() {
	for {
		unix.Pause()
	}
}
