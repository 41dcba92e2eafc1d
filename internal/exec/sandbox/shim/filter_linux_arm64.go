package shim

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	newest    = unix.SYS_LSM_LIST_MODULES
)

var refusedOnArch = []uint32{unix.SYS_KEXEC_FILE_LOAD}

var (
	modeCallsOnArch   map[uint32]uint32
	createCallsOnArch map[uint32][2]uint32
)
