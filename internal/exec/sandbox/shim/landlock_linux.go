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

// deniableRights returns all file rights that the given version of Landlock can deny. From version 6, the result also
// contains the scopes.
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
// plan. All other file rights are denied. Other threads are not restricted.
func confine(p *Plan) error {
	version, err := LandlockVersion()
	if err != nil {
		return err
	}
	all := deniableRights(version)
	ruleset, err := createRuleset(all, unsafe.Sizeof(*all), 0)
	if err != nil {
		return err
	}
	defer unix.Close(ruleset)
	handled := all.Handled_access_fs
	if p.NoExec {
		handled &^= unix.LANDLOCK_ACCESS_FS_EXECUTE
	}
	permit := func(paths []string, dir, file uint64) error {
		for _, path := range paths {
			if err := permitBeneath(ruleset, path, dir, file); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	}
	if err := errors.Join(
		permit(p.Execute, unix.LANDLOCK_ACCESS_FS_EXECUTE, unix.LANDLOCK_ACCESS_FS_EXECUTE),
		permit(p.ReadOnly, readsTree&handled, readsFiles&handled),
		permit(p.ReadWrite, handled&^unix.LANDLOCK_ACCESS_FS_IOCTL_DEV, writesFiles&handled),
		permit(p.Devices, 0, writesFiles&handled),
	); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// LandlockVersion returns the version of the kernel's Landlock. It fails if the version is too old.
func LandlockVersion() (int, error) {
	version, err := createRuleset(nil, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != nil || version < minLandlock {
		return 0, errOldLandlock
	}
	return version, nil
}

func createRuleset(a *unix.LandlockRulesetAttr, size, flags uintptr) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(a)), size, flags)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// permitBeneath adds a Landlock rule for a path. The rule grants dirRights to everything in a folder, or fileRights
// to a single file.
func permitBeneath(ruleset int, path string, dirRights, fileRights uint64) error {
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
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
