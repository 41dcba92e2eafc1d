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
)

// FileError is why a client's file was not changed.
type FileError struct {
	Client *Client
	File   string
	Reason string
	Hint   string
}

func (e *FileError) Error() string { return fmt.Sprintf("%s was not changed: %s", e.File, e.Reason) }

// Change is an edit of one client's file.
type Change struct {
	Client *Client
	File   string
	Key    string
	// Diff shows the edit; empty if nothing changes.
	Diff string
	// Theirs means that the change replaces an entry of another program.
	Theirs bool

	entry Entry
	want  any // the value under Key afterwards, or nil
	edit  func(text []byte) (edited, error)
	now   snapshot
	next  edited
	// meanwhile is called before the file is replaced, in tests.
	meanwhile func()
}

// snapshot is a file as it was read.
type snapshot struct {
	real   string // with links resolved
	text   []byte
	exists bool
	mode   fs.FileMode
}

// maxFile bounds a client's file. Some clients store their whole history in it.
const maxFile = 256 << 20

func readSnapshot(file string) (snapshot, error) {
	s := snapshot{real: file, mode: 0o600}
	real, err := filepath.EvalSymlinks(file)
	switch {
	case err == nil:
		s.real = real
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(file); err == nil {
			return s, errors.New("it is a link to a file that does not exist")
		}
		return s, nil
	default:
		return s, err
	}
	f, err := os.Open(s.real)
	if err != nil {
		return s, plain(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return s, plain(err)
	case !info.Mode().IsRegular():
		return s, errors.New("it is not a regular file")
	case info.Size() > maxFile:
		return s, errors.New("it is too large")
	}
	s.exists, s.mode = true, info.Mode().Perm()
	s.text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	return s, err
}

// plain is an error without the path, which its reader already knows.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Plan plans the edit that adds an entry to a client's file. written is the ledger's record of this
// agent, or nil.
func (c *Client) Plan(s System, name string, e Entry, written *Written) (*Change, error) {
	file, _ := c.File(s, name)
	ch := &Change{Client: c, File: file, Key: c.Key(name), entry: e, want: c.editor.meaning(e)}
	if written != nil {
		ch.File, ch.Key = written.File, written.Key
	}
	ch.edit = func(text []byte) (edited, error) { return c.editor.set(text, ch.Key, e) }
	return ch, ch.plan(func(there any) error {
		ch.Theirs = there != nil && !same(there, ch.want) && (written == nil || hash(there) != written.Entry)
		return nil
	})
}

// PlanRemoval plans the removal of an entry.
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
			return out, nil // the backup is damaged
		}
		out.text = before
		ch.want, err = c.editor.get(before, w.Key)
		return out, err
	}
	return ch, ch.plan(func(there any) error {
		if there != nil && hash(there) != w.Entry && !force {
			return errors.New("its entry has changed since ambit wrote it")
		}
		return nil
	})
}

// plan reads the file and makes the edit in memory. check gets the current value.
func (ch *Change) plan(check func(there any) error) error {
	failed := func(err error, hint string) error {
		return &FileError{Client: ch.Client, File: ch.File, Reason: err.Error(), Hint: hint}
	}
	var err error
	if ch.now, err = readSnapshot(ch.File); err != nil {
		return failed(err, "check the file")
	}
	there, err := ch.Client.editor.get(ch.now.text, ch.Key)
	if err != nil {
		return failed(err, "fix the file, or move it away")
	}
	if err := check(there); err != nil {
		return failed(err, "review it, then use --force")
	}
	if same(there, ch.want) {
		ch.next = edited{text: ch.now.text}
		ch.Diff = ""
		return nil
	}
	if ch.now.exists && ch.now.mode&0o200 == 0 {
		return failed(errors.New("it is read-only"), "make it writable")
	}
	if ch.next, err = ch.edit(ch.now.text); err != nil {
		return failed(err, "edit the file by hand")
	}
	got, err := ch.Client.editor.get(ch.next.text, ch.Key)
	if err != nil || !same(got, ch.want) {
		return failed(errors.New("the edit would not have the intended result"), "edit the file by hand")
	}
	ch.Diff = ch.next.diff(ch.Theirs)
	return nil
}

// Changes reports whether the file would change.
func (ch *Change) Changes() bool { return ch.Diff != "" }

// errMoved reports that another program wrote the file in between.
var errMoved = errors.New("another program keeps changing it")

// write replaces the file. If the file has changed since it was read, the edit is planned again.
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
				return &FileError{Client: ch.Client, File: ch.File, Reason: plain(err).Error(), Hint: "check that the file and its folder are writable"}
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
	return &FileError{Client: ch.Client, File: ch.File, Reason: errMoved.Error(), Hint: "close the client and try again"}
}

// replace replaces the file in one step, unless it has changed since it was read.
func (ch *Change) replace() error {
	tmp := filepath.Join(filepath.Dir(ch.now.real), ".ambit-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp) // already renamed on success
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

// mode is the file's mode; a new program is executable.
func (ch *Change) mode() fs.FileMode {
	if _, program := ch.Client.editor.(launcher); program && !ch.now.exists {
		return 0o755
	}
	return ch.now.mode
}

// check reads the file again.
func (ch *Change) check() error {
	now, err := readSnapshot(ch.File)
	if err == nil {
		var there any
		if there, err = ch.Client.editor.get(now.text, ch.Key); err == nil && !same(there, ch.want) {
			err = errors.New("the entry is missing after it was written")
		}
	}
	if err != nil {
		return &FileError{Client: ch.Client, File: ch.File, Reason: err.Error(), Hint: "another program may have written it: try again"}
	}
	return nil
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// hash is the hash of an entry's value, independent of its layout.
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
