package pack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// projectFiles are the files that mark a folder as a project, which contains the code of a local server.
var projectFiles = []string{"package.json", "pyproject.toml"}

// These limits apply to a project, because its files are hashed at every start of its server.
const (
	maxProjectFiles = 20_000
	maxProjectBytes = 512 << 20
)

// findProject searches the folders above a file and returns the nearest one with any of projectFiles, or "". For a file
// below dir, the search ends at dir. Neither the home folder nor a folder above it is a project.
func findProject(file, dir string) string {
	home, _ := os.UserHomeDir()
	within, err := filepath.Rel(dir, file)
	local := err == nil && filepath.IsLocal(within)
	for at := filepath.Dir(file); ; at = filepath.Dir(at) {
		if above, err := filepath.Rel(at, home); at == filepath.Dir(at) || err == nil && filepath.IsLocal(above) {
			return ""
		}
		for _, name := range projectFiles {
			if info, err := os.Stat(filepath.Join(at, name)); err == nil && info.Mode().IsRegular() {
				return at
			}
		}
		if local && at == filepath.Clean(dir) {
			return ""
		}
	}
}

// ErrLargeProject is the error of Project for a project that exceeds the limits.
var ErrLargeProject = fmt.Errorf("the project has more than %d files or %d MiB", maxProjectFiles, maxProjectBytes>>20)

// isScript reports whether a local file is a script. The interpreter is in the command or in the file's first line.
func isScript(ref Ref, file string) bool {
	if ref.Runtime != "" {
		return true
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, 2)
	_, err = io.ReadFull(f, start)
	return err == nil && string(start) == "#!"
}

// Project returns the project that contains a local script, and the paths of its files below the project's folder. It
// leaves out only the manifest and its lock file, which ambit lock writes, and the project's .git. It includes names
// that begin with a dot, because folders such as .venv and .yarn contain code. Project returns "" if there is no
// project.
func Project(ref Ref, manifest string) (root string, files []string, err error) {
	if ref.Kind != File {
		return "", nil, nil
	}
	dir, err := filepath.Abs(filepath.Dir(manifest))
	if err != nil {
		return "", nil, err
	}
	file := ref.Name
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	if !isScript(ref, file) {
		return "", nil, nil
	}
	if root = findProject(file, dir); root == "" {
		return "", nil, nil
	}
	// WalkDir does not follow a link to a folder, and the root can be such a link.
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", nil, err
	}
	own := []string{filepath.Join(dir, filepath.Base(manifest)), filepath.Join(dir, LockName)}
	size := int64(0)
	err = filepath.WalkDir(real, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == real {
			return err
		}
		rel := p[len(real)+1:]
		switch {
		case rel == ".git" && d.IsDir():
			return filepath.SkipDir
		case rel == ".git", d.IsDir(), slices.Contains(own, p):
			return nil
		}
		if info, err := os.Stat(p); err == nil {
			size += info.Size()
		}
		if files = append(files, rel); len(files) > maxProjectFiles || size > maxProjectBytes {
			return ErrLargeProject
		}
		return nil
	})
	return root, files, err
}

// hashProject sets the digest of the project that contains a local script. The digest covers the paths and the content
// of the files, and the interpreter if the command specifies it by path. File modes are ignored, because they differ
// between machines. A link to a file is hashed like the file. For any other link, only the path of its target is
// hashed. If there is no project, or if it is too large, the digest is empty. hashProject also lists the folders
// outside the project whose code the script can import.
func (p *Package) hashProject(ref Ref, manifest string) error {
	root, files, err := Project(ref, manifest)
	if errors.Is(err, ErrLargeProject) {
		return nil
	}
	if err != nil || root == "" {
		return err
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	list, linked := make([]entry, len(files)), map[string]string{} // the hashes of files, by the paths of their links
	for i, rel := range files {
		info, err := os.Lstat(filepath.Join(root, rel))
		if err != nil {
			return err
		}
		list[i] = entry{path: filepath.ToSlash(rel), mark: typeMark(info.Mode().Type())}
		end, err := filepath.EvalSymlinks(filepath.Join(root, rel))
		if err != nil || list[i].mark != "l" {
			continue
		}
		if sum, err := hashFile(end); err == nil {
			linked[list[i].path] = strings.TrimPrefix(sum, digestPrefix)
		} else if within, err := filepath.Rel(real, end); err != nil || !filepath.IsLocal(within) {
			p.outside = append(p.outside, list[i].path)
		}
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	readAll(root, list)
	for i := range list {
		e := &list[i]
		if sum := linked[e.path]; sum != "" {
			e.mark, e.detail = "f", sum
		} else if e.mark != "l" && e.detail != "" {
			e.mark = "f"
		}
	}
	p.outside = append(p.outside, packagesAbove(real)...)
	var header []byte
	if p.interpreter != "" {
		sum, err := hashFile(p.interpreter)
		if err != nil {
			return err
		}
		header = []byte(sum)
	}
	text, err := listing(header, list)
	p.Tree = digestOf(text)
	return err
}

// packagesAbove returns the folders outside a project in which Node.js looks for packages that are missing in the
// project. The paths are relative to the project's folder.
func packagesAbove(root string) (found []string) {
	if _, err := os.Stat(filepath.Join(root, projectFiles[0])); err != nil {
		return nil
	}
	rel := "../node_modules"
	for at := filepath.Dir(root); ; at, rel = filepath.Dir(at), "../"+rel {
		if info, err := os.Stat(filepath.Join(at, "node_modules")); err == nil && info.IsDir() {
			found = append(found, rel)
		}
		if at == filepath.Dir(at) {
			return found
		}
	}
}

// Uncovered describes the unverified code that a local script uses, or returns "". The parameter locked reports whether
// the lock file contains the digest of the script's project.
func (p *Package) Uncovered(locked bool) string {
	switch {
	case !p.script:
		return ""
	case locked && len(p.outside) == 0:
		return ""
	case locked:
		names := make([]string, min(len(p.outside), 3))
		for i := range names {
			names[i] = diag.Quote(p.outside[i])
		}
		return "the code in " + strings.Join(names, ", ") + " is not verified, because it is outside the project; " +
			"install or copy it into the project's folder"
	case p.interpreter != "":
		return "only " + diag.Quote(p.Name) + " is verified, not its interpreter or the files that it imports; " + pinFolder
	}
	return "only " + diag.Quote(p.Name) + " is verified, not the files that it imports; " + pinFolder
}

const pinFolder = "ambit lock pins all files of a folder with a package.json or pyproject.toml"
