package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

// Found is a file in an agents folder that describes an agent, or may be meant to.
type Found struct {
	// Name is the agent's name on a daemon.
	Name string
	Path string
	// short is the path in messages: callers may not see where agents are stored.
	short string
	// Manifest is nil if the file cannot be read.
	Manifest *manifest.Manifest
	// Problem is why the agent cannot be served, or nil.
	Problem error

	stray bool // it cannot be read, and may never have been a manifest
	lock  *pack.Lock
	seal  string // digest of the path, the manifest and its lock
}

// Find searches folders for agents: *.json, *.toml, */agent.toml, */findagent.json and */*.json,
// sorted by path within each folder. It ignores other JSON and TOML files, except where an agent
// may have been: agent.toml, and a file that is alone in having its folder's name. A missing folder
// contains no agents, and a file that is in two folders is one agent. If two agents have the same
// name or id, the second has a Problem, even if the first cannot be served.
func Find(folders ...string) ([]Found, error) { return FindAs(manifest.Options{}, folders...) }

// FindAs is Find with options for reading manifests.
func FindAs(o manifest.Options, folders ...string) ([]Found, error) {
	all, err := readAll(o, folders)
	settle(all) // strays reserve their names too
	return slices.DeleteFunc(all, func(f Found) bool { return f.stray }), err
}

// List is Find with the unreadable files that may have been agents.
func List(folders ...string) ([]Found, error) {
	all, err := readAll(manifest.Options{}, folders)
	settle(all)
	return all, err
}

// Pick returns the first match that can be served, or else the first match: a duplicate does not
// hide the agent that it duplicates.
func Pick(all []Found, fits func(*Found) bool) *Found {
	var picked *Found
	for i := range all {
		f := &all[i]
		if fits(f) && (picked == nil || picked.Problem != nil && f.Problem == nil) {
			picked = f
		}
	}
	return picked
}

