//go:build !unix

package statetest

import "syscall"

// unprivileged always fails, because tests with PostgreSQL need Unix.
func unprivileged(string) (*syscall.SysProcAttr, error) { return nil, errMissing }
