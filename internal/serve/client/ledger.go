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

// Ledger is what ambit has written into clients, by the NAME of the agent. It
// is installs.json in ambit's home.
type Ledger struct {
	Version int                 `json:"version"`
	Agents  map[string]*Install `json:"agents"`

	dir    string
	unlock func()
}

// Install is one agent.
type Install struct {
	// Copied says that the agent's folder was made by an installation.
	Copied  bool       `json:"copied"`
	Clients []*Written `json:"clients"`
}

// Written is an entry in a client's file.
type Written struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Key    string `json:"key"`
	// Entry stands for what was written.
	Entry string `json:"entry"`
	// Before and After stand for the whole file, and Backup is the first of
	// them; empty if it cannot be restored as a whole.
	Before string `json:"before"`
	After  string `json:"after"`
	Backup string `json:"backup,omitempty"`
	// Created says that there was no file, Made that it had nothing to hold
	// entries, and Folders were made for it.
	Created bool     `json:"created"`
	Made    bool     `json:"made"`
	Folders []string `json:"folders,omitempty"`
}

const ledgerVersion = 1

// OpenLedger reads the ledger, and holds it against other processes until it
// is closed.
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

// ReadLedger only looks.
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
		return nil, fmt.Errorf("%s cannot be read: %w", l.file(), err)
	}
	if l.Version != ledgerVersion {
		return nil, fmt.Errorf("%s is of version %d, and this ambit knows %d", l.file(), l.Version, ledgerVersion)
	}
	if l.Agents == nil {
		return nil, fmt.Errorf("%s names no agents", l.file())
	}
	return l, nil
}

// Close lets others have it.
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

// keep writes a file of ours in one step.
func (l *Ledger) keep(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(file), ".ambit-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp) // gone already if all went well
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// Of is what was written of an agent into a client; nil if nothing.
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

// Copied notes that the agent's folder is ours to remove.
func (l *Ledger) Copied(name string) error {
	in := l.Agents[name]
	if in == nil {
		in = &Install{}
		l.Agents[name] = in
	}
	in.Copied = true
	return l.save()
}

// Write carries out a planned change and remembers it.
func (l *Ledger) Write(name string, ch *Change) error {
	old := l.Of(name, ch.Client.Name)
	w := &Written{Client: ch.Client.Name, File: ch.File, Key: ch.Key, Entry: hash(ch.want)}
	if !ch.Changes() {
		if old != nil {
			return nil
		}
		// It was there already: there is nothing to go back to.
		w.Before, w.After = sum(ch.now.text), sum(ch.now.text)
		return l.remember(name, w)
	}
	var err error
	if w.Folders, err = makeFolders(filepath.Dir(ch.now.real)); err != nil {
		return &FileError{Client: ch.Client, File: ch.File, Reason: plain(err).Error(), Hint: "check that its folder can be made"}
	}
	first := ch.now
	if err := l.backUp(w, first); err != nil {
		return err
	}
	if err := ch.write(); err != nil {
		return err
	}
	if !bytes.Equal(first.text, ch.now.text) {
		// Somebody wrote it in between: what to go back to is what they wrote.
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
			// Others changed the file since: there is no one state to go back to.
			w.Backup = ""
		}
	}
	return l.remember(name, w)
}

// backUp copies a file aside. It may hold somebody's secrets.
func (l *Ledger) backUp(w *Written, s snapshot) error {
	w.Before = sum(s.text)
	w.Backup = filepath.Join(l.dir, "backups", w.Client+"-"+sum([]byte(w.File))[:8]+"-"+w.Before[:16])
	if err := l.keep(w.Backup, s.text); err != nil {
		return fmt.Errorf("the backup of %s cannot be kept: %w", w.File, err)
	}
	return nil
}

func (l *Ledger) remember(name string, w *Written) error {
	in := l.Agents[name]
	if in == nil {
		in = &Install{}
		l.Agents[name] = in
	}
	in.Clients = slices.DeleteFunc(in.Clients, func(o *Written) bool { return o.Client == w.Client })
	in.Clients = append(in.Clients, w)
	if err := l.save(); err != nil {
		return err
	}
	return l.sweep()
}

// Remove carries out a planned removal and forgets it.
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
				break // somebody else has put something there
			}
		}
	}
	// Another agent in the same file is now the one who leaves it last.
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

// emptied reports whether nothing is left in a file that was made for an entry.
func emptied(ch *Change) bool {
	_, text := splitMark(ch.next.text)
	return blank(text) || string(bytes.Join(bytes.Fields(text), nil)) == "{}"
}

// other is another entry in the same file.
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

// Forget drops an agent.
func (l *Ledger) Forget(name string) error {
	delete(l.Agents, name)
	return l.save()
}

// sweep removes the backups that nothing refers to.
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

// makeFolders makes a folder and those above it, and says which were new, the
// outermost first.
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
