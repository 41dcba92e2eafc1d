//go:build unix

package sqlite

import "syscall"

const errQuota = syscall.EDQUOT
