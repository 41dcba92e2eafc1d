//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// programs lists the programs that exist in a sandbox with [Spec.NoExec]. Apart from these programs, the visible system
// folders contain only libraries and data. All paths are paths inside the sandbox. They differ from the paths on the
// machine only below a mount.
type programs struct {
	mounts []Mount
	stems  []string // the names of the programs without their versions
	// folders contains the visible system folders. hidden contains their subfolders that appear empty in the sandbox.
	folders, hidden []string
	// files contains the programs that are mounted one by one, because their folder is not visible. links contains
	// symbolic links to these programs. Each link consists of its target and its path.
	files []string
	links [][2]string
	// covered lists programs in library folders. In the sandbox, they appear as unreadable files.
	covered []string
	// execute lists the files and folders that the kernel is allowed to execute: the programs and their loaders.
	execute []string
	// extra lists the paths that the program itself may start. While listing is true, [programs.add] also appends each
	// program to extra.
	extra   []string
	listing bool
}

// findPrograms finds the programs of a run. If s.Argv starts with a script, findPrograms inserts the script's
// interpreter before the script. Otherwise, the kernel would start env for a script that names env, and env could not
// start the interpreter.
func findPrograms(s *Spec) (*programs, error) {
	p := &programs{mounts: s.Mounts}
	for range maxLinks {
		first, err := lookUp(s.Argv[0])
		if err != nil {
			return nil, err
		}
		s.Argv = append([]string{first}, s.Argv[1:]...)
		script := p.script(first)
		if len(script) == 0 {
			break
		}
		s.Argv = append(withoutEnv(script), s.Argv...)
	}
	p.stems = []string{stem(s.Argv[0])}
	for _, program := range s.Programs {
		p.stems = append(p.stems, stem(program))
	}
	if err := p.findLibraries(); err != nil {
		return nil, err
	}
	if err := p.add(s.Argv[0]); err != nil {
		return nil, err
	}
	p.listing = true
	for _, program := range s.Programs {
		path, err := lookUp(program)
		if err == nil {
			p.extra = append(p.extra, path)
			err = errors.Join(p.add(path), p.addHelpers(stem(path)))
		}
		if err != nil {
			return nil, err
		}
	}
	for _, path := range p.extra {
		if short, ok := strings.CutPrefix(path, "/usr"); ok { // /bin is a link to /usr/bin, so the program has a second path
			p.extra = append(p.extra, short)
		}
		if s.OwnerHome != "" && path != s.OwnerHome && Inside(path, s.OwnerHome) {
			p.extra = append(p.extra, Home+strings.TrimPrefix(path, s.OwnerHome))
		}
	}
	return p, nil
}

// maxLinks is the maximum length of a chain of symbolic links or script interpreters.
const maxLinks = 16

