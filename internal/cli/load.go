package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/bundle"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

const stdinName = "<stdin>"

// read reads the manifest with the given path or name. If the manifest is invalid, read returns the manifest and no
// error. The manifest lists its problems.
func (t *terminal) read(path string, o manifest.Options) (*manifest.Manifest, error) {
	if path == "-" {
		src, err := io.ReadAll(io.LimitReader(t.in, doc.MaxBytes+1))
		if err != nil {
			return nil, usage("", "cannot read standard input: %w", err)
		}
		m, _ := manifest.Parse(stdinName, src, o) // the caller reads the errors from m
		return m, nil
	}
	asked := path
	if file := installedManifest(path); file != "" {
		path = file
	}
	path, err := manifestIn(path)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Load(path, o)
	if _, invalid := errors.AsType[*manifest.InvalidError](err); err != nil && !invalid {
		if path == asked && mayBeName(asked) && errors.Is(err, fs.ErrNotExist) {
			return nil, unknownAgent(asked)
		}
		return nil, unreadable(path, err)
	}
	return m, nil
}

// manifestIn returns the path of the manifest in the given folder. If it is given a file, it returns the path of the
// file.
func manifestIn(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, nil
	}
	if file := firstFile(path+"/findagent.json", path+"/agent.toml"); file != "" {
		return file, nil
	}
	return "", usage("give the path of the manifest itself", "%s is a folder without agent.toml or findagent.json", path)
}

func unreadable(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage(cmp.Or(withExtension(path), "check the path"), "there is no file %s", path)
	case errors.Is(err, fs.ErrPermission):
		return usage("check the file's permissions", "you do not have permission to read %s", path)
	}
	return usage("", "%w", err)
}

// unknownAgent returns the error for an argument that is neither an installed agent nor a file. If the running daemon
// serves an agent with this name from another folder, the error contains the path of its manifest. Commands accept only
// the path of such an agent, so that a name means the same agent whether or not the daemon runs.
func unknownAgent(name string) error {
	var names []string
	if h, err := home.Find(); err == nil {
		folders, _ := knownFolders(context.Background(), h) // ignore errors, because only the hint needs the names
		found, _ := daemon.Find(folders...)
		if f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == name }); f != nil {
			return usage("give its path: "+diag.ShellWord(f.Path), "%s is not installed; the running daemon serves it from %s",
				name, f.Path)
		}
		names = each(found, func(f daemon.Found) string { return f.Name })
	}
	near := diag.DidYouMean(name, names) +
		" to list the installed agents, run: ambit agents; to use another agent, give its path"
	hint := cmp.Or(withExtension(name), strings.TrimSpace(near))
	return usage(hint, "there is neither an installed agent nor a file named %s", name)
}

// withExtension returns a hint that suggests the path with .json or .toml added. If there is no such file, the hint is
// empty.
func withExtension(path string) string {
	if meant := firstFile(path+".json", path+".toml"); meant != "" {
		return "did you mean " + diag.ShellWord(meant) + "?"
	}
	return ""
}

// load reads a manifest for a verb that has no flag --dev. For such a verb, the environment variable AMBIT_DEV replaces
// the flag. If the manifest is invalid, load prints its problems and returns an error.
func (t *terminal) load(path, dialect string) (*manifest.Manifest, error) {
	return t.loadFor(development{loopbackHTTP: os.Getenv(egress.EnvDev) == "1"}, path, dialect)
}

// loadFor is like load, with the given development switches.
func (t *terminal) loadFor(dev development, path, dialect string) (*manifest.Manifest, error) {
	d, err := parseDialect(dialect)
	if err != nil {
		return nil, err
	}
	return t.loadWith(path, manifest.Options{Dialect: d, LoopbackHTTP: dev.loopbackHTTP})
}

// loadWith is like load, with the given options.
func (t *terminal) loadWith(path string, o manifest.Options) (*manifest.Manifest, error) {
	m, err := t.read(path, o)
	if err != nil {
		return nil, err
	}
	if !m.Valid() {
		if t.json {
			return nil, no("run: ambit validate "+diag.ShellWord(path), "%w", &manifest.InvalidError{Manifest: m})
		}
		t.printProblems(t.err, m)
		return nil, no("", "%s is not a valid manifest, because it has %s", m.Path, count(len(m.Errors()), "error"))
	}
	t.lastRead = m.Path
	return m, nil
}

// parseDialect parses the name of a dialect. An empty name means that the dialect will be detected.
func parseDialect(name string) (agent.Dialect, error) {
	if name == "" {
		return "", nil
	}
	if d := agent.Dialect(strings.ToLower(name)); slices.Contains(agent.Dialects, d) {
		return d, nil
	}
	return "", usage("use one of "+strings.Join(dialectNames(), ", "), "there is no dialect %q", name)
}

func dialectNames() []string {
	return each(agent.Dialects, func(d agent.Dialect) string { return string(d) })
}