// readAll reads all folders, with strays. Names and ids are not checked yet.
func readAll(o manifest.Options, folders []string) ([]Found, error) {
	var all []Found
	seen := map[string]bool{}
	for _, folder := range folders {
		files, err := candidates(folder)
		if err != nil {
			return nil, err
		}
		for _, path := range files {
			if seen[path] {
				continue
			}
			seen[path] = true
			if f, ok := read(folder, path, above(folder, folders), o); ok {
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// above returns the folder to which paths in messages are relative: the deepest one that contains
// all folders. If that is the root, paths begin with the folder's own name.
func above(folder string, folders []string) string {
	top := filepath.Clean(folders[0])
	for _, other := range folders[1:] {
		for !within(top, other) && top != filepath.Dir(top) {
			top = filepath.Dir(top)
		}
	}
	if root := top == filepath.Dir(top) && top != "."; root || !within(top, folder) {
		return filepath.Dir(filepath.Clean(folder))
	}
	return top
}

func within(top, path string) bool {
	rel, err := filepath.Rel(top, path)
	return err == nil && filepath.IsLocal(rel)
}

// settle assigns each name and id to the first file that has it. A file that cannot be served
// reserves them too, the id if its manifest is valid: a broken agent must not be replaced by
// another one, because grants and memory belong to the id. A duplicate reserves neither name nor
// id.
func settle(all []Found) {
	names, ids := map[string]*Found{}, map[string]*Found{}
	for i := range all {
		f := &all[i]
		id := f.id()
		named, owner := names[f.Name], ids[id]
		if f.Problem == nil {
			if f.Problem = f.taken(named, owner); f.Problem != nil {
				continue
			}
		}
		if named == nil {
			names[f.Name] = f
		}
		if id != "" && owner == nil {
			ids[id] = f
		}
	}
}

// taken reports that an earlier file has the name or the id; nil if neither is taken.
func (f *Found) taken(named, owner *Found) error {
	switch {
	case named != nil && named.Problem != nil:
		return fmt.Errorf("%s has the name %s of %s, which cannot be served: fix or remove that file, or rename this one", f.short, f.Name, named.short)
	case named != nil:
		return fmt.Errorf("%s has the name %s, which %s already has: rename one of them", f.short, f.Name, named.short)
	case owner != nil && owner.Problem != nil:
		return fmt.Errorf("%s has the id %s of %s, which cannot be served: fix or remove that file, or change this id", f.short, f.id(), owner.short)
	case owner != nil:
		return fmt.Errorf("%s has the id %s, which %s already has: change one of them", f.short, f.id(), owner.short)
	}
	return nil
}

// id is the agent's id, empty if it is unknown.
func (f *Found) id() string {
	if f.Manifest == nil || f.Manifest.Agent() == nil {
		return ""
	}
	return f.Manifest.Agent().ID
}

// candidates returns the files of an agents folder that may be manifests.
func candidates(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder) // sorted
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		info, err := os.Stat(path)
		switch {
		case PassedOver(e.Name()):
		case err != nil || !info.IsDir(): // a broken link reserves its name
			if ext := extension(path); (err != nil || info.Mode().IsRegular()) && (ext == ".json" || ext == ".toml") {
				files = append(files, path)
			}
		default:
			inner, err := os.ReadDir(path)
			if err != nil {
				return nil, err
			}
			for _, e := range inner {
				file := filepath.Join(path, e.Name())
				if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() || PassedOver(e.Name()) {
					continue
				}
				if extension(file) == ".json" || e.Name() == "agent.toml" {
					files = append(files, file)
				}
			}
		}
	}
	return files, nil
}

// PassedOver reports whether a file or folder with this name contains no agents. Checks of a folder
// must skip the same names, so that no unchecked agent is served.
func PassedOver(name string) bool {
	return strings.HasPrefix(name, ".") || name == "node_modules"
}

func extension(path string) string { return strings.ToLower(filepath.Ext(path)) }

// read reads one file of a folder. Messages show its path relative to top; ok is false if the file
// is no manifest.
func read(folder, path, top string, o manifest.Options) (f Found, ok bool) {
	f = Found{Path: path, Name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), short: path}
	if short, err := filepath.Rel(top, path); err == nil {
		f.short = short
	}
	base := filepath.Base(path)
	fixed := base == "agent.toml" || base == "findagent.json"
	deeper := filepath.Dir(path) != filepath.Clean(folder)
	if fixed && deeper {
		f.Name = filepath.Base(filepath.Dir(path))
	}
	m, err := manifest.Load(path, o)
	if m == nil {
		f.Problem = fmt.Errorf("%s cannot be read: %w", f.short, cause(err))
		return f, true
	}
	if m.Dialect == "" && !m.Suspect() {
		// A deeper file may belong to a tool, and be almost JSON. A file with its folder's name
		// may have been the agent, unless the folder has another manifest.
		own := deeper && f.Name == filepath.Base(filepath.Dir(path))
		if deeper && !own || somethingElse(m) && !fixed && (!own || manifestBeside(path)) {
			return f, false
		}
		f.stray = true
	}
	f.Manifest = m
	if err != nil {
		f.Problem = errors.New(f.short + strings.TrimPrefix(err.Error(), path))
		return f, true
	}
	if fixed && !deeper {
		f.Name = agent.Slug(m.Agent().Name)
	}
	f.readLock()
	return f, true
}

// manifestBeside reports whether the folder has a file that is always a manifest.
func manifestBeside(path string) bool {
	return slices.ContainsFunc([]string{"agent.toml", "findagent.json"}, func(name string) bool {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		return err == nil && !info.IsDir()
	})
}

// somethingElse reports whether a file is readable, but not a manifest.
func somethingElse(m *manifest.Manifest) bool {
	return slices.ContainsFunc(m.Diagnostics, func(d manifest.Diagnostic) bool {
		return d.Code == diag.UnknownDialect.Code || d.Code == diag.NotObject.Code
	})
}

// cause is an error without its path.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// readLock reads the lock beside the manifest and computes the seal.
func (f *Found) readLock() {
	text, err := readBounded(filepath.Join(filepath.Dir(f.Path), pack.LockName))
	missing := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		f.lock, err = pack.ParseLock(pack.LockName, text)
	}
	if err != nil && !missing {
		f.Problem = fmt.Errorf("its ambit.lock is invalid: %w", cause(err))
		return
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%t\n", f.Path, f.Manifest.Digest(), missing)
	h.Write(text)
	f.seal = hex.EncodeToString(h.Sum(nil))
}

// readBounded reads at most one byte more than a lock may have.
func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, doc.MaxBytes+1))
}

// fitForProduction reports what is acceptable only outside production.
func (f *Found) fitForProduction() error {
	a := f.Manifest.Agent()
	var unpinned, unlocked []string
	for i := range a.Servers {
		s := &a.Servers[i]
		if s.Placeholder {
			unpinned = append(unpinned, s.Alias)
		}
		if s.Transport == agent.StreamableHTTP && f.lock.Server(a.ID, s.Alias) == nil {
			unlocked = append(unlocked, s.Alias)
		}
	}
	slices.Sort(unpinned)
	switch {
	case len(unpinned) > 0:
		return fmt.Errorf("--production does not accept an all-zero package_digest (server %s): run ambit lock", strings.Join(unpinned, ", "))
	case len(unlocked) > 0:
		return fmt.Errorf("--production requires a lock for http servers (server %s): run ambit lock", strings.Join(unlocked, ", "))
	}
	return nil
}
