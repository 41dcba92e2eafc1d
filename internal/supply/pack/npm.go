package pack

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// npmSigns are the known causes of npm's failures.
var npmSigns = []sign{
	{NotFound, "check the name and the version: npm view NAME versions", none, []string{"code E404", "code ETARGET", "code ENOVERSIONS"}},
	{DigestMismatch, "the registry serves different bytes than before; find out why before you lock again", updateCommand, []string{"code EINTEGRITY"}},
	{FetchFailed, "the registry is unreachable: check the network, or the proxy in HTTPS_PROXY, and try again", none, []string{
		"code ENOTFOUND", "code ECONN", "code ETIMEDOUT", "code EAI_AGAIN", "code ENETUNREACH", "code EHOSTUNREACH", "code ENOTCACHED",
		"code ERR_SOCKET_TIMEOUT",
	}},
	{FetchFailed, "log in to the registry: npm login", none, []string{"code E401", "code E403", "code ENEEDAUTH"}},
	{Unsafe, "do not use this package: it depends on a git repository, which no registry hash pins", none, []string{"code EALLOWGIT", "spawn ENOTDIR", noGit}},
	{FetchFailed, "the list of dependencies does not fit the package", updateCommand, []string{"code EUSAGE"}},
}

// noGit is the path that npm gets for git; nothing there can run. npm would clone a
// dependency in a repository and install in the clone, where an .npmrc decides which
// code runs, before it reports the dependency.
const noGit = os.DevNull + "/git"

// npm fetches and installs a package without running any of its code.
func (f *fetch) npm(ctx context.Context) error {
	if !npmName().MatchString(f.ref.Name) || f.ref.Version != "" && !IsExact(NPM, f.ref.Version) {
		return &Error{Code: NotFound, What: f.ref.String(), Detail: "is not an npm package with an exact version", Hint: "write name@1.2.3"}
	}
	npm, err := lookup("npm", "")
	if err != nil {
		return err
	}
	dir := f.path("npm")
	install, err := f.npmProject(dir)
	if err != nil {
		return err
	}
	// Options override the environment and every .npmrc: the installed tree must not
	// depend on the machine's settings, except for the registry. npm passes its
	// options to the npm that it starts in a clone, so they override the .npmrc there
	// too. Some versions of npm do not know allow-git; node-options covers those.
	client := func(env []string, args ...string) error {
		argv := append([]string{npm}, args...)
		argv = append(
			argv, "--prefix="+dir, "--cache="+f.store.cacheDir("npm"), "--location=project", "--omit=dev", "--install-strategy=hoisted",
			"--bin-links", "--package-lock", "--no-package-lock-only", "--no-dry-run", "--omit-lockfile-registry-resolved", "--no-audit",
			"--no-fund", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000", "--no-progress", "--no-update-notifier", "--no-color", "--loglevel=error", "--logs-max=0",
			"--allow-git=none", "--git="+noGit, "--node-options=--no-warnings",
		)
		if _, err := run(ctx, dir, env, argv...); err != nil {
			return explain(npmSigns, f.ref.String(), err)
		}
		return nil
	}

	spec := f.ref.Name + "@latest"
	if f.ref.Version != "" {
		spec = f.ref.Name + "@" + f.ref.Version
	}
	f.progress("downloading " + spec)
	if err := client(environ(), "pack", spec, "--pack-destination="+dir, "--ignore-scripts"); err != nil {
		return err
	}
	archive, err := onlyFile(dir, "*.tgz")
	if err != nil {
		return err
	}
	if err := f.checkArchive(archive, filepath.Join(dir, npmArchive)); err != nil {
		return err
	}
	f.progress("installing " + spec + " and its dependencies")
	if err := client(environ(), install, "--ignore-scripts"); err != nil {
		return err
	}
	if err := f.npmInstalled(dir); err != nil {
		return err
	}
	if len(f.want.Scripts) > 0 {
		if err := f.npmScripts(dir, client); err != nil {
			return err
		}
	}
	// npm's own records of the folder differ between versions of npm.
	modules := filepath.Join(dir, "node_modules")
	if err := os.RemoveAll(filepath.Join(modules, ".package-lock.json")); err != nil {
		return storeFailed(modules, "could not be cleaned", err)
	}
	return f.take(dir, filepath.Join(dir, npmArchive), func() error {
		if err := os.Mkdir(f.path(dirTree), 0o700); err != nil {
			return err
		}
		return os.Rename(modules, f.path(dirTree, "node_modules"))
	})
}

// npmProject writes a project whose only dependency is the archive. It returns the npm
// command that installs it; ci follows a lock file exactly.
func (f *fetch) npmProject(dir string) (command string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", storeFailed(dir, "could not be made", err)
	}
	files := map[string]any{"package.json": npmManifest(f.ref.Name)}
	command = "install"
	if f.want.Dependencies != nil {
		lock, err := npmLockfile(f.ref.Name, f.want.Dependencies)
		if err != nil {
			return "", err
		}
		files["package-lock.json"] = lock
		command = "ci"
	}
	for name, v := range files {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return "", storeFailed(name, "could not be written", err)
		}
	}
	return command, nil
}

// npmInstalled reads the result of npm's installation: the dependencies and the
// package's own name.
func (f *fetch) npmInstalled(dir string) error {
	lock, err := readBounded(filepath.Join(dir, "package-lock.json"), maxListing)
	if err != nil {
		return storeFailed("package-lock.json", "npm wrote none", err)
	}
	if f.deps, err = npmDependencies(f.ref.Name, lock); err != nil {
		return err
	}
	if f.want.Dependencies != nil {
		f.deps = f.want.Dependencies
	}
	self, err := readNpmManifest(filepath.Join(dir, "node_modules", filepath.FromSlash(f.ref.Name)))
	if err != nil {
		return &Error{Code: Unsafe, What: f.ref.String(), Detail: "its package.json cannot be read", Err: err, Hint: "do not use this package"}
	}
	if self.Name != f.ref.Name || f.ref.Version != "" && !sameVersion(NPM, self.Version, f.ref.Version) || !IsExact(NPM, self.Version) {
		return &Error{
			Code: Unsafe, What: f.ref.String(), Detail: "the package names itself " + diag.Quote(self.Name+"@"+self.Version),
			Hint: "do not use this package: the registry and the package disagree about its name",
		}
	}
	f.record.Kind, f.record.Name, f.record.Version = NPM, self.Name, self.Version
	return nil
}

// npmScripts runs the install scripts of the allowed packages.
func (f *fetch) npmScripts(dir string, client func([]string, ...string) error) error {
	var deps map[string]npmDependency
	if err := json.Unmarshal(f.deps, &deps); err != nil {
		return err
	}
	for _, name := range f.want.Scripts {
		if !npmName().MatchString(name) || !anyNamed(deps, name) {
			return &Error{
				Code: NotFound, What: name, Detail: "its scripts are allowed, but " + f.ref.String() + " does not depend on it",
				Hint: "name a package in its dependency tree",
			}
		}
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return storeFailed(home, "could not be made", err)
	}
	for _, name := range f.want.Scripts {
		f.progress("running the install scripts of " + name)
	}
	args := append([]string{"rebuild", "--no-ignore-scripts"}, f.want.Scripts...)
	return client(scriptEnviron(home), args...)
}

// onlyFile returns the one file of a folder that matches a pattern.
func onlyFile(dir, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		return "", &Error{Code: FetchFailed, What: pattern, Detail: "the client reported success but left no archive", Err: err, Hint: "try a newer version of the client"}
	}
	return found[0], nil
}
