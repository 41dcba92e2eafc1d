package client

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Ledger records what ambit has written into clients, by the agent's NAME. Its file is
// installs.json in ambit's home.
type Ledger struct {
	Version int                 `json:"version"`
	Agents  map[string]*Install `json:"agents"`

	dir    string
	unlock func()
}

// Install is the record of one agent.
type Install struct {
	// Copied means that an installation created the agent's folder.
	Copied  bool       `json:"copied"`
	Clients []*Written `json:"clients"`
}

// Written is an entry in a client's file.
type Written struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Key    string `json:"key"`
	// Entry is the hash of the entry.
	Entry string `json:"entry"`
	// Before and After are hashes of the whole file. Backup is a copy of the file before; empty if
	// the file cannot be restored as a whole.
	Before string `json:"before"`
	After  string `json:"after"`
	Backup string `json:"backup,omitempty"`
	// Created means that there was no file, Made that the file had no object for entries. Folders
	// were created for the file.
	Created bool     `json:"created"`
	Made    bool     `json:"made"`
	Folders []string `json:"folders,omitempty"`
}

const ledgerVersion = 1

// OpenLedger reads the ledger and locks it against other processes until Close.
func OpenLedger(home string) (*Ledger, error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(home, "installs.mutex")).Lock()
	if err != nil {
		return nil, err
	}
	l, err := ReadLedger(home)
	if err != nil {
		unlock()
		return nil, err
	}
	l.unlock = unlock
	return l, nil
}

// ReadLedger reads the ledger without a lock.
func ReadLedger(home string) (*Ledger, error) {
	l := &Ledger{Version: ledgerVersion, Agents: map[string]*Install{}, dir: home}
	text, err := os.ReadFile(l.file())
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("%s is invalid: %w", l.file(), err)
	}
	if l.Version != ledgerVersion {
		return nil, fmt.Errorf("%s has version %d, but this ambit supports version %d", l.file(), l.Version, ledgerVersion)
	}
	if l.Agents == nil {
		return nil, fmt.Errorf("%s is invalid: agents is missing", l.file())
	}
	return l, nil
}

// Close releases the lock.
func (l *Ledger) Close() {
	if l.unlock != nil {
		l.unlock()
	}
}

func (l *Ledger) file() string { return filepath.Join(l.dir, "installs.json") }

func (l *Ledger) save() error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(l); err != nil {
		return err
	}
	return l.keep(l.file(), b.Bytes())
}