// lookUp returns the path of a program. A name without a slash is looked up in the PATH of the sandbox.
func lookUp(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for dir := range strings.SplitSeq(strings.TrimPrefix(path, "PATH="), ":") {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: %w in %s", name, fs.ErrNotExist, path)
}

// stem returns the name of a program without its version, such as python for /usr/bin/python3.11.
func stem(program string) string {
	name := filepath.Base(program)
	return cmp.Or(strings.TrimRight(name, "0123456789.-"), name)
}

// named reports whether a folder is named after one of the programs. For example, git-core is named after git.
func (p *programs) named(folder string) bool {
	return slices.ContainsFunc(p.stems, func(stem string) bool {
		rest, ok := strings.CutPrefix(folder, stem)
		return ok && (rest == "" || strings.ContainsRune("0123456789.-_", rune(rest[0])))
	})
}

var libraryFolders = []string{
	"/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/lib", "/usr/local/lib64",
	"/lib", "/lib32", "/lib64", "/libx32",
}

// findLibraries chooses the visible system folders: data, libraries, and folders that belong to the programs by name.
// It hides the other folders next to the libraries, because they contain other programs, such as those of git or a
// compiler.
func (p *programs) findLibraries() error {
	for _, folder := range []string{"/usr/share", "/usr/local/share"} {
		if info, err := os.Lstat(folder); err == nil && info.IsDir() {
			p.folders = append(p.folders, folder)
		}
	}
	for _, folder := range libraryFolders {
		info, err := os.Lstat(folder)
		if err != nil {
			continue
		}
		if !info.IsDir() {
			if to, err := os.Readlink(folder); err == nil && strings.HasPrefix(folder, "/usr/") {
				p.links = append(p.links, [2]string{to, folder}) // prepareBubblewrap itself makes the links in /
			}
			continue
		}
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		// Some systems store libraries directly in the folder. Others store them in a subfolder for each
		// architecture.
		whole := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && isLibrary(e.Name()) })
		if whole {
			p.folders = append(p.folders, folder)
		}
		for _, e := range entries {
			at, name := filepath.Join(folder, e.Name()), e.Name()
			shown := strings.Contains(name, "-linux-") || name == "ssl" || name == "locale" || p.named(name)
			switch {
			case !e.IsDir():
			case shown && !whole:
				p.folders = append(p.folders, at)
			case !shown && whole:
				p.hidden = append(p.hidden, at)
			}
			if e.IsDir() && shown && !p.named(name) {
				p.covered = append(p.covered, programsIn(at)...)
			}
		}
	}
	return nil
}

func isLibrary(name string) bool {
	return strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")
}

// scanned contains the result of programsIn for each folder. An upgrade of the system can add programs, so a result is
// used only for scanTime.
var scanned sync.Map

const scanTime = 10 * time.Minute

type scan struct {
	programs []string
	at       time.Time
}

// programsIn returns the executable files in a folder of libraries, except libraries and Python files.
func programsIn(folder string) []string {
	if known, ok := scanned.Load(folder); ok && time.Since(known.(scan).at) < scanTime {
		return known.(scan).programs
	}
	var found []string
	// If the folder cannot be read, the program cannot read it either.
	_ = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || isLibrary(e.Name()) || strings.HasSuffix(e.Name(), ".py") {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode()&0o111 != 0 {
			found = append(found, path)
		}
		return nil
	})
	scanned.Store(folder, scan{found, time.Now()})
	return found
}

// outside converts a path inside the sandbox to the path on this machine.
func (p *programs) outside(path string) string {
	if m := p.mountOf(path); m != nil {
		return m.Source + strings.TrimPrefix(path, m.To)
	}
	return path
}

// mountOf returns the mount that contains a path, or nil.
func (p *programs) mountOf(path string) (in *Mount) {
	for i, m := range p.mounts {
		if !m.Hide && Inside(path, m.To) && (in == nil || len(m.To) >= len(in.To)) {
			in = &p.mounts[i]
		}
	}
	return in
}

