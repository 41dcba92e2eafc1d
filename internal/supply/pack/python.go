package pack

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/tooluri"
)

// pipSymptoms lists the known causes of pip's failures. The first match is used. The entry with
// the code NotFound is last, because pip prints the same messages if the index is unreachable.
var pipSymptoms = []symptom{
	newSymptom(RuntimeMissing, "No module named pip",
		"install pip for this Python (on Debian, run: apt-get install python3-pip)", none),
	newSymptom(Unsafe, notBuilt,
		"do not use this package, because a dependency is not a wheel, and building the dependency would run its code", none),
	newSymptom(DigestMismatch, "DO NOT MATCH THE HASHES",
		"find out why the index now serves different content, and then lock again", updateCommand),
	newSymptom(FetchFailed, "Retrying (Retry|ConnectionError|Connection refused|Temporary failure|Max retries",
		"the Python index is unreachable: check the network, or the proxy in HTTPS_PROXY, and try again", none),
	newSymptom(NotFound, "No matching distribution|Could not find a version",
		"check the name and the version; if the package has no wheel for this machine, ambit cannot install it", none),
}

// notBuilt is the error message that pip gets when it tries to start another program.
const notBuilt = "this would run the code of a package"

// runPip is a Python program that runs pip. Its audit hook prevents pip from starting other programs, with two
// exceptions: pip can start programs to find out the version of musl or macOS, and to get a password from keyring. To
// download wheels from an index, pip needs no other programs. The option --only-binary is not enough, because it does
// not apply to dependencies with a URL. pip would clone and build such a dependency, and the build would run the
// dependency's code.
const runPip = `import os, runpy, sys
def hook(event, args):
    if event == "subprocess.Popen":
        words = args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
        if os.path.basename(words[0]).startswith(("ld-musl-", "keyring")) or args[3] == {"SYSTEM_VERSION_COMPAT": "0"}:
            return
    elif event not in ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile",
            "pty.spawn"):
        return
    raise PermissionError("` + notBuilt + `")
sys.addaudithook(hook)
runpy.run_module("pip", run_name="__main__", alter_sys=True)`

// findPython finds the requested Python interpreter and returns its path and version. If asked is "", findPython tries
// the usual names. If version is not "", the interpreter must have that version.
func findPython(ctx context.Context, asked, version string) (file, got string, err error) {
	names := []string{asked}
	if asked == "" {
		names = []string{"python3", "python", version}
	}
	for _, name := range names {
		found, err := lookup(name, "")
		if name == "" || err != nil {
			continue
		}
		out, err := run(ctx, "", os.Environ(), found, "-I", "-S", "-c",
			"import sys; print('python%d.%d' % sys.version_info[:2]); print(sys.executable)")
		if err != nil {
			continue
		}
		got, file, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if file = strings.TrimSpace(file); file != "" && (version == "" || strings.TrimSpace(got) == version) {
			return file, strings.TrimSpace(got), nil
		}
	}
	return "", "", fail(RuntimeMissing, cmp.Or(asked, version, "python3"), "is not installed",
		"install Python and pip (on Debian, run: apt-get install python3 python3-pip)", nil)
}

// python is the fetch method for Python packages. It downloads wheels with pip and unpacks them. It accepts only
// wheels, because no code runs when a wheel is unpacked.
func (f *fetch) python(ctx context.Context) error {
	if m := pypiSpec().FindStringSubmatch(f.ref.Name); m == nil || m[1] != f.ref.Name || f.ref.Version != "" &&
		!IsExact(PyPI, f.ref.Version) {
		return fail(NotFound, f.ref.String(), "this is not a Python package with an exact version", "write name==1.2.3", nil)
	}
	f.want.Scripts = nil // Python packages have no install scripts
	python, version, err := findPython(ctx, f.ref.Runtime, "")
	if err != nil {
		return err
	}
	pip := func(dir string, args ...string) error {
		argv := append([]string{
			python, "-c", runPip, "download", "--no-input", "--disable-pip-version-check", "--only-binary=:all:",
			"--progress-bar=off", "--cache-dir=" + f.store.cacheDir("pip"), "--dest=" + dir,
		}, args...)
		if _, err := run(ctx, dir, environ(pipIndex()...), argv...); err != nil {
			return explain(pipSymptoms, f.ref.String(), err)
		}
		return nil
	}
	dir, deps := f.path("pip"), f.path("pip", "all")
	if err := os.MkdirAll(deps, 0o700); err != nil {
		return storeFailed(dir, "the folder could not be created", err)
	}
	spec := f.ref.Name
	if f.ref.Version != "" {
		spec += "==" + f.ref.Version
	}
	f.progress("downloading " + spec)
	if err := pip(dir, "--no-deps", spec); err != nil {
		return err
	}
	wheel, err := onlyFile(dir, "*.whl")
	if err != nil {
		return err
	}
	// The wheel keeps its file name, because pip reads the name and the version of the package from it.
	base := filepath.Base(wheel)
	if err := f.checkArchive(wheel, wheel); err != nil {
		return err
	}
	f.progress("downloading the dependencies of " + spec)
	if err := f.pythonDependencies(deps, wheel, pip); err != nil {
		return err
	}
	own, wheelVersion, err := wheelName(base)
	if err == nil &&
		(!samePython(own, f.ref.Name) || f.ref.Version != "" && !sameVersion(PyPI, wheelVersion, f.ref.Version)) {
		err = fmt.Errorf("the index returned %s", base)
	}
	if err != nil {
		return fail(Unsafe, f.ref.String(), "the downloaded wheel is not the requested package", "do not use this package",
			err)
	}
	f.record.Kind, f.record.Name, f.record.Version, f.record.Runtime = PyPI, f.ref.Name, wheelVersion, version
	return f.take(dir, wheel, func() error { return f.unpackAll(deps, base) })
}