// keep replaces a file of ours in one step.
func (l *Ledger) keep(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(file), ".ambit-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp) // already renamed on success
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// Of returns the record of an agent in a client, or nil.
func (l *Ledger) Of(name, client string) *Written {
	if in := l.Agents[name]; in != nil {
		for _, w := range in.Clients {
			if w.Client == client {
				return w
			}
		}
	}
	return nil
}

// Copied records that the agent's folder may be removed.
func (l *Ledger) Copied(name string) error {
	l.install(name).Copied = true
	return l.save()
}

func (l *Ledger) install(name string) *Install {
	if l.Agents[name] == nil {
		l.Agents[name] = &Install{}
	}
	return l.Agents[name]
}

// Write carries out a planned change and records it.
func (l *Ledger) Write(name string, ch *Change) error {
	old := l.Of(name, ch.Client.Name)
	w := &Written{Client: ch.Client.Name, File: ch.File, Key: ch.Key, Entry: hash(ch.want)}
	if !ch.Changes() {
		if old != nil {
			return nil
		}
		// The entry existed already: there is no earlier state to restore.
		w.Before, w.After = sum(ch.now.text), sum(ch.now.text)
		return l.remember(name, w)
	}
	var err error
	if w.Folders, err = makeFolders(filepath.Dir(ch.now.real)); err != nil {
		return &FileError{Client: ch.Client, File: ch.File, Reason: plain(err).Error(), Hint: "check that its folder can be created"}
	}
	first := ch.now
	if err := l.backUp(w, first); err != nil {
		return err
	}
	if err := ch.write(); err != nil {
		return err
	}
	if !bytes.Equal(first.text, ch.now.text) {
		// Another program wrote the file in between: its version is the one to restore.
		if err := l.backUp(w, ch.now); err != nil {
			return err
		}
	}
	w.After, w.Created, w.Made = sum(ch.next.text), !ch.now.exists, ch.next.made
	if old != nil {
		w.Created, w.Made, w.Folders = old.Created, old.Made, old.Folders
		if old.After == w.Before {
			w.Before, w.Backup = old.Before, old.Backup
		} else {
			// Other programs changed the file since: there is no single state to restore.
			w.Backup = ""
		}
	}
	return l.remember(name, w)
}

// backUp copies a file, which may contain secrets, into ambit's home.
func (l *Ledger) backUp(w *Written, s snapshot) error {
	w.Before = sum(s.text)
	w.Backup = filepath.Join(l.dir, "backups", w.Client+"-"+sum([]byte(w.File))[:8]+"-"+w.Before[:16])
	if err := l.keep(w.Backup, s.text); err != nil {
		return fmt.Errorf("the backup of %s cannot be written: %w", w.File, err)
	}
	return nil
}

func (l *Ledger) remember(name string, w *Written) error {
	in := l.install(name)
	in.Clients = slices.DeleteFunc(in.Clients, func(o *Written) bool { return o.Client == w.Client })
	in.Clients = append(in.Clients, w)
	if err := l.save(); err != nil {
		return err
	}
	return l.sweep()
}

// Remove carries out a planned removal and deletes its record.
func (l *Ledger) Remove(name string, ch *Change, w *Written) error {
	last := w.Created && l.other(w) == nil
	if ch.Changes() {
		if err := ch.write(); err != nil {
			return err
		}
	}
	if last && ch.now.exists && emptied(ch) {
		if err := os.Remove(ch.now.real); err != nil {
			return err
		}
		for _, dir := range slices.Backward(w.Folders) {
			if os.Remove(dir) != nil {
				break // another program uses the folder
			}
		}
	}
	// Another agent in the same file is now responsible for its removal.
	if heir := l.other(w); heir != nil {
		heir.Created, heir.Made = heir.Created || w.Created, heir.Made || w.Made
		if len(heir.Folders) == 0 {
			heir.Folders = w.Folders
		}
	}
	in := l.Agents[name]
	in.Clients = slices.DeleteFunc(in.Clients, func(o *Written) bool { return o == w })
	if err := l.save(); err != nil {
		return err
	}
	return l.sweep()
}

// emptied reports whether nothing is left in a file that was created for an entry.
func emptied(ch *Change) bool {
	_, text := splitMark(ch.next.text)
	return blank(text) || string(bytes.Join(bytes.Fields(text), nil)) == "{}"
}

// other returns another entry in the same file.
func (l *Ledger) other(w *Written) *Written {
	for _, in := range l.Agents {
		for _, o := range in.Clients {
			if o != w && o.File == w.File {
				return o
			}
		}
	}
	return nil
}

// Forget deletes the record of an agent.
func (l *Ledger) Forget(name string) error {
	delete(l.Agents, name)
	return l.save()
}

// sweep removes unused backups.
func (l *Ledger) sweep() error {
	used := map[string]bool{}
	for _, in := range l.Agents {
		for _, w := range in.Clients {
			used[w.Backup] = true
		}
	}
	dir := filepath.Join(l.dir, "backups")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if file := filepath.Join(dir, e.Name()); !used[file] {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

// makeFolders creates a folder and its parents, and returns the new ones, outermost first.
func makeFolders(dir string) ([]string, error) {
	var made []string
	for d := dir; !isFolder(d); d = filepath.Dir(d) {
		made = append([]string{d}, made...)
		if filepath.Dir(d) == d {
			break
		}
	}
	return made, os.MkdirAll(dir, 0o755)
}
