// Package learn finds out which access a tool server needs.
//
// A [Recorder] collects what the servers of an agent use while they work in their sandboxes: files, programs and hosts.
// It compares this with what a server is allowed to use, and proposes the rights that the server lacks. The sandboxes
// refuse what is not allowed, even while ambit learns. Some servers stop when something is refused. They must be
// observed again after the proposal was accepted.
//
// This package gives no rights to a server. A person reads the proposal and decides whether to allow it.
package learn

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
)

// maxUses is the maximum number of different uses that are kept for one server. A node program opens some thousand
// files.
const maxUses = 1 << 16

// Recorder collects what servers use. The zero value is ready.
type Recorder struct {
	mu      sync.Mutex
	servers map[string]map[agent.Right]bool // for each server and use, whether the sandbox had the file
	full    bool
}

// Use records that a server tried to use something. A path is a path inside the server's sandbox, and found reports
// whether the sandbox has such a file.
func (r *Recorder) Use(alias string, use agent.Right, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers == nil {
		r.servers = map[string]map[agent.Right]bool{}
	}
	of := r.servers[alias]
	if of == nil {
		of = map[agent.Right]bool{}
		r.servers[alias] = of
	}
	if _, known := of[use]; !known && len(of) >= maxUses {
		r.full = true
		return
	}
	of[use] = of[use] || found
}

// Uses returns what a server tried to use, sorted by kind and name. The second result is false if there was more than
// could be kept.
func (r *Recorder) Uses(alias string) (uses agent.Access, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.servers[alias]), compare), !r.full
}

func compare(a, b agent.Right) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.What, b.What))
}

// Propose returns the rights that a server lacks for what it tried to use. It proposes only what exists on this machine.
// Files that the server looked for in its private home are proposed for the owner's home. The hidden folder is ambit's
// home, which no server sees.
func (r *Recorder) Propose(alias string, access agent.Access, home, hidden string) agent.Access {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lacking agent.Access
	for use, found := range r.servers[alias] {
		switch use.Kind {
		case agent.CanRead, agent.CanWrite:
			if use = onMachine(use, home); use.What == "" || inside(use.What, hidden) || found && use.Kind == agent.CanRead {
				continue
			}
		case agent.CanExecute:
			if dir, err := filepath.EvalSymlinks(filepath.Dir(use.What)); err == nil { // /bin is /usr/bin
				use.What = filepath.Join(dir, filepath.Base(use.What))
			}
			if !filepath.IsAbs(use.What) || !executable(use.What) {
				continue
			}
		}
		if !access.Allows(use) {
			lacking = lacking.With(agent.Access{use})
		}
	}
	return widest(folders(lacking))
}

// ownVersions lists folders whose files are never proposed for reading or writing. The sandbox has its own version of
// such a folder, or always shows it.
var ownVersions = []string{"/proc", "/sys", "/dev", "/run", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/scratch"}

// onMachine returns the right that a server needs on this machine for the use of a file in its sandbox. If there is no
// such right, the field What of the result is empty.
func onMachine(use agent.Right, home string) agent.Right {
	path := filepath.Clean(use.What)
	use.What = ""
	if rel, err := filepath.Rel(sandbox.Home, path); err == nil && filepath.IsLocal(rel) {
		if use.Kind == agent.CanWrite {
			return use // the private home is for writing
		}
		path = filepath.Join(home, rel)
	} else if slices.ContainsFunc(ownVersions, func(dir string) bool { return inside(path, dir) }) {
		return use
	}
	if _, err := os.Stat(path); err == nil {
		use.What = path
	} else if parent := filepath.Dir(path); use.Kind == agent.CanWrite && isFolder(parent) {
		use.What = parent // the server wants to make the file
	}
	if toolserver.TooWide(use.What) {
		use.What = ""
	}
	return use
}

// manyFiles is a threshold. If a server needs to read at least this many files in one folder, the whole folder is
// proposed.
const manyFiles = 4

// folders replaces the right to write a file with the right to write its folder, because programs often replace a file
// with a new one. It replaces rights to read many files in one folder with the right to read the folder. It never
// chooses a folder that [toolserver.TooWide] reports.
func folders(rights agent.Access) (out agent.Access) {
	files := map[string]int{}
	for _, r := range rights {
		if r.Kind == agent.CanRead {
			files[filepath.Dir(r.What)]++
		}
	}
	for _, r := range rights {
		dir := filepath.Dir(r.What)
		isFile := (r.Kind == agent.CanRead || r.Kind == agent.CanWrite) && !isFolder(r.What) && !toolserver.TooWide(dir)
		if isFile && (r.Kind == agent.CanWrite || files[dir] >= manyFiles) {
			r.What = dir
		}
		out = out.With(agent.Access{r})
	}
	return out
}

// widest removes the rights that another right contains.
func widest(rights agent.Access) (out agent.Access) {
	for i, r := range rights {
		others := slices.Concat(rights[:i], rights[i+1:])
		if !others.Allows(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, compare)
	return out
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func inside(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}