// pythonDependencies downloads a wheel and its dependencies to dir. It downloads the versions in want.Dependencies.
// If want.Dependencies is nil, it downloads the newest versions that the wheel accepts.
func (f *fetch) pythonDependencies(dir, wheel string, pip func(string, ...string) error) error {
	var err error
	if f.want.Dependencies == nil {
		spec := wheel
		if len(f.ref.Extras) > 0 {
			spec += "[" + strings.Join(f.ref.Extras, ",") + "]"
		}
		err = pip(dir, spec)
	} else {
		var lines []string
		if lines, err = requirements(f.ref.Name, f.want.Dependencies); err != nil {
			return err
		}
		file := filepath.Join(dir, "requirements.txt")
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return storeFailed(file, "could not be written", err)
		}
		err = pip(dir, "--no-deps", "--require-hashes", "--requirement="+file)
	}
	if err != nil {
		return err
	}
	if f.deps, err = hashWheels(dir); err != nil {
		return storeFailed(dir, "the wheels could not be hashed", err)
	}
	if f.want.Dependencies != nil && string(f.deps) != string(f.want.Dependencies) {
		return fail(DigestMismatch, f.ref.String(), "the wheels for this machine differ from the wheels in the lock file",
			"lock the package again with this Python", nil, updateCommand)
	}
	return nil
}

// hashWheels returns the list of the wheels in dir with their hashes, as canonical JSON.
func hashWheels(dir string) ([]byte, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil {
		return nil, err
	}
	list := make(map[string]string, len(found))
	for _, name := range found {
		if list[filepath.Base(name)], err = hashFile(name); err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return canonical(b)
}

// requirements converts a list of wheels to the lines of a requirements file for pip.
func requirements(what string, list []byte) ([]string, error) {
	var wheels map[string]string
	err := json.Unmarshal(list, &wheels)
	var lines []string
	for file, digest := range wheels {
		name, version, wrong := wheelName(file)
		if wrong == nil && !tooluri.IsDigest(digest) {
			wrong = fmt.Errorf("%s has no sha256", diag.Quote(file))
		}
		if wrong != nil {
			err = wrong
			break
		}
		lines = append(lines, name+"=="+version+" --hash="+digest)
	}
	if err != nil {
		return nil, fail(LockInvalid, what, "the list of dependencies in the lock file cannot be read",
			"lock the package again", err, updateCommand)
	}
	slices.Sort(lines)
	return lines, nil
}

var wheelFile = lazy(`^([A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?)-([A-Za-z0-9.!+_]+)` +
	`(?:-[0-9][A-Za-z0-9_.]*)?(?:-[A-Za-z0-9_.]+){3}\.whl$`)

// wheelName parses the name and the version of the package from the file name of a wheel.
func wheelName(file string) (name, version string, err error) {
	m := wheelFile().FindStringSubmatch(file)
	if m == nil {
		return "", "", fmt.Errorf("%s is not the file name of a wheel", diag.Quote(file))
	}
	return m[1], m[2], nil
}

var pythonSeparators = lazy(`[-_.]+`)

// samePython reports whether two names refer to the same Python package. Case does not matter, and "-", "_" and "."
// are equivalent.
func samePython(a, b string) bool {
	norm := func(s string) string { return strings.ToLower(pythonSeparators().ReplaceAllString(s, "-")) }
	return norm(a) == norm(b)
}

// pipIndex returns an environment variable that makes pip use the index that is configured for uv. It returns nil if
// no index is configured for uv, or if an index is configured for pip.
func pipIndex() []string {
	index := cmp.Or(os.Getenv("UV_DEFAULT_INDEX"), os.Getenv("UV_INDEX_URL"))
	if index == "" || os.Getenv("PIP_INDEX_URL") != "" {
		return nil
	}
	return []string{"PIP_INDEX_URL=" + index}
}
