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

// LockName is the file name of a lock.
const LockName = "ambit.lock"

// lockVersion is the version of the format.
const lockVersion = 1

// Lock is the content of a lock file.
type Lock struct {
	// Agents are keyed by agent id.
	Agents map[string]*LockedAgent
	// Dependencies are the lists of dependencies to install, in canonical form, keyed
	// by digest.
	Dependencies map[string][]byte
}

// LockedAgent holds the locked servers of one agent, by alias.
type LockedAgent struct {
	Servers map[string]*LockedServer `json:"servers"`
}

// LockedServer is the locked state of one server.
type LockedServer struct {
	// Resolved is the result of resolving the server's id; nil if the manifest itself
	// gives the command.
	Resolved *Resolved     `json:"resolved,omitempty"`
	Package  LockedPackage `json:"package"`
	// Protocol is the MCP revision that the server speaks.
	Protocol string                `json:"protocol,omitempty"`
	Tools    map[string]LockedTool `json:"tools"`
}

// LockedPackage is the package that a server runs.
type LockedPackage struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digest is empty for a remote server.
	Digest string `json:"digest,omitempty"`
	// Builds are the installed trees by os/arch; npm and Python packages only.
	Builds map[string]Build `json:"builds,omitempty"`
	// Scripts are the packages whose install scripts were allowed to run.
	Scripts []string `json:"scripts,omitempty"`
}

// Build is a package as installed on one platform.
type Build struct {
	Tree string `json:"tree"`
	// Lockfile is the digest of the list of dependencies.
	Lockfile string `json:"lockfile"`
}

// LockedTool is a tool's definition in canonical form, and its hash.
type LockedTool struct {
	Hash       string          `json:"hash"`
	Definition json.RawMessage `json:"definition"`
}

// Server returns the locked state of a server, or nil.
func (l *Lock) Server(agentID, alias string) *LockedServer {
	if l == nil || l.Agents[agentID] == nil {
		return nil
	}
	return l.Agents[agentID].Servers[alias]
}

// Here returns the build for this machine, or an empty Build if dependencies must be
// resolved anew. A package that was locked only on other platforms is installed with
// the same dependencies, if its list fits all platforms.
func (p LockedPackage) Here() Build {
	b, here := p.Builds[platform()]
	if !here && p.Kind == NPM {
		for _, key := range slices.Sorted(maps.Keys(p.Builds)) {
			b.Lockfile = p.Builds[key].Lockfile
		}
	}
	return b
}

// Want returns what the store must contain for a locked package on this machine.
func (l *Lock) Want(p LockedPackage) Want {
	b := p.Here()
	w := Want{Digest: p.Digest, Tree: b.Tree, Scripts: p.Scripts}
	if b.Lockfile != "" {
		w.Dependencies = l.Dependencies[b.Lockfile]
	}
	return w
}

// Locked returns the package's entry for a lock. before is the entry it replaces, or
// nil: its builds for other platforms are kept if they still fit.
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

// Keep adds a package's list of dependencies to the lock.
func (l *Lock) Keep(p *Package) {
	if p.Lockfile != "" {
		l.Dependencies[p.Lockfile] = p.Dependencies
	}
}

// Digest identifies the locked state of an agent, so that a caller can detect changes.
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

// NewLock returns an empty lock.
func NewLock() *Lock {
	return &Lock{Agents: map[string]*LockedAgent{}, Dependencies: map[string][]byte{}}
}

// Encode returns the lock as text. Equal locks give equal texts, without lists of
// dependencies that no package uses. Encode fails if the text could not be parsed
// again.
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

// used lists the digests of dependencies that some package refers to.
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

// oneLineEach writes the members of an object, one per line.
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

// UpdateLock reads, changes and replaces the lock file at path, while other updates on
// this machine wait. A missing file is an empty lock; an unreadable file is not
// touched. It reports whether the file's text changed.
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

// mutexPath is the lock shared by all processes of one user that update path. It is
// outside the folder of manifests, which should contain nothing else.
func mutexPath(path string) string {
	return filepath.Join(os.TempDir(), "ambit-"+strconv.Itoa(os.Getuid())+"-"+digestOf([]byte(path))[len(digestPrefix):][:24]+".mutex")
}

// replaceFile replaces a file atomically: readers see the old content or the new.
func replaceFile(path string, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	return home.Replace(path, mode, content)
}
