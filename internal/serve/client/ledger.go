package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Ledger records the entries that ambit has written to the files of clients. It is stored in installs.json in ambit's
// home. The keys of Agents are the names of the agents.
type Ledger struct {
	Version int                 `json:"version"`
	Agents  map[string]*Install `json:"agents"`

	dir    string
	unlock func()
}

// Install is the record of one agent.
type Install struct {
	// Copied is true if ambit created the agent's folder. In this case, uninstalling the agent removes the folder.
	Copied  bool       `json:"copied"`
	Clients []*Written `json:"clients"`
}

// Written is the record of an entry that ambit wrote into a client's file.
type Written struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Key    string `json:"key"`
	// Entry is the hash of the entry.
	Entry string `json:"entry"`
	// Before is the hash of the whole file before the entry was written.
	Before string `json:"before"`
	// After is the hash of the whole file after the entry was written.
	After string `json:"after"`
	// Backup is the path of a copy of the file, as it was before the entry was written. It is empty if there is no copy
	// from which the file can be restored.
	Backup string `json:"backup,omitempty"`
	// Created is true if ambit created the file.
	Created bool `json:"created"`
	// Made is true if ambit created the JSON object or TOML table that contains the entries.
	Made bool `json:"made"`
	// Folders lists the folders that ambit created for the file, outermost first.
	Folders []string `json:"folders,omitempty"`
}

const ledgerVersion = 1

// OpenLedger reads the ledger in a folder and locks it. Other processes cannot open the ledger until Close is called.
func OpenLedger(dir string) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(dir, "installs.mutex")).Lock()
	if err != nil {
		return nil, err
	}
	l, err := ReadLedger(dir)
	if err != nil {
		unlock()
		return nil, err
	}
	l.unlock = unlock
	return l, nil
}

// ReadLedger reads the ledger in a folder without locking it.
func ReadLedger(dir string) (*Ledger, error) {
	l := &Ledger{Version: ledgerVersion, Agents: map[string]*Install{}, dir: dir}
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
		return nil, fmt.Errorf("%s has format version %d, but this ambit supports only format version %d",
			l.file(), l.Version, ledgerVersion)
	}
	if l.Agents == nil {
		return nil, fmt.Errorf("%s is invalid: the member \"agents\" is missing", l.file())
	}
	return l, nil
}

// Close unlocks the ledger, so that other processes can open it.
func (l *Ledger) Close() {
	if l.unlock != nil {
		l.unlock()
	}
}

func (l *Ledger) file() string { return filepath.Join(l.dir, "installs.json") }

// save writes the ledger and removes the backups that no record uses.
func (l *Ledger) save() error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(l); err != nil {
		return err
	}
	if err := home.Replace(l.file(), 0o600, b.Bytes()); err != nil {
		return err
	}
	return l.sweep()
}

// Of returns the record of the agent's entry in a client's file, or nil.
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

// Copied sets [Install.Copied] for an agent and saves the ledger.
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

// Write makes a planned change to a client's file and records the agent's new entry.
func (l *Ledger) Write(name string, ch *Change) error {
	old := l.Of(name, ch.Client.Name)
	w := &Written{Client: ch.Client.Name, File: ch.File, Key: ch.Key, Entry: hash(ch.want)}
	if !ch.Changes() {
		if old != nil {
			return nil
		}
		// The file already contains the entry, so there is no earlier state to restore.
		w.Before, w.After = sum(ch.now.text), sum(ch.now.text)
		return l.remember(name, w)
	}
	var err error
	if w.Folders, err = makeFolders(filepath.Dir(ch.now.real)); err != nil {
		return ch.failed(err, "check that the file's folder can be created")
	}
	first := ch.now
	if err := l.backUp(w, first); err != nil {
		return err
	}
	if err := ch.write(); err != nil {
		return err
	}
	// If another program changed the file after the first backup, back up the newer version. An error is ignored, because
	// the entry is already written and must be recorded. Without a backup, PlanRemoval removes the entry instead of
	// restoring the file.
	if !bytes.Equal(first.text, ch.now.text) && l.backUp(w, ch.now) != nil {
		w.Backup = ""
	}
	w.After, w.Created, w.Made = sum(ch.next.text), !ch.now.exists, ch.next.made
	if old != nil {
		w.Created, w.Made, w.Folders = old.Created, old.Made, old.Folders
		if old.After == w.Before {
			w.Before, w.Backup = old.Before, old.Backup
		} else {
			// Another program changed the file after ambit's previous change. The old backup lacks this change, and the new
			// backup may contain ambit's old entry. Therefore, neither backup can be used to restore the file.
			w.Backup = ""
		}
	}
	return l.remember(name, w)
}

// backUp copies the file to ambit's home. Only the user can read the copy, because the file may contain secrets.
func (l *Ledger) backUp(w *Written, s snapshot) error {
	w.Before = sum(s.text)
	w.Backup = filepath.Join(l.dir, "backups", w.Client+"-"+sum([]byte(w.File))[:8]+"-"+w.Before[:16])
	err := os.MkdirAll(filepath.Dir(w.Backup), 0o700)
	if err == nil {
		err = home.Replace(w.Backup, 0o600, s.text)
	}
	if err != nil {
		return fmt.Errorf("%s was not changed, because its backup cannot be written: %w", w.File, err)
	}
	return nil
}

func (l *Ledger) remember(name string, w *Written) error {
	in := l.install(name)
	in.Clients = slices.DeleteFunc(in.Clients, func(o *Written) bool { return o.Client == w.Client })
	in.Clients = append(in.Clients, w)
	return l.save()
}

// Remove makes the planned removal of an entry and deletes the entry's record. If ambit created the file and nothing
// else is left in it, Remove also deletes the file.
func (l *Ledger) Remove(name string, ch *Change, w *Written) error {
	last := w.Created && l.otherEntry(w) == nil
	if ch.Changes() {
		if err := ch.write(); err != nil {
			return err
		}
	}
	if last && ch.now.exists && leavesEmpty(ch) {
		if err := os.Remove(ch.now.real); err != nil {
			return err
		}
		for _, dir := range slices.Backward(w.Folders) {
			if os.Remove(dir) != nil {
				break // fails if the folder is not empty
			}
		}
	}
	// If there is a record of another entry in this file, note in that record what ambit created. When the other entry is
	// removed, Remove can then delete the file and its folders.
	if heir := l.otherEntry(w); heir != nil {
		heir.Created, heir.Made = heir.Created || w.Created, heir.Made || w.Made
		if len(heir.Folders) == 0 {
			heir.Folders = w.Folders
		}
	}
	in := l.Agents[name]
	in.Clients = slices.DeleteFunc(in.Clients, func(o *Written) bool { return o == w })
	return l.save()
}

// leavesEmpty reports whether the file is blank or contains only an empty JSON object after the change.
func leavesEmpty(ch *Change) bool {
	_, text := splitMark(ch.next.text)
	return blank(text) || string(bytes.Join(bytes.Fields(text), nil)) == "{}"
}

// otherEntry returns the record of another entry in the same file, or nil.
func (l *Ledger) otherEntry(w *Written) *Written {
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

// sweep removes the backups that no record uses.
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

// makeFolders creates a folder and its parents. It returns the folders that did not exist before, outermost first.
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