// add adds a program, the programs that it needs to start, and the symbolic links that lead to it. If the path is a
// folder, add adds all programs in the folder, but not the interpreters of its scripts. With the interpreters, one
// shell script in the folder would give the sandboxed program a shell.
func (p *programs) add(path string) error {
	for range maxLinks {
		path = p.plain(path)
		at := p.outside(path)
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if p.listing {
			p.extra = append(p.extra, path)
		}
		alone := p.showsAlone(path)
		if info.Mode()&fs.ModeSymlink == 0 {
			return p.addFile(path, info, alone)
		}
		to, err := os.Readlink(at)
		if err != nil {
			return err
		}
		if alone && !slices.Contains(p.links, [2]string{to, path}) {
			p.links = append(p.links, [2]string{to, path})
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return fmt.Errorf("%s: too many links", path)
}

// plain returns the path with all symbolic links to folders resolved.
func (p *programs) plain(path string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(p.outside(path)))
	if err != nil {
		return path
	}
	if m := p.mountOf(path); m != nil {
		if !Inside(dir, m.Source) {
			return path
		}
		dir = m.To + strings.TrimPrefix(dir, m.Source)
	}
	return filepath.Join(dir, filepath.Base(path))
}

func (p *programs) addFile(path string, info fs.FileInfo, alone bool) error {
	if slices.Contains(p.execute, path) {
		return nil
	}
	p.execute = append(p.execute, path)
	p.covered = slices.DeleteFunc(slices.Clone(p.covered), func(c string) bool { return Inside(c, path) })
	if alone {
		p.files = append(p.files, path)
	}
	if !info.IsDir() {
		return p.addNeeds(path)
	}
	entries, err := os.ReadDir(p.outside(path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if _, err := p.addLoader(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// showsAlone reports whether a program must be mounted by itself because its folder is not visible. If the folder is
// visible and its name is bin or sbin, showsAlone first hides the folder, because the bin folder of a runtime also
// contains other programs. An example is ~/.nvm/versions/node/v20/bin.
func (p *programs) showsAlone(path string) bool {
	dir := filepath.Dir(path)
	shown := func(folder string) bool { return Inside(path, folder) }
	if p.mountOf(path) == nil && (!slices.ContainsFunc(p.folders, shown) || slices.ContainsFunc(p.hidden, shown)) {
		return true
	}
	if base := filepath.Base(dir); base != "bin" && base != "sbin" {
		return false
	}
	if !slices.Contains(p.hidden, dir) {
		p.hidden = append(p.hidden, dir)
	}
	return true
}

// addHelpers adds the folders of a program's helper programs, such as /usr/lib/git-core for git.
func (p *programs) addHelpers(stem string) error {
	only := &programs{stems: []string{stem}}
	for _, folder := range []string{"/usr/lib", "/usr/libexec"} {
		entries, _ := os.ReadDir(folder) // a missing folder contains no helpers
		for _, e := range entries {
			if e.IsDir() && only.named(e.Name()) {
				if err := p.add(filepath.Join(folder, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addLoader adds the loader of a native program. It reports whether the file is a native program.
func (p *programs) addLoader(path string) (native bool, err error) {
	f, err := elf.Open(p.outside(path))
	if err != nil {
		return false, nil // not a native program
	}
	defer f.Close()
	for _, part := range f.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		loader := make([]byte, part.Filesz)
		if _, err := part.ReadAt(loader, 0); err != nil {
			return true, err
		}
		return true, p.addUnlisted(strings.TrimRight(string(loader), "\x00"))
	}
	return true, nil
}

// addUnlisted adds a loader or an interpreter, but does not add it to p.extra. Only the kernel may start such a
// program, because a loader could start any file, and an interpreter could start any script.
func (p *programs) addUnlisted(path string) error {
	was := p.listing
	p.listing = false
	defer func() { p.listing = was }()
	return p.add(path)
}

// addNeeds adds the loader of a native program, or the interpreter of a script.
func (p *programs) addNeeds(path string) error {
	if native, err := p.addLoader(path); native || err != nil {
		return err
	}
	words := p.script(path)
	if len(words) == 0 {
		return nil
	}
	if err := p.addUnlisted(words[0]); err != nil || len(withoutEnv(words)) == len(words) {
		return err
	}
	interpreter, err := lookUp(withoutEnv(words)[0]) // the program that env starts
	if err != nil {
		return err
	}
	return p.add(interpreter)
}

// script returns the interpreter of a script and its arguments. It returns nil for other files.
func (p *programs) script(path string) []string {
	f, err := os.Open(p.outside(path))
	if err != nil {
		return nil
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	words, ok := strings.CutPrefix(string(line), "#!")
	if !ok || err != nil {
		return nil
	}
	return strings.Fields(words)
}

// withoutEnv returns the command that env would start. It returns other commands unchanged.
func withoutEnv(words []string) []string {
	if len(words) > 1 && filepath.Base(words[0]) == "env" {
		if words = words[1:]; words[0] == "-S" && len(words) > 1 {
			words = words[1:]
		}
	}
	return words
}
