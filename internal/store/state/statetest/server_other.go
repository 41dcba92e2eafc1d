//go:build !unix

package statetest

import "syscall"

// unprivileged is not needed where there is no root.
func unprivileged(string) (*syscall.SysProcAttr, error) { return nil, errMissing }
