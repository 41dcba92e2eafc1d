package shim

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	newest    = unix.SYS_LSM_LIST_MODULES
)

var refusedOnArch = []uint32{
	unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL,
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE, unix.SYS_SYSFS, unix.SYS_USTAT,
}

var (
	modeCallsOnArch = map[uint32]uint32{
		unix.SYS_CHMOD: offArg1, unix.SYS_CREAT: offArg1, unix.SYS_MKDIR: offArg1, unix.SYS_MKNOD: offArg1,
	}
	createCallsOnArch = map[uint32][2]uint32{unix.SYS_OPEN: {offArg1, offArg2}}
)