// installedManifest returns the path of the installed manifest with the given name, or "". An installed agent takes
// precedence over a file with the same name, because clients start agents by name from any folder. To use the file,
// users write ./NAME. If no agent or file has the name, the name can also be the slug of an agent's display name.
func installedManifest(name string) string {
	if !mayBeName(name) {
		return ""
	}
	h, err := home.Find()
	if err != nil {
		return ""
	}
	if file := installedAs(h, name); file != "" {
		return file
	}
	if _, err := os.Stat(name); err == nil {
		return ""
	}
	found, err := agentsIn(manifest.Options{}, h.Agents())
	f := daemon.Pick(found, func(f *daemon.Found) bool { return agent.Slug(f.Manifest.Agent().Name) == name })
	if err != nil || f == nil {
		return ""
	}
	return f.Path
}

// agentsIn returns the agents with valid manifests in the given folders.
func agentsIn(o manifest.Options, folders ...string) ([]daemon.Found, error) {
	found, err := daemon.FindAs(o, folders...)
	unknown := func(f daemon.Found) bool { return f.Manifest == nil || f.Manifest.Agent() == nil }
	return slices.DeleteFunc(found, unknown), err
}

// mayBeName reports whether an argument can be the name of an agent. Any other argument is a path.
func mayBeName(asked string) bool {
	ext := strings.ToLower(filepath.Ext(asked))
	return asked != "" && !strings.ContainsAny(asked, `/\`) && asked[0] != '.' && ext != ".json" && ext != ".toml"
}

// installedAs returns the path of the manifest that is installed under the given name, even if the manifest is broken.
// If the name is free, installedAs returns "".
func installedAs(h home.Home, name string) string {
	if found, err := daemon.List(h.Agents()); err == nil {
		if f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == name }); f != nil {
			return f.Path
		}
	}
	// A file reserves its name even if the file is not a valid manifest. No other file is allowed to use that name.
	place := filepath.Join(h.Agents(), name)
	own := filepath.Join(place, name+".json")
	return firstFile(place+"/agent.toml", place+"/findagent.json", own, place+".json", place+".toml")
}

// firstFile returns the first path that is a regular file, or "" if there is none.
func firstFile(paths ...string) string {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return filepath.Clean(path)
		}
	}
	return ""
}

// soleID returns an error if m is a program and a different installed agent has the same id. Without this check, m
// could claim the id of the installed agent and get its grants and memory.
func soleID(m *manifest.Manifest) error {
	if !dispatch.TakesIntents(m.Agent()) {
		return nil
	}
	h, err := home.Find()
	if err != nil {
		return err
	}
	found, err := agentsIn(manifest.Options{}, programFolders(h)...)
	if err != nil {
		return err
	}
	f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Manifest.Agent().ID == m.Agent().ID })
	if f == nil || sameFile(m.Path, f.Path) {
		return nil
	}
	return no("use the installed agent "+diag.ShellWord(f.Path)+", or give this agent another id",
		"%s uses the id %s, which belongs to the agent installed at %s", m.Path, diag.Quote(m.Agent().ID), f.Path)
}

// registeredName returns the name under which ambit knows an agent. As in a daemon, the name comes from the path of the
// manifest, and not from its content. If a different agent is installed under that name, registeredName returns the
// full path, so that this agent does not get the grants of the installed agent.
func registeredName(h home.Home, m *manifest.Manifest) string {
	if m.Path == stdinName {
		return "stdin"
	}
	path, err := filepath.Abs(m.Path)
	if err != nil {
		return m.Path
	}
	folder, base := filepath.Split(path)
	folder = filepath.Clean(folder)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if alwaysManifest(base) {
		if name = filepath.Base(folder); folder == filepath.Clean(h.Agents()) {
			return agent.Slug(m.Agent().Name)
		}
	}
	theirs := installedAs(h, name)
	if theirs == "" || theirs == path {
		return name
	}
	if other, err := manifest.Load(theirs, manifest.Options{}); err == nil && other.Digest() == m.Digest() {
		return name
	}
	return path
}

// registeredBundleName returns the name under which a bundle runs. The name of an archive comes from its file name. If
// an agent is installed under that name, registeredBundleName returns the full path.
func registeredBundleName(h home.Home, path string, m *manifest.Manifest) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() || filepath.Base(path) == bundle.ManifestName {
		return registeredName(h, m)
	}
	base := filepath.Base(path)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if installedAs(h, name) == "" {
		return name
	}
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// policyOptions returns the options for the policy of a home.
func policyOptions(h home.Home) policy.Options {
	return policy.Options{
		File: h.Policy(), Config: h.Config(), CatalogueFile: catalog.File(h),
		Catalogue: func() (policy.Catalogue, error) { return catalog.Open(h) },
		Work:      func(agent string) string { return catalog.Work(h, agent) },
	}
}

// rules returns the user's policy. All checks in this process share one policy.
func (t *terminal) rules(h home.Home) *policy.Live {
	if t.policy == nil {
		o := policyOptions(h)
		o.Glance = 2 * time.Millisecond
		o.Log = func(message string) { t.serverLog("policy", message) }
		t.policy = policy.Open(o)
	}
	return t.policy
}
