package pack

import (
	"bytes"
	"cmp"
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

// LockName is the name of the lock file.
const LockName = "ambit.lock"

const lockVersion = 1

// Lock is the content of a lock file.
type Lock struct {
	// Agents maps agent ids to locked agents.
	Agents map[string]*LockedAgent
	// Dependencies maps digests to lists of dependencies. Each list is in canonical form, and its key is its digest.
	Dependencies map[string][]byte
}

// LockedAgent contains the locked servers of one agent, by alias.
type LockedAgent struct {
	Servers map[string]*LockedServer `json:"servers"`
	// Quarantined lists the sorted aliases of the servers that did not work when the agent was locked. These servers
	// have no entry in Servers.
	Quarantined []string `json:"quarantined,omitempty"`
}

// LockedServer is the locked state of one server.
type LockedServer struct {
	// Resolved is the result of resolving the server's id. It is nil if the manifest itself contains the command.
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
	// Builds contains one build for each platform (os/arch). Local files, programs and remote servers
	// have no builds.
	Builds map[string]Build `json:"builds,omitempty"`
	// Folder is the digest of all files of the project that contains a local file.
	Folder string `json:"folder,omitempty"`
	// Scripts lists the packages whose install scripts were allowed to run.
	Scripts []string `json:"scripts,omitempty"`
}

// Build is a package as installed on one platform.
type Build struct {
	Tree string `json:"tree"`
	// Lockfile is the digest of the list of dependencies. Lock.Dependencies contains the list itself under this digest.
	Lockfile string `json:"lockfile"`
}

// LockedTool is a tool's definition in canonical form, with its hash.
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

// Here returns the build for this machine's platform. If there is none, Here returns an empty Build, and the
// dependencies must be resolved again. For npm, Here returns the Lockfile of another platform instead, because npm's
// list of dependencies is valid for all platforms.
func (p LockedPackage) Here() Build {
	b, here := p.Builds[platform()]
	if !here && p.Kind == NPM {
		for _, key := range slices.Sorted(maps.Keys(p.Builds)) {
			b.Lockfile = p.Builds[key].Lockfile
		}
	}
	return b
}

// Want returns a [Want] that matches a locked package on this machine.
func (l *Lock) Want(p LockedPackage) Want {
	b := p.Here()
	w := Want{Digest: p.Digest, Tree: cmp.Or(b.Tree, p.Folder), Scripts: p.Scripts}
	if b.Lockfile != "" {
		w.Dependencies = l.Dependencies[b.Lockfile]
	}
	return w
}

// Locked returns the package's entry for a lock file. The argument is the entry to replace, or nil. If the archive and
// the install scripts have not changed, the old builds for other platforms are kept. For npm, the list of dependencies
// must be unchanged too.
func (p *Package) Locked(old *LockedPackage) LockedPackage {
	l := LockedPackage{Kind: p.Kind, Name: p.Name, Version: p.Version, Digest: p.Digest, Scripts: p.Scripts}
	if p.Kind == File {
		l.Folder = p.Tree
		return l
	}
	if p.Tree == "" {
		return l
	}
	l.Builds = map[string]Build{}
	if old != nil && old.Digest == p.Digest && slices.Equal(old.Scripts, p.Scripts) {
		for key, b := range old.Builds {
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

// Digest returns a hash of the agent's locked state. Callers use it to detect changes.
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

// Encode returns the content of the lock file. Equal locks have equal encodings. Unused lists of dependencies are
// omitted. Encode fails if ParseLock would reject the result.
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
		return nil, fail(LockInvalid, "", "the lock cannot be written", "", err)
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
				return nil, fail(LockInvalid, digest, "a list of dependencies cannot be written", "", err)
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

// used returns the digests of the dependency lists that at least one package uses.
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

// oneLineEach writes the members of a JSON object to b, one per line.
func oneLineEach(b *bytes.Buffer, object []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return err
	}
	for i, key := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n      " + jsonText(key, true) + ": ")
		b.Write(members[key])
	}
	return nil
}

// UpdateLock reads the lock file at path, lets the callback change the lock, and replaces the file with the result.
// Concurrent updates by the same user wait for each other. A missing file is treated as an empty lock. If the file
// cannot be read, UpdateLock fails and does not change the file. The first result reports whether the content of the
// file changed.
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

// mutexPath returns the path of the mutex file for the lock file at path. All processes of one user that update the
// lock file use the same mutex file. It is in the temporary folder, so that it does not clutter the folder of the
// manifests.
func mutexPath(path string) string {
	return filepath.Join(os.TempDir(),
		"ambit-"+strconv.Itoa(os.Getuid())+"-"+digestOf([]byte(path))[len(digestPrefix):][:24]+".mutex")
}

// replaceFile replaces a file atomically. Other processes read either the old or the new content.
func replaceFile(path string, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	return home.Replace(path, mode, content)
}
