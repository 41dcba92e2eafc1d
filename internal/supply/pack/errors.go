package pack

import (
	"errors"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Code is the kind of an [Error]. The list is closed. A Code is an error itself:
// errors.Is(err, pack.Tampered) matches it.
type Code string

// The codes.
const (
	// Unpinnable: the command runs code that cannot be identified or hashed
	// completely.
	Unpinnable Code = "unpinnable"
	// VersionConflict: two places name different versions of one package.
	VersionConflict Code = "version_conflict"
	// NotFound: the package, version or file does not exist.
	NotFound Code = "not_found"
	// FetchFailed: the client that downloads packages failed.
	FetchFailed Code = "fetch_failed"
	// RuntimeMissing: a program or file that fetching or running requires is not
	// installed.
	RuntimeMissing Code = "runtime_missing"
	// NoProgram: the package has no program of that name, or too many.
	NoProgram Code = "no_program"
	// Unsafe: the package contains something that the store refuses.
	Unsafe Code = "unsafe_package"
	// DigestMismatch: the fetched package is not the pinned one.
	DigestMismatch Code = "digest_mismatch"
	// NotStored: the store has no such package.
	NotStored Code = "not_stored"
	// Tampered: the stored package has changed since it was hashed.
	Tampered Code = "tampered"
	// StoreFailed: the store could not be read or written.
	StoreFailed Code = "store_failed"
	// LockMissing: there is no lock file.
	LockMissing Code = "lock_missing"
	// LockInvalid: the lock file cannot be read; Problems lists the reasons.
	LockInvalid Code = "lock_invalid"
	// LockTooNew: a newer ambit wrote the lock file.
	LockTooNew Code = "lock_too_new"
	// BadDefinition: a tool's definition is not a JSON object that every parser reads
	// alike.
	BadDefinition Code = "bad_definition"
	// ManifestUnfit: the requested edit of the manifest is not possible.
	ManifestUnfit Code = "manifest_unfit"
)

func (c Code) Error() string { return string(c) }

// Error is the error type of this package.
type Error struct {
	Code Code
	// What is the package, command or file that the error is about.
	What string
	// File is the first file that differs if Code is Tampered: a path within the
	// package's folder.
	File   string
	Detail string
	// Hint says how to fix it, and Command completes it.
	Hint    string
	Command diag.Command
	// Problems are the problems of the lock file Source.
	Problems []diag.Diagnostic
	Source   *diag.Source
	// Err is the cause, if there is one.
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

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// CodeOf returns the code of an error of this package, or "" for any other error.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Lacking reports whether this machine lacks something: a program, a file, disk space,
// a connection to a registry. The same operation may work on another machine.
func Lacking(err error) bool {
	switch CodeOf(err) {
	case RuntimeMissing, StoreFailed, FetchFailed:
		return true
	}
	return false
}

// HintOf returns the hint of an error of this package, without its command.
func HintOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

var (
	lockCommand   = diag.Command{Verb: "lock"}
	none          = diag.Command{}
	updateCommand = diag.Command{Verb: "lock --update"}
)

// storeFailed returns a StoreFailed error, or err itself if it is an [Error] already.
func storeFailed(what, detail string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{
		Code: StoreFailed, What: what, Detail: detail, Err: err,
		Hint: "make sure that the disk has space and that the package store can be written",
	}
}
