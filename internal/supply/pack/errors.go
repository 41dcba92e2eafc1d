package pack

import (
	"errors"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Code says what kind of thing went wrong. The list is closed. A Code is an
// error itself, so that errors.Is(err, pack.Tampered) asks for it.
type Code string

// The codes.
const (
	// Unpinnable: what the command runs cannot be told or hashed as a whole.
	Unpinnable Code = "unpinnable"
	// VersionConflict: two places name different versions of one package.
	VersionConflict Code = "version_conflict"
	// NotFound: there is no such package or version, or the file is none.
	NotFound Code = "not_found"
	// FetchFailed: the client that downloads packages failed.
	FetchFailed Code = "fetch_failed"
	// RuntimeMissing: a program or file that is needed to fetch or run is not here.
	RuntimeMissing Code = "runtime_missing"
	// NoProgram: the package has no program of that name, or too many.
	NoProgram Code = "no_program"
	// Unsafe: the package holds something that the store does not take.
	Unsafe Code = "unsafe_package"
	// DigestMismatch: what was fetched is not what was asked for.
	DigestMismatch Code = "digest_mismatch"
	// NotStored: the store has no such package.
	NotStored Code = "not_stored"
	// Tampered: something in the store is not what it was when it was hashed.
	Tampered Code = "tampered"
	// StoreFailed: the store could not be read or written.
	StoreFailed Code = "store_failed"
	// LockMissing: there is no lock file.
	LockMissing Code = "lock_missing"
	// LockInvalid: the lock file cannot be read; Problems says why.
	LockInvalid Code = "lock_invalid"
	// LockTooNew: a newer ambit wrote the lock file.
	LockTooNew Code = "lock_too_new"
	// BadDefinition: a tool's definition is not one JSON object that everybody
	// reads alike.
	BadDefinition Code = "bad_definition"
	// ManifestUnfit: the manifest cannot be edited as asked.
	ManifestUnfit Code = "manifest_unfit"
)

func (c Code) Error() string { return string(c) }

// Error is everything that goes wrong here.
type Error struct {
	Code Code
	// What it is about: a package, a command, a file.
	What string
	// File is the first file that differs, where Code is Tampered: a path
	// within the package's folder.
	File string
	// Detail says what is wrong with it.
	Detail string
	// Hint says how to fix it, and Command completes it.
	Hint    string
	Command diag.Command
	// Problems are those of a lock file, and Source is the file.
	Problems []diag.Diagnostic
	Source   *diag.Source
	// Err is the cause, where there is one.
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

// CodeOf returns the code of an error of this package, empty for any other.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Lacking reports whether an error is for want of something on this machine: a
// program, a file, space, the way to a registry. Elsewhere the same might work.
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

// storeFailed says that the store could not be read or written.
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
