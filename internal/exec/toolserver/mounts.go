package toolserver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// mounts returns the files and folders of this machine that a server can see in addition to the system's files: its
// runtime, its package, its private home and its declared paths.
func (s *server) mounts(l *plan, program string, access agent.Access) (mounts []sandbox.Mount, err error) {
	files := s.options.Confine.Files(s.alias)
	if err := os.MkdirAll(files, 0o700); err != nil {
		return nil, err
	}
	own := realPath(s.options.Home.Dir())
	declared := s.declared(access, own, l.visible)
	if err := linkHome(files, declared); err != nil {
		s.warn("some declared files are missing in the server's home: " + err.Error())
	}
	for _, path := range []string{runtimeFolder(program), l.visible} {
		if path != "" {
			declared = append(declared, agent.Right{Kind: agent.CanRead, What: path})
		}
	}
	readOnly := append(slices.Clone(s.options.Confine.ReadOnly), l.file)
	for _, right := range declared {
		mount := sandbox.Mount{
			Source: realPath(right.What), To: right.What, Write: right.Kind == agent.CanWrite, AsOwner: true,
		}
		if mount.Write && protected(mount.Source, readOnly) {
			s.warn(right.What + " is a manifest or a folder of manifests, so the server can only read it")
			mount.Write = false
		}
		mounts = append(mounts, mount)
		if mount.Source != mount.To { // programs can use either path, so mount both
			mount.To = mount.Source
			mounts = append(mounts, mount)
		}
	}
	for _, m := range mounts {
		mounts = append(mounts, protect(m, own, readOnly)...)
	}
	shown := func(dir string) bool {
		return sandbox.Inside(program, dir) ||
			slices.ContainsFunc(mounts, func(m sandbox.Mount) bool { return sandbox.Inside(dir, m.To) })
	}
	beside, err := privateParents(files, own, access, shown)
	if err != nil {
		return nil, err
	}
	mounts = append(mounts, beside...)
	mounts = append(mounts, sandbox.Mount{Source: files, To: sandbox.Home, Write: true, Give: true})
	// A mount hides earlier mounts below its path, so mount the shorter paths first.
	slices.SortStableFunc(mounts, func(a, b sandbox.Mount) int { return len(a.To) - len(b.To) })
	return mounts, nil
}

// privateParents returns mounts of private folders. Some programs create files next to the file that they write, such
// as the journal of a database, and some create a missing file. For each file that the server can write, and for each
// declared path that does not exist, the containing folder is therefore replaced with a private folder that the server
// can write. If shown returns true for the containing folder, the folder is already visible and is not replaced.
//
// The private folders are kept between starts. They are stored next to the server's private home, because inside this
// home the server could replace them.
func privateParents(
	files, own string, access agent.Access, shown func(dir string) bool,
) (mounts []sandbox.Mount, err error) {
	for _, right := range slices.Concat(access.Of(agent.CanRead), access.Of(agent.CanWrite)) {
		info, err := os.Stat(right.What)
		missing := errors.Is(err, os.ErrNotExist)
		written := right.Kind == agent.CanWrite && err == nil && info.Mode().IsRegular()
		dir := filepath.Dir(right.What)
		if !missing && !written || sandbox.Inside(right.What, own) ||
			slices.ContainsFunc(alreadyShown, func(folder string) bool { return sandbox.Inside(dir, folder) }) ||
			dir == "/" || dir == "/tmp" || shown(dir) {
			continue
		}
		sum := sha256.Sum256([]byte(dir))
		// No server's own folder has %beside in its name.
		source := filepath.Join(files+"%beside", hex.EncodeToString(sum[:16]))
		if err := os.MkdirAll(source, 0o700); err != nil {
			return nil, err
		}
		mount := sandbox.Mount{Source: source, To: dir, Write: true, Give: true}
		if !slices.Contains(mounts, mount) {
			mounts = append(mounts, mount)
		}
	}
	return mounts, nil
}

// alreadyShown lists folders that every sandbox has in its own version.
var alreadyShown = []string{
	"/proc", "/sys", "/dev", "/run", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/scratch",
}

// realPath returns the path without symbolic links, or the path itself if it does not exist.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// linkHome makes declared files in the owner's home available at the same place in the server's private home. The
// parameter files is the path of the private home. linkHome creates links instead of mounts, because a server can
// change its home, and could replace a mount point while a sandbox is set up.
func linkHome(files string, declared agent.Access) error {
	own, err := ownFolders()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(files)
	if err != nil {
		return err
	}
	defer root.Close()
	var problems []error
	for _, r := range declared {
		rel, err := filepath.Rel(own.home, r.What)
		if err != nil || rel == "." || !filepath.IsLocal(rel) {
			continue
		}
		if _, err := root.Lstat(rel); err == nil {
			continue // the server already has its own file there
		}
		problems = append(problems, root.MkdirAll(filepath.Dir(rel), 0o700), root.Symlink(r.What, rel))
	}
	return errors.Join(problems...)
}

