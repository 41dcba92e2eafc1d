package pack

import (
	"bytes"
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

// findProject returns the nearest folder above the file that contains one of projectFiles, or "". For a file below dir,
// the search ends at dir. Neither the home folder nor a folder above it is a project.
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

// Project returns the project that contains a local script, and the paths of its files below the project's folder. It
// leaves out ambit.lock, the manifests into which ambit writes digests, and top-level names that begin with a dot,
// which are settings of other tools and often contain secrets. Project returns "" if there is no project, or if it is
// too large.
func Project(ref Ref, dir string) (root string, files []string, err error) {
	if ref.Kind != File || ref.Runtime == "" {
		return "", nil, nil
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	file := ref.Name
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	if root = findProject(file, dir); root == "" {
		return "", nil, nil
	}
	size := int64(0)
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel := p[len(root)+1:]
		switch {
		case strings.HasPrefix(rel, ".") && d.IsDir():
			return filepath.SkipDir
		case strings.HasPrefix(rel, "."), d.IsDir(), d.Name() == LockName, strings.HasSuffix(rel, ".json") && hasDigests(p):
			return nil
		}
		if info, err := os.Stat(p); err == nil {
			size += info.Size()
		}
		if files = append(files, rel); len(files) > maxProjectFiles || size > maxProjectBytes {
			root = ""
			return filepath.SkipAll
		}
		return nil
	})
	return root, files, err
}

// hashProject returns the digest of the project that contains a local script: the paths and the content of its files.
// File modes are ignored, because they differ between machines. A link to a file in the project counts as the file. For
// any other link, only its target counts. If there is no project, the digest is empty.
func hashProject(ref Ref, dir string) (string, error) {
	root, files, err := Project(ref, dir)
	if err != nil || root == "" {
		return "", err
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", err
	}
	list, linked := make([]entry, len(files)), map[string]string{} // the hashes of files, by the paths of their links
	for i, rel := range files {
		info, err := os.Lstat(filepath.Join(root, rel))
		if err != nil {
			return "", err
		}
		list[i] = entry{path: filepath.ToSlash(rel), mark: typeMark(info.Mode().Type())}
		end, err := filepath.EvalSymlinks(filepath.Join(root, rel))
		if err != nil || list[i].mark != "l" {
			continue
		}
		if within, err := filepath.Rel(real, end); err == nil && filepath.IsLocal(within) {
			if sum, err := hashFile(end); err == nil {
				linked[list[i].path] = strings.TrimPrefix(sum, digestPrefix)
			}
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
	text, err := listing(nil, list)
	return digestOf(text), err
}

// hasDigests reports whether a JSON file is a manifest with digests of packages. ambit lock rewrites such a file.
func hasDigests(file string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 16<<20 {
		return false
	}
	text, err := os.ReadFile(file)
	return err == nil && bytes.Contains(text, []byte(`"package_digest"`)) &&
		bytes.Contains(text, []byte(`"schema_version"`))
}

// Uncovered describes the code of a local script that is not verified, or returns "". The argument locked says whether
// the lock file contains the digest of the script's project.
func (r Ref) Uncovered(locked bool) string {
	if r.Kind != File || r.Runtime == "" || locked {
		return ""
	}
	return "only " + diag.Quote(r.Name) + " is verified, not the files that it imports; " +
		"ambit lock pins all files of a folder with a package.json or pyproject.toml"
}
