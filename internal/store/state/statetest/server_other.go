//go:build !unix

package statetest

import "syscall"

// unprivileged is not implemented here: the tests with PostgreSQL need Unix.
func unprivileged(string) (*syscall.SysProcAttr, error) { return nil, errMissing }
