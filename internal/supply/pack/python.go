package pack

import (
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

// pipSigns are the known causes of pip's failures. pip reports a missing version also
// when the index is unreachable, so that sign is last.
var pipSigns = []sign{
	{RuntimeMissing, "install pip for this Python (on Debian: apt-get install python3-pip)", none, []string{"No module named pip"}},
	{Unsafe, "do not use this package: one of its dependencies is not a wheel, and building it would run its code", none, []string{notBuilt}},
	{DigestMismatch, "the index serves different bytes than before; find out why before you lock again", updateCommand, []string{"DO NOT MATCH THE HASHES"}},
	{FetchFailed, "the Python index is unreachable: check the network, or the proxy in HTTPS_PROXY, and try again", none, []string{"Retrying (Retry", "ConnectionError", "Connection refused", "Temporary failure", "Max retries"}},
	{NotFound, "check the name and the version; packages without a wheel for this machine are not built here, because building runs their code", none, []string{
		"No matching distribution", "Could not find a version",
	}},
}

// notBuilt is the error that pip gets when it starts a program.
const notBuilt = "this would run the code of a package"

// runPip runs pip and lets it start no program. Downloading wheels from an index needs
// none. --only-binary does not cover a dependency with an address of its own: pip
// would clone and build it, which runs its code. pip starts programs otherwise only to
// find the version of musl or macOS, and for passwords if so configured.
const runPip = `import os, runpy, sys
def hook(event, args):
    if event == "subprocess.Popen":
        words = args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
        if os.path.basename(words[0]).startswith(("ld-musl-", "keyring")) or args[3] == {"SYSTEM_VERSION_COMPAT": "0"}:
            return
    elif event not in ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"):
        return
    raise PermissionError("` + notBuilt + `")
sys.addaudithook(hook)
runpy.run_module("pip", run_name="__main__", alter_sys=True)`

// findPython finds an interpreter: the requested one, or any of the given version.
// Both may be empty.
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
		out, err := run(ctx, "", os.Environ(), found, "-I", "-S", "-c", "import sys; print('python%d.%d' % sys.version_info[:2]); print(sys.executable)")
		if err != nil {
			continue
		}
		got, file, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if file = strings.TrimSpace(file); file != "" && (version == "" || strings.TrimSpace(got) == version) {
			return file, strings.TrimSpace(got), nil
		}
	}
	what := slices.DeleteFunc([]string{asked, version, "python3"}, func(s string) bool { return s == "" })[0]
	return "", "", &Error{Code: RuntimeMissing, What: what, Detail: "is not installed", Hint: "install it (on Debian: apt-get install python3 python3-pip)"}
}

// python downloads wheels with pip and unpacks them. Only wheels are accepted:
// unpacking them runs no code.
func (f *fetch) python(ctx context.Context) error {
	if m := pypiSpec().FindStringSubmatch(f.ref.Name); m == nil || m[1] != f.ref.Name || f.ref.Version != "" && !IsExact(PyPI, f.ref.Version) {
		return &Error{Code: NotFound, What: f.ref.String(), Detail: "is not a Python package with an exact version", Hint: "write name==1.2.3"}
	}
	if len(f.want.Scripts) > 0 {
		return &Error{Code: Unsafe, What: f.ref.String(), Detail: "wheels have no install scripts to allow", Hint: "remove --allow-scripts"}
	}
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
			return explain(pipSigns, f.ref.String(), err)
		}
		return nil
	}
	dir, deps := f.path("pip"), f.path("pip", "all")
	if err := os.MkdirAll(deps, 0o700); err != nil {
		return storeFailed(dir, "could not be made", err)
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
	// pip identifies a wheel by its file name.
	base := filepath.Base(wheel)
	if err := f.checkArchive(wheel, wheel); err != nil {
		return err
	}
	f.progress("downloading the dependencies of " + spec)
	if err := f.pythonDependencies(deps, wheel, pip); err != nil {
		return err
	}
	own, wheelVersion, err := wheelName(base)
	if err == nil && (!samePython(own, f.ref.Name) || f.ref.Version != "" && !sameVersion(PyPI, wheelVersion, f.ref.Version)) {
		err = fmt.Errorf("the index returned %s", base)
	}
	if err != nil {
		return &Error{Code: Unsafe, What: f.ref.String(), Detail: "is not the requested package", Err: err, Hint: "do not use this package"}
	}
	f.record.Kind, f.record.Name, f.record.Version, f.record.Runtime = PyPI, f.ref.Name, wheelVersion, version
	return f.take(dir, wheel, func() error { return f.unpackAll(deps, base) })
}

// pythonDependencies downloads a wheel's dependencies and the wheel itself: those of
// the lock file, or the newest that fit.
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
		return &Error{
			Code: DigestMismatch, What: f.ref.String(), Detail: "the wheels for this machine differ from the lock file",
			Hint: "lock it again with this Python", Command: updateCommand,
		}
	}
	return nil
}

// hashWheels lists wheels with their hashes, in canonical form.
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

// requirements converts a list of wheels to pip's requirements file.
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
		return nil, &Error{Code: LockInvalid, What: what, Detail: "its list of dependencies cannot be read", Err: err, Hint: "lock it again", Command: updateCommand}
	}
	slices.Sort(lines)
	return lines, nil
}

var wheelFile = lazy(`^([A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?)-([A-Za-z0-9.!+_]+)(?:-[0-9][A-Za-z0-9_.]*)?-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+\.whl$`)

// wheelName reads name and version from the name of a wheel.
func wheelName(file string) (name, version string, err error) {
	m := wheelFile().FindStringSubmatch(file)
	if m == nil {
		return "", "", fmt.Errorf("%s is not the name of a wheel", diag.Quote(file))
	}
	return m[1], m[2], nil
}

var pythonSeparators = lazy(`[-_.]+`)

// samePython compares package names as the Python index does.
func samePython(a, b string) bool {
	norm := func(s string) string { return strings.ToLower(pythonSeparators().ReplaceAllString(s, "-")) }
	return norm(a) == norm(b)
}

// pipIndex gives pip the index that is configured for uv, if pip has none.
func pipIndex() []string {
	if os.Getenv("PIP_INDEX_URL") != "" {
		return nil
	}
	for _, name := range []string{"UV_DEFAULT_INDEX", "UV_INDEX_URL"} {
		if v := os.Getenv(name); v != "" {
			return []string{"PIP_INDEX_URL=" + v}
		}
	}
	return nil
}
