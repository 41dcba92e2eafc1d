package pack

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/supply/unzip"
)

// maxUnpacked limits the unpacked size of a package's wheels.
const maxUnpacked = 8 << 30

// unpackAll unpacks the wheels of a folder into the tree in the order of their names,
// the package's own wheel last. If two wheels contain the same file, the order decides
// which one stays.
func (f *fetch) unpackAll(dir, own string) error {
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil {
		return err
	}
	slices.SortStableFunc(wheels, func(a, b string) int {
		return boolInt(filepath.Base(a) == own) - boolInt(filepath.Base(b) == own)
	})
	if err := os.Mkdir(f.path(dirTree), 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(f.path(dirTree))
	if err != nil {
		return err
	}
	defer root.Close()
	left := int64(maxUnpacked)
	for _, w := range wheels {
		if err := unpack(root, w, &left); err != nil {
			return f.name(err)
		}
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxWheelFiles is more than any real wheel has.
const maxWheelFiles = 100_000

// unpack writes the files of one wheel to where Python looks for them. It creates no
// launchers and no bytecode, which would depend on the machine.
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
			return unsafePackage(filepath.Base(wheel), "contains something other than plain files")
		}
		if *left -= int64(min(f.UncompressedSize64, maxUnpacked+1)); *left < 0 {
			return unsafePackage(filepath.Base(wheel), "is too large when unpacked")
		}
		if err := unpackFile(root, f, name); err != nil {
			return err
		}
	}
	return nil
}

var dataFolder = lazy(`^[^/]+\.data/(purelib|platlib|data|scripts|headers)/(.+)$`)

// wheelPath is where a file of a wheel is installed, empty for a file that is not
// needed.
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

func unpackFile(root *os.Root, f *zip.File, name string) error {
	name = filepath.FromSlash(name)
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o600)
	if f.Mode()&0o100 != 0 {
		mode = 0o700
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return unsafePackage(f.Name, "cannot be unpacked")
	}
	defer in.Close()
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, int64(f.UncompressedSize64)))
	return errors.Join(err, out.Close())
}

// launch runs an entry point of the tree in its first argument. Python is started
// without the machine's packages (-I -S), so only the tree and the standard library
// can be imported.
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

// pythonProgram returns the command that runs a package's program, chosen as uvx
// would.
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
	chosen, err := choose(ref, names, own)
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

// entryPoints reads the programs in a package's own metadata.
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
			return nil, &Error{Code: NoProgram, What: name, Detail: "its entry points cannot be read", Err: err}
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
