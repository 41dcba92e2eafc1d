// Package learn finds out which access a tool server needs.
//
// A [Recorder] collects the files, programs and hosts that the servers of an agent try to use in their sandboxes. It
// compares them with the rights of a server, and proposes the rights that the server lacks. Even while ambit learns,
// the sandboxes enforce the rights. A server that stops after a refusal must be observed again after the proposal was
// accepted.
//
// This package gives no rights to a server. A person reads the proposal and decides whether to allow it.
package learn

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
)

// maxUses is the maximum number of different uses that are recorded for one server. maxBytes is the maximum total
// length of their paths. For comparison, a Node.js program opens several thousand files.
const (
	maxUses  = 1 << 16
	maxBytes = 8 << 20
)

// Recorder collects what servers use. The zero value is ready.
type Recorder struct {
	mu      sync.Mutex
	servers map[string]*record
}

// record is what one server tried to use.
type record struct {
	uses  map[agent.Right]bool // the value is set if the sandbox contained the file
	bytes int                  // the total length of all paths and hosts
	full  bool                 // set if the server used more things than the recorder keeps
}

// Use records that a server tried to use something. If use.What is a path, it is a path inside the server's sandbox.
// The sandbox contains the file if found() returns true. In that case, found is not called again for this use.
func (r *Recorder) Use(alias string, use agent.Right, found func() bool) {
	if !r.open(alias, use) || !found() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers[alias].uses[use] = true
}

// open adds a use to the record. It returns false if the use was already recorded as found, or if the record is full.
func (r *Recorder) open(alias string, use agent.Right) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.servers[alias]
	if of == nil {
		if r.servers == nil {
			r.servers = map[string]*record{}
		}
		of = &record{uses: map[agent.Right]bool{}}
		r.servers[alias] = of
	}
	found, known := of.uses[use]
	if !known {
		if of.bytes += len(use.What); len(of.uses) >= maxUses || of.bytes > maxBytes {
			of.full = true
			return false
		}
		of.uses[use] = false
	}
	return !found
}

// Used returns the number of different things that a server tried to use. The second result is false if the server
// used more things than the recorder keeps.
func (r *Recorder) Used(alias string) (n int, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.servers[alias]
	if of == nil {
		return 0, true
	}
	return len(of.uses), !of.full
}

// Propose returns the rights that a server lacks for its recorded uses. It proposes only files and programs that exist
// on this machine. For a file that the server looked for in its private home, it proposes the file in the owner's home.
// The parameter hidden is the path of ambit's home, which no server can see.
func (r *Recorder) Propose(alias string, access agent.Access, home, hidden string) agent.Access {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.servers[alias]
	if of == nil {
		return nil
	}
	// A server with the right to start programs, for example a shell, looks for each program in several folders.
	programs := access.Of(agent.CanExecute)
	runs := len(programs) > 0
	for _, r := range programs {
		access = append(slices.Clip(access), agent.Right{Kind: agent.CanExecute, What: realFolder(r.What)})
	}
	lacking, looks := rights{}, rights{}
	for use, found := range of.uses {
		looked := use.Kind == shim.Look
		if looked {
			use.Kind = agent.CanRead
		}
		switch use.Kind {
		case agent.CanRead, agent.CanWrite:
			if program, ok := inPath(use.What); ok && !found && runs {
				use = agent.Right{Kind: agent.CanExecute, What: program}
				looked = false
				break
			}
			use = onMachine(use, home)
			if use.What == "" || sandbox.Inside(use.What, hidden) || found && use.Kind == agent.CanRead {
				continue
			}
		case agent.CanExecute:
			if rel, err := filepath.Rel(sandbox.Home, use.What); err == nil && filepath.IsLocal(rel) {
				use.What = filepath.Join(home, rel)
			}
			use.What = realFolder(use.What)
			if !filepath.IsAbs(use.What) || !executable(use.What) {
				continue
			}
		}
		switch {
		case access.Allows(use):
		case looked:
			looks[use] = true
		default:
			lacking[use] = true
		}
	}
	above := lacking.above()
	for look := range looks {
		if !above[look.What] {
			lacking[look] = true
		}
	}
	return lacking.folders().widest()
}

