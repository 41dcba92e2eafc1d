package pack

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// npmSymptoms lists the known causes of npm's failures.
var npmSymptoms = []symptom{
	newSymptom(NotFound, "code E404|code ETARGET|code ENOVERSIONS",
		"check the name and the version; to list the versions, run: npm view NAME versions", none),
	newSymptom(DigestMismatch, "code EINTEGRITY",
		"find out why the registry now serves different content, and then lock again", updateCommand),
	newSymptom(FetchFailed, "code ENOTFOUND|code ECONN|code ETIMEDOUT|code EAI_AGAIN|code ENETUNREACH|code EHOSTUNREACH|"+
		"code ENOTCACHED|code ERR_SOCKET_TIMEOUT",
		"the registry is unreachable: check the network, or the proxy in HTTPS_PROXY, and try again", none),
	newSymptom(FetchFailed, "code E401|code E403|code ENEEDAUTH", "to log in to the registry, run: npm login", none),
	newSymptom(Unsafe, "code EALLOWGIT|spawn ENOTDIR|"+noGit,
		"do not use this package, because it depends on a git repository, which ambit cannot pin", none),
	newSymptom(FetchFailed, "code EUSAGE", "the locked dependencies do not fit the package; lock the package again",
		updateCommand),
}

// noGit is a path that cannot exist. It is passed to npm as the path of git, so that npm cannot run git. If npm could
// run git, it could clone a dependency from a git repository, install the dependencies of the clone, and only then
// report an error. An .npmrc in the clone could decide which code runs.
const noGit = os.DevNull + "/git"

// npm is the fetch method for npm packages. It downloads and installs the package with npm. It runs only the install
// scripts of the packages in want.Scripts.
func (f *fetch) npm(ctx context.Context) error {
	if !npmName().MatchString(f.ref.Name) || f.ref.Version != "" && !IsExact(NPM, f.ref.Version) {
		return fail(NotFound, f.ref.String(), "this is not an npm package with an exact version", "write name@1.2.3", nil)
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
	// The choice of the registry is the only machine setting that is allowed to affect the installed tree. All other
	// relevant options are therefore set on the command line, which overrides the environment and every .npmrc. If npm
	// clones a repository and starts itself in the clone, it passes on these options, so they also override the .npmrc of
	// the clone. The option --allow-git=none forbids cloning, but some versions of npm do not support it. The option
	// --node-options is set so that the .npmrc of a clone cannot set options for Node.js.
	client := func(env []string, args ...string) error {
		argv := append([]string{npm}, args...)
		argv = append(
			argv, "--prefix="+dir, "--cache="+f.store.cacheDir("npm"), "--location=project", "--omit=dev",
			"--install-strategy=hoisted", "--bin-links", "--package-lock", "--no-package-lock-only", "--no-dry-run",
			"--omit-lockfile-registry-resolved", "--no-audit", "--no-fund", "--fetch-retries=1",
			"--fetch-retry-mintimeout=1000", "--fetch-timeout=60000", "--no-progress", "--no-update-notifier", "--no-color",
			"--loglevel=error", "--logs-max=0",
			"--allow-git=none", "--git="+noGit, "--node-options=--no-warnings",
		)
		if _, err := run(ctx, dir, env, argv...); err != nil {
			return explain(npmSymptoms, f.ref.String(), err)
		}
		return nil
	}

	// Without a version, request the range *, as npx does. npm then chooses the newest version that supports the
	// installed Node.js. With the tag latest, npm would not check whether the version supports Node.js.
	spec := f.ref.Name + "@*"
	if f.ref.Version != "" {
		spec = f.ref.Name + "@" + f.ref.Version
	}
	f.progress("downloading " + f.ref.String())
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
	f.progress("installing " + f.ref.String() + " and its dependencies")
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
	// Remove npm's own list of the installed files, because it differs between versions of npm.
	modules := filepath.Join(dir, "node_modules")
	if err := os.RemoveAll(filepath.Join(modules, ".package-lock.json")); err != nil {
		return storeFailed(modules, "npm's .package-lock.json could not be removed", err)
	}
	return f.take(dir, filepath.Join(dir, npmArchive), func() error {
		if err := os.Mkdir(f.path(dirTree), 0o700); err != nil {
			return err
		}
		return os.Rename(modules, f.path(dirTree, "node_modules"))
	})
}

// npmProject writes an npm project that depends only on the downloaded archive. It returns the npm command that
// installs the project: "install" if want.Dependencies is nil, and "ci" if it is not nil. The command "ci" installs
// exactly the listed dependencies.
func (f *fetch) npmProject(dir string) (command string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", storeFailed(dir, "the folder could not be created", err)
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

// npmInstalled reads the list of dependencies that npm installed. It also checks the package's own name and version.
func (f *fetch) npmInstalled(dir string) error {
	lock, err := readBounded(filepath.Join(dir, "package-lock.json"), maxListing)
	if err != nil {
		return storeFailed("package-lock.json", "npm did not write this file, or the file cannot be read", err)
	}
	if f.deps, err = npmDependencies(f.ref.Name, lock); err != nil {
		return err
	}
	if f.want.Dependencies != nil {
		f.deps = f.want.Dependencies
	}
	self, err := readNpmManifest(filepath.Join(dir, "node_modules", filepath.FromSlash(f.ref.Name)))
	if err != nil {
		return fail(Unsafe, f.ref.String(), "the package's package.json cannot be read", "do not use this package", err)
	}
	if self.Name != f.ref.Name || f.ref.Version != "" && !sameVersion(NPM, self.Version, f.ref.Version) ||
		!IsExact(NPM, self.Version) {
		return fail(Unsafe, f.ref.String(), "the downloaded package is "+diag.Quote(self.Name+"@"+self.Version),
			"do not use this package: the name in the registry differs from the name in the package", nil)
	}
	f.record.Kind, f.record.Name, f.record.Version = NPM, self.Name, self.Version
	return nil
}

// npmScripts runs the install scripts of the dependencies in want.Scripts. It first removes from want.Scripts the
// packages that are not dependencies, because --allow-scripts applies to all servers of an agent.
func (f *fetch) npmScripts(dir string, client func([]string, ...string) error) error {
	var deps map[string]npmDependency
	if err := json.Unmarshal(f.deps, &deps); err != nil {
		return err
	}
	f.want.Scripts = slices.DeleteFunc(f.want.Scripts, func(name string) bool {
		return !npmName().MatchString(name) || !anyNamed(deps, name)
	})
	if len(f.want.Scripts) == 0 {
		return nil
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return storeFailed(home, "the folder could not be created", err)
	}
	for _, name := range f.want.Scripts {
		f.progress("running the install scripts of " + name)
	}
	args := append([]string{"rebuild", "--no-ignore-scripts"}, f.want.Scripts...)
	return client(scriptEnviron(home), args...)
}

// onlyFile returns the path of the only file in dir that matches pattern. It fails if no file or several files match.
func onlyFile(dir, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		return "", fail(FetchFailed, pattern, "the client reported success, but did not create an archive",
			"try a newer version of the client", err)
	}
	return found[0], nil
}