// declared returns the rights to files and folders that must be visible in the sandbox. It omits paths that do not
// exist, paths that belong to ambit, and paths that another mount already makes visible. It also omits a link, unless
// the server has a right to the link's target too. The reason is that another server or the manifest's author may have
// made the link.
func (s *server) declared(access agent.Access, own, visible string) (paths agent.Access) {
	skip := func(right agent.Right, format string, args ...any) {
		s.warn(right.What + " " + fmt.Sprintf(format, args...) + ", so the server does not see it")
	}
	for _, right := range access {
		if right.Kind == agent.CanConnect || right.What == agent.Any {
			continue
		}
		if right.Kind == agent.CanExecute {
			if right.What = runtimeFolder(right.What); right.What != "" { // system programs are visible in every sandbox
				paths = append(paths, agent.Right{Kind: agent.CanRead, What: right.What})
			}
			continue
		}
		real, err := filepath.EvalSymlinks(right.What)
		moved := right
		moved.What = real
		switch {
		case errors.Is(err, os.ErrNotExist):
			s.log(right.What + " does not exist; if the server creates it, ambit keeps it in the server's private folder")
		case err != nil:
			skip(right, "cannot be opened (%v)", err)
		case real == visible:
		case sandbox.Inside(real, own):
			s.warn(right.What + " is in a folder that belongs to ambit, so the server does not see it; move the manifest " +
				"and the files of its servers to a new folder below agents/ or outside AMBIT_HOME")
		case real != right.What && !access.Allows(moved):
			skip(right, "is a link to %s, to which the server has no right (to allow it, run: %s)", real,
				AllowCommand(s.options.Confine.Agent, s.alias, moved))
		case slices.ContainsFunc(access, func(other agent.Right) bool {
			below := func(path, folder string) bool { return path != folder && sandbox.Inside(path, folder) }
			return other.Kind == agent.CanWrite && (below(right.What, other.What) || below(real, realPath(other.What)))
		}):
			// The mount of the other folder contains this path. Do not mount this path again: the server could have
			// replaced it with a link.
		default:
			paths = append(paths, right)
		}
	}
	return paths
}

// protected reports whether a path is one of the paths that a server must not change, or is inside such a path. The
// check includes subfolders, because every subfolder of a folder of agents can contain an agent.
func protected(source string, readOnly []string) bool {
	return slices.ContainsFunc(readOnly, func(path string) bool {
		return path != "" && sandbox.Inside(source, realPath(path))
	})
}

// protect returns additional mounts for a mount. They hide ambit's own folder inside the mount, and make protected
// files in a writable mount read-only. The folders between the mount and such a path become mount points too. A
// server cannot rename a mount point, so it cannot put another folder in its place.
func protect(m sandbox.Mount, own string, readOnly []string) (mounts []sandbox.Mount) {
	if m.Hide {
		return nil
	}
	at := func(path string) string {
		rel, _ := filepath.Rel(m.Source, path) // Rel cannot fail, because the path is inside the folder
		return filepath.Join(m.To, rel)
	}
	pin := func(path string) {
		for dir := filepath.Dir(path); m.Write && dir != m.Source && sandbox.Inside(dir, m.Source); dir = filepath.Dir(dir) {
			mounts = append(mounts, sandbox.Mount{Source: dir, To: at(dir), Write: true, AsOwner: m.AsOwner})
		}
	}
	if own != m.Source && sandbox.Inside(own, m.Source) {
		pin(own)
		mounts = append(mounts, sandbox.Mount{To: at(own), Hide: true})
	}
	for _, path := range readOnly {
		real, err := filepath.EvalSymlinks(path)
		if path != "" && err == nil && m.Write && real != m.Source && sandbox.Inside(real, m.Source) {
			pin(real)
			mounts = append(mounts, sandbox.Mount{Source: real, To: at(real), AsOwner: m.AsOwner})
		}
	}
	return mounts
}

// systemPrefixes are the folders that are visible in every sandbox.
var systemPrefixes = []string{"/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/"}

func inSystem(path string) bool {
	return slices.ContainsFunc(systemPrefixes, func(p string) bool { return strings.HasPrefix(path, p) })
}

// runtimeFolder returns the folder of a runtime outside the system's folders, such as node in the folder of a version
// manager, or a virtual environment of Python. It returns the program itself if the folder could contain more than
// the runtime, as ~/.local does. It returns "" for programs of the system.
func runtimeFolder(program string) string {
	environment := filepath.Dir(filepath.Dir(program))
	if _, err := os.Stat(filepath.Join(environment, "pyvenv.cfg")); err == nil && !TooWide(environment) {
		return environment
	}
	real, err := filepath.EvalSymlinks(program)
	if err != nil || inSystem(real) {
		return ""
	}
	prefix := filepath.Dir(filepath.Dir(real))
	if filepath.Base(filepath.Dir(real)) != "bin" || TooWide(prefix) || TooWide(filepath.Dir(prefix)) {
		return real
	}
	return prefix
}
