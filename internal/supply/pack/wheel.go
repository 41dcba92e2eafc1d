package pack

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/unzip"
)

// maxUnpacked limits the total unpacked size of all wheels of a package, in bytes.
const maxUnpacked = 8 << 30

// unpackAll unpacks the wheels in dir into the tree. It unpacks the dependencies first, sorted by file name, and then
// the package's own wheel. If two wheels contain the same file, the later wheel overwrites the file.
func (f *fetch) unpackAll(dir, own string) error {
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil {
		return err
	}
	wheels = slices.DeleteFunc(wheels, func(w string) bool { return filepath.Base(w) == own })
	wheels = append(wheels, filepath.Join(dir, own))
	root, err := f.makeTree()
	if err != nil {
		return err
	}
	defer root.Close()
	left := int64(maxUnpacked)
	for _, w := range wheels {
		if err := unpack(root, w, &left); err != nil {
			return f.addName(err)
		}
	}
	return nil
}

// makeTree creates the folder into which archives are unpacked.
func (f *fetch) makeTree() (*os.Root, error) {
	if err := os.Mkdir(f.path(dirTree), 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(f.path(dirTree))
}

// maxWheelFiles limits the number of files in a wheel. No real wheel has that many files.
const maxWheelFiles = 100_000

// unpack writes the files of one wheel to the paths where Python looks for them. It does not create launcher scripts
// or bytecode, because such files would depend on the machine. *left is the number of bytes that can still be unpacked
// from the wheels of the package.
func unpack(root *os.Root, wheel string, left *int64) error {
	r, err := unzip.OpenReader(wheel, maxWheelFiles)
	if err != nil {
		return unsafePackage(filepath.Base(wheel), "is not an archive")
	}
	defer r.Close()
	for _, f := range r.File {
		name := wheelPath(f.Name)
		if strings.HasSuffix(f.Name, "/") || name == "" {
			continue
		}
		if !filepath.IsLocal(filepath.FromSlash(name)) || f.Mode().Type() != 0 {
			return unsafePackage(filepath.Base(wheel),
				"contains something other than regular files, or a path that leaves the package")
		}
		if *left -= int64(min(f.UncompressedSize64, maxUnpacked+1)); *left < 0 {
			return unsafePackage(filepath.Base(wheel), "is too large when unpacked")
		}
		if err := root.Remove(filepath.FromSlash(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := extract(root, f, name); err != nil {
			return err
		}
	}
	return nil
}

var dataFolder = lazy(`^[^/]+\.data/(purelib|platlib|data|scripts|headers)/(.+)$`)

// wheelPath returns the path in the tree for a file of a wheel. It returns "" if the file is not needed.
func wheelPath(name string) string {
	m := dataFolder().FindStringSubmatch(name)
	switch {
	case m == nil:
		return name
	case m[1] == "headers":
		return ""
	case m[1] == "scripts":
		return "bin/" + m[2]
	}
	return m[2]
}

func extract(root *os.Root, f *zip.File, name string) error {
	err := unzip.Extract(root, f, name)
	if errors.Is(err, unzip.ErrDamaged) {
		return unsafePackage(diag.Quote(f.Name), err.Error())
	}
	if err != nil {
		return storeFailed(name, "could not be unpacked", err)
	}
	return nil
}

// launch is a Python program that runs an entry point of a tree. Its arguments are the tree, the module, the attribute
// and the program's name. Python runs with the options -I and -S. It can therefore import modules of the tree and of
// the standard library, but no packages that are installed on the machine.
const launch = `import builtins, sys
from importlib import import_module
_, tree, module, attribute, name = sys.argv[:5]
sys.path.insert(0, tree)
sys.argv[:5] = [name]
builtins.exit = builtins.quit = sys.exit
run = import_module(module)
for part in attribute.split("."):
    run = getattr(run, part)
sys.exit(run())`

// pythonProgram returns the command that runs a package's program. It chooses the same program as uvx.
func pythonProgram(tree string, ref Ref, version string) ([]string, error) {
	points, err := entryPoints(tree, ref.Name)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(points))
	own := ref.Name
	for _, n := range names {
		if samePython(n, ref.Name) {
			own = n
		}
	}
	chosen, err := chooseProgram(ref, names, own)
	if err != nil {
		return nil, err
	}
	python, _, err := findPython(context.Background(), ref.Runtime, version)
	if err != nil {
		return nil, err
	}
	module, attribute, _ := strings.Cut(points[chosen], ":")
	return []string{python, "-I", "-S", "-B", "-c", launch, tree, module, attribute, chosen}, nil
}

var entryPoint = lazy(`^([^=\[\]]+?)\s*=\s*([A-Za-z_][\w.]*:[A-Za-z_][\w.]*)\s*(?:\[.*\])?$`)

// entryPoints returns the programs that a package's metadata declares. The result maps the name of each program to
// its entry point, in the form module:attribute.
func entryPoints(tree, name string) (map[string]string, error) {
	dirs, err := filepath.Glob(filepath.Join(tree, "*.dist-info"))
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		base, _, _ := strings.Cut(path.Base(filepath.ToSlash(dir)), "-")
		if !samePython(base, name) {
			continue
		}
		text, err := readBounded(filepath.Join(dir, "entry_points.txt"), 1<<20)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fail(NoProgram, name, "the package's entry_points.txt cannot be read", "", err)
		}
		points := map[string]string{}
		section := ""
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if strings.HasPrefix(line, "[") {
				section = line
			} else if m := entryPoint().FindStringSubmatch(line); m != nil && section == "[console_scripts]" {
				points[m[1]] = m[2]
			}
		}
		return points, nil
	}
	return nil, nil
}
