package shim

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// minLandlock is the first version of Landlock that controls moving files between folders.
const minLandlock = 2

var errOldLandlock = errors.New("the kernel does not support Landlock, or its Landlock version is too old; " +
	"Linux 5.19 or newer is required")

// These are access rights of Landlock. Rights that the kernel does not know are removed later, in confine.
const (
	readsFiles  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	readsTree   = readsFiles | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writesFiles = readsFiles | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// deniableRights returns all rights that the given version of Landlock can deny.
func deniableRights(version int) *unix.LandlockRulesetAttr {
	a := &unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_REFER<<1 - 1}
	if version >= 3 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 5 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version >= 6 {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return a
}

// confine restricts the current thread, which later executes the program. The thread can open only the files in the
// plan. All other rights that the kernel's version of Landlock knows are denied. Other threads are not restricted.
func confine(p *Plan) error {
	version, err := LandlockVersion()
	if err != nil || version < minLandlock {
		return errOldLandlock
	}
	all := deniableRights(version)
	rules, err := createRuleset(all)
	if err != nil {
		return err
	}
	defer unix.Close(rules)
	handled := all.Handled_access_fs
	if p.NoExec {
		handled &^= unix.LANDLOCK_ACCESS_FS_EXECUTE
	}
	allow := func(paths []string, dir, file uint64) error {
		for _, path := range paths {
			if err := allowBeneath(rules, path, dir&handled, file&handled); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	}
	for _, path := range p.Execute {
		if err := allowBeneath(rules, path, unix.LANDLOCK_ACCESS_FS_EXECUTE, unix.LANDLOCK_ACCESS_FS_EXECUTE); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := errors.Join(
		allow(p.ReadOnly, readsTree, readsFiles),
		allow(p.ReadWrite, all.Handled_access_fs&^unix.LANDLOCK_ACCESS_FS_IOCTL_DEV, writesFiles),
		allow(p.Devices, 0, writesFiles),
	); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return errnoOf(unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0))
}

// LandlockVersion returns the version of the kernel's Landlock.
func LandlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return int(version), errnoOf(0, 0, errno)
}

func createRuleset(a *unix.LandlockRulesetAttr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a), 0)
	return int(fd), errnoOf(0, 0, errno)
}

// errnoOf returns the error of a system call.
func errnoOf(_, _ uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// allowBeneath adds a Landlock rule for a path. The rule grants dirRights to everything in a folder, or fileRights
// to a single file.
func allowBeneath(rules int, path string, dirRights, fileRights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	access := fileRights
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		access = dirRights
	}
	rule := &unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	return errnoOf(unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(rule)), 0, 0, 0))
}
