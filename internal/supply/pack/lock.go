package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/store/home"
)

// LockName is what a lock file is called.
const LockName = "ambit.lock"

// lockVersion is that of the format.
const lockVersion = 1

// Lock is what a lock file holds.
type Lock struct {
	// Agents are keyed by agent id.
	Agents map[string]*LockedAgent
	// Dependencies are the lists that packages are installed with, in canonical
	// form, keyed by their digest.
	Dependencies map[string][]byte
}

// LockedAgent is what was proven of one agent: its servers, by alias.
type LockedAgent struct {
	Servers map[string]*LockedServer `json:"servers"`
}

// LockedServer is what was proven of one server.
type LockedServer struct {
	// Resolved is what its id was resolved to; nil for a server that the manifest
	// itself starts.
	Resolved *Resolved     `json:"resolved,omitempty"`
	Package  LockedPackage `json:"package"`
	// Protocol is the MCP revision that the server spoke.
	Protocol string                `json:"protocol,omitempty"`
	Tools    map[string]LockedTool `json:"tools"`
}

// LockedPackage is what a server runs.
type LockedPackage struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digest is empty for a remote server.
	Digest string `json:"digest,omitempty"`
	// Builds are what was installed, by os/arch; npm and Python packages only.
	Builds map[string]Build `json:"builds,omitempty"`
	// Scripts are the packages whose install scripts were allowed to run.
	Scripts []string `json:"scripts,omitempty"`
}

// Build is a package as installed on one platform.
type Build struct {
	Tree string `json:"tree"`
	// Lockfile names the list of dependencies.
	Lockfile string `json:"lockfile"`
}

// LockedTool is a tool's definition in canonical form, and its hash.
type LockedTool struct {
	Hash       string          `json:"hash"`
	Definition json.RawMessage `json:"definition"`
}

// Server returns what was proven of a server, or nil.
func (l *Lock) Server(agentID, alias string) *LockedServer {
	if l == nil || l.Agents[agentID] == nil {
		return nil
	}
	return l.Agents[agentID].Servers[alias]
}

// Here is what counts of the builds on this machine; nothing if the dependencies are
// to be chosen. A package that was locked on other platforms only is installed with
// the same dependencies, where a list fits all platforms.
func (p LockedPackage) Here() Build {
	b, here := p.Builds[platform()]
	if !here && p.Kind == NPM {
		for _, key := range slices.Sorted(maps.Keys(p.Builds)) {
			b.Lockfile = p.Builds[key].Lockfile
		}
	}
	return b
}

// Want is what the store must hold for a locked package on this machine.
func (l *Lock) Want(p LockedPackage) Want {
	b := p.Here()
	w := Want{Digest: p.Digest, Tree: b.Tree, Scripts: p.Scripts}
	if b.Lockfile != "" {
		w.Dependencies = l.Dependencies[b.Lockfile]
	}
	return w
}

// Locked is the package as it stands in a lock. With before, the entry that it
// replaces, what was installed on other platforms is kept if it still fits.
func (p *Package) Locked(before *LockedPackage) LockedPackage {
	l := LockedPackage{Kind: p.Kind, Name: p.Name, Version: p.Version, Digest: p.Digest, Scripts: p.Scripts}
	if p.Tree == "" {
		return l
	}
	l.Builds = map[string]Build{}
	if before != nil && before.Digest == p.Digest && slices.Equal(before.Scripts, p.Scripts) {
		for key, b := range before.Builds {
			if p.Kind == PyPI || b.Lockfile == p.Lockfile {
				l.Builds[key] = b
			}
		}
	}
	l.Builds[p.Platform] = Build{Tree: p.Tree, Lockfile: p.Lockfile}
	return l
}

// Keep puts a package's list of dependencies into the lock.
func (l *Lock) Keep(p *Package) {
	if p.Lockfile != "" {
		l.Dependencies[p.Lockfile] = p.Dependencies
	}
}

// Digest identifies what is locked for an agent, so that a caller can remember
// it and know it again.
func (a *LockedAgent) Digest() string {
	b, err := json.Marshal(a)
	if err == nil {
		b, err = canonical(b)
	}
	if err != nil {
		return ""
	}
	return digestOf(b)
}

// NewLock returns a lock of nothing.
func NewLock() *Lock {
	return &Lock{Agents: map[string]*LockedAgent{}, Dependencies: map[string][]byte{}}
}

// Encode writes the lock as text: the same lock always gives the same text, in
// which lists of dependencies that nothing uses are left out. It fails if the
// text could not be read again.
func (l *Lock) Encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{\n  \"version\": " + strconv.Itoa(lockVersion) + ",\n  \"agents\": ")
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("  ", "  ")
	agents := l.Agents
	if agents == nil {
		agents = map[string]*LockedAgent{}
	}
	if err := enc.Encode(agents); err != nil {
		return nil, &Error{Code: LockInvalid, Detail: "the lock cannot be written", Err: err}
	}
	b.Truncate(b.Len() - 1)
	used := l.used()
	if len(used) > 0 {
		b.WriteString(",\n  \"dependencies\": {")
		for i, digest := range used {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n    " + strconv.Quote(digest) + ": {")
			if err := oneLineEach(&b, l.Dependencies[digest]); err != nil {
				return nil, &Error{Code: LockInvalid, What: digest, Detail: "a list of dependencies cannot be written", Err: err}
			}
			b.WriteString("\n    }")
		}
		b.WriteString("\n  }")
	}
	b.WriteString("\n}\n")
	if _, err := ParseLock(LockName, b.Bytes()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// used lists the dependencies that some package needs.
func (l *Lock) used() []string {
	var used []string
	for _, a := range l.Agents {
		for _, s := range a.Servers {
			for _, build := range s.Package.Builds {
				if _, ok := l.Dependencies[build.Lockfile]; ok {
					used = append(used, build.Lockfile)
				}
			}
		}
	}
	return sorted(used)
}

// oneLineEach writes the members of an object, one a line.
func oneLineEach(b *bytes.Buffer, object []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return err
	}
	for i, key := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n      " + text(key, true) + ": ")
		b.Write(members[key])
	}
	return nil
}

// UpdateLock changes the lock file at path: it is read, changed and replaced in
// one step, while other updates on this machine wait. A file that is not there
// is an empty lock; one that cannot be read is left alone. It reports whether
// the file's text changed.
func UpdateLock(path string, change func(*Lock) error) (changed bool, err error) {
	failed := func(err error) error {
		return storeFailed(path, "the lock file cannot be written", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return false, failed(err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	unlock, err := lockedfile.MutexAt(mutexPath(path)).Lock()
	if err != nil {
		return false, failed(err)
	}
	defer unlock()
	l := NewLock()
	before, err := readBounded(path, doc.MaxBytes)
	if err == nil {
		l, err = ParseLock(path, before)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, failed(err)
	}
	if err := change(l); err != nil {
		return false, err
	}
	after, err := l.Encode()
	if err != nil || bytes.Equal(before, after) {
		return false, err
	}
	if err := replaceFile(path, after); err != nil {
		return false, failed(err)
	}
	return true, nil
}

// mutexPath is a file that stands for path among all processes of one user. It
// lies elsewhere, so that folders of manifests hold nothing but them.
func mutexPath(path string) string {
	return filepath.Join(os.TempDir(), "ambit-"+strconv.Itoa(os.Getuid())+"-"+digestOf([]byte(path))[len(digestPrefix):][:24]+".mutex")
}

// replaceFile writes a file in one step: whoever reads it sees the old content
// or the new.
func replaceFile(path string, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	return home.Replace(path, mode, content)
}