// searchPath lists the folders in which programs look for other programs.
var searchPath = []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"}

// inPath returns the real path of a program that is in one of the folders of searchPath.
func inPath(path string) (program string, ok bool) {
	if !slices.Contains(searchPath, filepath.Dir(path)) || !executable(path) {
		return "", false
	}
	return realFolder(path), true
}

// realFolder returns a path with the links in its folder resolved, such as /usr/bin/sh for /bin/sh.
func realFolder(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && filepath.IsAbs(path) {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// above returns the folders that contain the paths in the set. A program looks at every folder on the path to a file.
// A sandbox that contains the file also contains these folders.
func (s rights) above() map[string]bool {
	folders := map[string]bool{}
	for r := range s {
		for dir := filepath.Dir(r.What); !folders[dir]; dir = filepath.Dir(dir) {
			folders[dir] = true
		}
	}
	return folders
}

// ownVersions lists folders whose files are never proposed for reading or writing. The sandbox either has its own
// version of such a folder, or always contains the folder.
var ownVersions = []string{"/proc", "/sys", "/dev", "/run", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/scratch"}

// onMachine converts the use of a file in a sandbox to the right that the server needs for this file on the machine.
// If there is no such right, the field What of the result is empty.
func onMachine(use agent.Right, home string) agent.Right {
	path := filepath.Clean(use.What)
	use.What = ""
	if rel, err := filepath.Rel(sandbox.Home, path); err == nil && filepath.IsLocal(rel) {
		if use.Kind == agent.CanWrite {
			return use // the server writes to its private home, so propose a right to write to the owner's home
		}
		path = filepath.Join(home, rel)
	} else if slices.ContainsFunc(ownVersions, func(dir string) bool { return sandbox.Inside(path, dir) }) {
		return use
	}
	if _, err := os.Stat(path); err == nil {
		use.What = path
	} else if parent := filepath.Dir(path); use.Kind == agent.CanWrite && isFolder(parent) {
		use.What = parent // the server tries to create a file that does not exist
	}
	if toolserver.TooWide(use.What) {
		use.What = ""
	}
	return use
}

// If a server reads at least manyFiles files in one folder, the right to read the whole folder is proposed.
const manyFiles = 4

// rights is a set of rights without reasons.
type rights map[agent.Right]bool

// folders replaces the right to write a file with the right to write its folder, because programs often replace a file
// with a new one. It replaces rights to read many files in one folder with the right to read the folder. It never
// chooses a folder that [toolserver.TooWide] reports.
func (s rights) folders() rights {
	files := map[string]int{}
	for r := range s {
		if r.Kind == agent.CanRead {
			files[filepath.Dir(r.What)]++
		}
	}
	out := rights{}
	for r := range s {
		dir := filepath.Dir(r.What)
		isFile := (r.Kind == agent.CanRead || r.Kind == agent.CanWrite) && !isFolder(r.What) && !toolserver.TooWide(dir)
		if isFile && (r.Kind == agent.CanWrite || files[dir] >= manyFiles) {
			r.What = dir
		}
		out[r] = true
	}
	return out
}

// widest returns the rights that no other right contains, sorted by kind and name.
func (s rights) widest() (list agent.Access) {
	for r := range s {
		if !s.contains(r) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b agent.Right) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.What, b.What))
	})
	return list
}

// contains reports whether another right in the set contains the right to a path.
func (s rights) contains(r agent.Right) bool {
	has := func(kind agent.RightKind, path string) bool { return s[agent.Right{Kind: kind, What: path}] }
	switch r.Kind {
	case agent.CanRead:
		if has(agent.CanWrite, r.What) {
			return true
		}
	case agent.CanWrite:
	default:
		return false
	}
	for dir := r.What; dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		if has(agent.CanWrite, dir) || r.Kind == agent.CanRead && has(agent.CanRead, dir) {
			return true
		}
	}
	return false
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
