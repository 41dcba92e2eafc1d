package pack

import (
	"errors"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Code is the kind of an [Error]. All codes are listed below. A Code is itself an error, so callers can write
// errors.Is(err, pack.Tampered).
type Code string

// The codes.
const (
	// Unpinnable means that the command runs code that cannot be identified or hashed completely.
	Unpinnable Code = "unpinnable"
	// VersionConflict means that two different versions of the same package are declared.
	VersionConflict Code = "version_conflict"
	// NotFound means that the package, version or file does not exist.
	NotFound Code = "not_found"
	// FetchFailed means that the package client, such as npm, could not download the package.
	FetchFailed Code = "fetch_failed"
	// RuntimeMissing means that a program or file that is needed to fetch or run the package is missing.
	RuntimeMissing Code = "runtime_missing"
	// NoProgram means that the package does not contain the requested program, or that the package contains several
	// programs and the command does not select one of them.
	NoProgram Code = "no_program"
	// Unsafe means that the package contains something that the store rejects.
	Unsafe Code = "unsafe_package"
	// DigestMismatch means that the digest of the fetched package differs from the pinned digest.
	DigestMismatch Code = "digest_mismatch"
	// NotStored means that the store does not contain the package.
	NotStored Code = "not_stored"
	// ScriptsNotAllowed means that a package needs its install scripts, and that they are not allowed on this machine.
	ScriptsNotAllowed Code = "scripts_not_allowed"
	// Tampered means that the stored package has changed since it was hashed.
	Tampered Code = "tampered"
	// StoreFailed means that the store could not be read or written.
	StoreFailed Code = "store_failed"
	// LockMissing means that there is no lock file.
	LockMissing Code = "lock_missing"
	// LockInvalid means that the lock file cannot be read, or that its parts contradict each other.
	LockInvalid Code = "lock_invalid"
	// LockTooNew means that a newer version of ambit wrote the lock file.
	LockTooNew Code = "lock_too_new"
	// BadDefinition means that a tool's definition is not a JSON object, or that parsers could disagree about it.
	BadDefinition Code = "bad_definition"
	// ManifestUnfit means that the manifest cannot be edited as requested.
	ManifestUnfit Code = "manifest_unfit"
)

func (c Code) Error() string { return string(c) }

// Error is the error type of this package.
type Error struct {
	Code Code
	// The field What contains the package, command or file that the error is about.
	What string
	// File is the path of the first file that differs, relative to the package's folder. It is set only if Code is
	// Tampered.
	File   string
	Detail string
	// Hint describes how to fix the problem. Command is an optional command, which is printed after the hint.
	Hint    string
	Command diag.Command
	// Err is the cause, or nil.
	Err error
}

func (e *Error) Error() string {
	s := e.Detail
	if e.What != "" {
		s = e.What + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the code of the error.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// CodeOf returns the code of an [*Error]. For other errors it returns "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Lacking reports whether the error is caused by something that is missing on this machine: a program, a file, disk
// space or the connection to a registry. The same operation could succeed on another machine.
func Lacking(err error) bool {
	switch CodeOf(err) {
	case RuntimeMissing, StoreFailed, FetchFailed:
		return true
	}
	return false
}

// HintOf returns the hint of an [*Error], without the suggested command. For other errors it returns "".
func HintOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Hint
	}
	return ""
}

var (
	lockCommand   = diag.Command{Verb: "lock"}
	none          = diag.Command{}
	updateCommand = diag.Command{Verb: "lock --update"}
)

// storeFailed returns a StoreFailed error. If err is already an [Error], storeFailed returns err unchanged.
func storeFailed(what, detail string, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return fail(StoreFailed, what, detail,
		"make sure that the disk has space and that the package store is writable", err)
}

// fail returns an [Error]. The hint can be empty, and the cause can be nil. The optional command becomes
// Error.Command.
func fail(code Code, what, detail, hint string, cause error, command ...diag.Command) error {
	e := &Error{Code: code, What: what, Detail: detail, Hint: hint, Err: cause}
	if len(command) > 0 {
		e.Command = command[0]
	}
	return e
}
