package client

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"

	"github.com/ambit-run/ambit/internal/store/home"
)

// FileError reports why a client's file was not changed.
type FileError struct {
	Client *Client
	File   string
	Reason string
	Hint   string
}

func (e *FileError) Error() string { return fmt.Sprintf("%s was not changed: %s", e.File, e.Reason) }

// Change is a planned edit of one client's file.
type Change struct {
	Client *Client
	File   string
	Key    string
	// Diff describes the edit to the user. It is empty if nothing changes.
	Diff string
	// Theirs is true if the edit replaces an entry that ambit did not write.
	Theirs bool

	entry     Entry
	want      any // the value of the entry after the edit, or nil if the edit removes the entry
	edit      func(text []byte) (edited, error)
	now       snapshot
	next      edited
	meanwhile func() // set only by tests; runs just before the file is replaced
}

// snapshot is the state of a file when it was read.
type snapshot struct {
	real   string // the path with symbolic links resolved
	text   []byte
	exists bool
	mode   fs.FileMode
}

// maxFile is the maximum size of a client's file. Some clients store their whole history in the file.
const maxFile = 256 << 20

func readSnapshot(file string) (snapshot, error) {
	s := snapshot{real: file, mode: 0o600}
	real, err := filepath.EvalSymlinks(file)
	switch {
	case err == nil:
		s.real = real
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(file); err == nil {
			return s, errors.New("the file is a link to a file that does not exist")
		}
		return s, nil
	default:
		return s, err
	}
	f, err := os.OpenFile(s.real, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe must not block
	if err != nil {
		return s, home.WithoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return s, home.WithoutPath(err)
	case !info.Mode().IsRegular():
		return s, errors.New("the file is not a regular file")
	case info.Size() > maxFile:
		return s, fmt.Errorf("the file is larger than %d MiB", maxFile>>20)
	}
	s.exists, s.mode = true, info.Mode().Perm()
	s.text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	return s, err
}

// Plan plans the edit that adds the agent's entry to the client's file. The last parameter is the ledger's record of an
// earlier installation, or nil.
func (c *Client) Plan(s System, name string, e Entry, written *Written) (*Change, error) {
	file, _ := c.File(s, name)
	ch := &Change{Client: c, File: file, Key: c.Key(name), entry: e, want: c.editor.valueOf(e)}
	if written != nil {
		ch.File, ch.Key = written.File, written.Key
	}
	ch.edit = func(text []byte) (edited, error) { return c.editor.set(text, ch.Key, e) }
	return ch, ch.plan(func(there any) error {
		ch.Theirs = there != nil && !same(there, ch.want) && (written == nil || hash(there) != written.Entry)
		return nil
	})
}

// PlanRemoval plans the removal of a recorded entry. Without force, it fails if the entry has changed since ambit
// wrote it.
func (c *Client) PlanRemoval(w *Written, force bool) (*Change, error) {
	ch := &Change{Client: c, File: w.File, Key: w.Key}
	ch.edit = func(text []byte) (edited, error) {
		out, err := c.editor.remove(text, w.Key, w.Made)
		ch.want = nil
		if err != nil || w.Backup == "" || sum(text) != w.After {
			return out, err
		}
		before, err := os.ReadFile(w.Backup)
		if err != nil || sum(before) != w.Before {
			return out, nil // without a valid backup, remove the entry instead of restoring the file
		}
		out.text = before
		ch.want, err = c.editor.get(before, w.Key)
		return out, err
	}
	return ch, ch.plan(func(there any) error {
		if there != nil && hash(there) != w.Entry && !force {
			return errors.New("the entry for this agent has changed since ambit wrote it")
		}
		return nil
	})
}

// failed wraps err in a [FileError] with a hint. It removes the path from err, because FileError contains the path.
func (ch *Change) failed(err error, hint string) error {
	return &FileError{Client: ch.Client, File: ch.File, Reason: home.WithoutPath(err).Error(), Hint: hint}
}

// plan reads the file and makes the edit in memory. It calls the callback with the current value of the entry, or
// with nil if there is no entry. It fails if the callback returns an error.
func (ch *Change) plan(check func(there any) error) error {
	var err error
	if ch.now, err = readSnapshot(ch.File); err != nil {
		return ch.failed(err, "check that the file is readable")
	}
	there, err := ch.Client.editor.get(ch.now.text, ch.Key)
	if err != nil {
		return ch.failed(err, "fix the file, or move it to another folder")
	}
	if err := check(there); err != nil {
		return ch.failed(err, "review the entry, then run the command again with --force")
	}
	if same(there, ch.want) {
		ch.next = edited{text: ch.now.text}
		ch.Diff = ""
		return nil
	}
	if ch.now.exists && ch.now.mode&0o200 == 0 {
		return ch.failed(errors.New("the file is read-only"), "make the file writable")
	}
	if ch.next, err = ch.edit(ch.now.text); err != nil {
		return ch.failed(err, "edit the file by hand")
	}
	got, err := ch.Client.editor.get(ch.next.text, ch.Key)
	if err != nil || !same(got, ch.want) {
		return ch.failed(errors.New("the edit would not have the intended result"), "edit the file by hand")
	}
	ch.Diff = ch.next.diff(ch.Theirs)
	return nil
}

// Changes reports whether the file would change.
func (ch *Change) Changes() bool { return ch.Diff != "" }

// errMoved reports that another program changed the file after it was read.
var errMoved = errors.New("another program keeps changing the file")

// write replaces the file. If another program has changed the file since it was read, write plans the edit again and
// retries.
func (ch *Change) write() error {
	again := func(there any) error {
		if ch.want != nil && there != nil && !same(there, ch.want) && !ch.Theirs && ch.next.removed == "" {
			return errors.New("another program has just written an entry with this name")
		}
		return nil
	}
	for range 10 {
		err := ch.replace()
		if !errors.Is(err, errMoved) {
			if err != nil {
				return ch.failed(err, "check that the file and its folder are writable")
			}
			return ch.check()
		}
		if err := ch.plan(again); err != nil {
			return err
		}
		if !ch.Changes() {
			return nil
		}
	}
	return ch.failed(errMoved, "close the client and try again")
}

// replace writes the edited text to a temporary file and renames it to the client's file. It returns errMoved if the
// client's file has changed since it was read.
func (ch *Change) replace() error {
	tmp := filepath.Join(filepath.Dir(ch.now.real), ".ambit-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp) // has no effect after the rename
	_, err = f.Write(ch.next.text)
	if err = errors.Join(err, f.Chmod(ch.mode()), f.Sync(), f.Close()); err != nil {
		return err
	}
	if ch.meanwhile != nil {
		ch.meanwhile()
	}
	now, err := readSnapshot(ch.File)
	if err != nil {
		return err
	}
	if now.exists != ch.now.exists || now.real != ch.now.real || !bytes.Equal(now.text, ch.now.text) {
		return errMoved
	}
	return os.Rename(tmp, ch.now.real)
}

// mode returns the mode of the written file. An existing file keeps its mode. A new launcher is executable.
func (ch *Change) mode() fs.FileMode {
	if _, program := ch.Client.editor.(launcher); program && !ch.now.exists {
		return 0o755
	}
	return ch.now.mode
}

// check reads the file again and fails if the file does not contain the result of the edit.
func (ch *Change) check() error {
	now, err := readSnapshot(ch.File)
	if err == nil {
		var there any
		if there, err = ch.Client.editor.get(now.text, ch.Key); err == nil && !same(there, ch.want) {
			err = errors.New("ambit changed the file, but the file no longer contains the change")
		}
	}
	if err != nil {
		return ch.failed(err, "close the client, which may have overwritten the file, and try again")
	}
	return nil
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// hash returns a hash of an entry's value. The hash does not depend on the formatting of the file.
func hash(entry any) string {
	text, err := json.Marshal(entry)
	if err != nil {
		return ""
	}
	return sum(text)
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}
