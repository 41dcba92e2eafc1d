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

// Found is a file in an agents folder that describes an agent, or means to.
type Found struct {
	// Name is what the agent is called on a daemon.
	Name string
	Path string
	// short is the path as it is told: where agents lie on a machine is not for
	// everybody.
	short string
	// Manifest is nil if the file cannot be read.
	Manifest *manifest.Manifest
	// Problem says why the agent cannot be served, nil if it can.
	Problem error

	stray bool // it cannot be read, and nothing says that it was ever a manifest
	lock  *pack.Lock
	seal  string // changes with the manifest's digest and with its lock
}

// Find looks for agents in folders: *.json, *.toml, */agent.toml,
// */findagent.json and */*.json, sorted by path within each folder. A JSON or
// TOML file that is something else is passed over, unless an agent may have been in
// its place: agent.toml, and what alone has its folder's name. A folder that does not exist
// holds none, and a file that is in two of them is one agent. Of two agents of one
// name or one id the second has a Problem, also where the first cannot be served.
func Find(folders ...string) ([]Found, error) { return FindAs(manifest.Options{}, folders...) }

// FindAs is Find with other options of reading.
func FindAs(o manifest.Options, folders ...string) ([]Found, error) {
	all, err := readAll(o, folders)
	settle(all) // strays too: they hold their names
	return slices.DeleteFunc(all, func(f Found) bool { return f.stray }), err
}

// List is Find for whoever wants to know what is there: it also has the files of the
// folders themselves, and of those of single agents, that cannot be read, and may have been agents.
func List(folders ...string) ([]Found, error) {
	all, err := readAll(manifest.Options{}, folders)
	settle(all)
	return all, err
}

// Pick is the first that fits and can be served, or where there is none, the first
// that fits: one refused for what is another's does not stand in the way of that.
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

// readAll reads what is in folders, strays too. Names are not settled yet.
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

// above is where the paths in a folder are told from: the deepest one that holds all
// of folders, so that they tell which of them is meant. Where that is only the root,
// they begin with the folder's own name.
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

// settle gives each name and each id to the first that has it. A file that cannot be
// served holds them all the same, the id if its manifest is valid: what is wrong with one agent must
// not put another in its place, and grants and memory go by the id. One that only has
// what is another's holds nothing.
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

// taken says that a name or an id is that of another, which came first; nil for none.
func (f *Found) taken(named, owner *Found) error {
	switch {
	case named != nil && named.Problem != nil:
		return fmt.Errorf("the name of %s, %s, is that of %s, which cannot be served: mend or remove that, or rename this", f.short, f.Name, named.short)
	case named != nil:
		return fmt.Errorf("the name of %s, %s, is already that of %s: rename one of them", f.short, f.Name, named.short)
	case owner != nil && owner.Problem != nil:
		return fmt.Errorf("the id of %s, %s, is that of %s, which cannot be served: mend or remove that, or give this another", f.short, f.id(), owner.short)
	case owner != nil:
		return fmt.Errorf("the id of %s, %s, is already that of %s: give one of them another", f.short, f.id(), owner.short)
	}
	return nil
}

// id is that of the agent, empty if the manifest has none that can be told.
func (f *Found) id() string {
	if f.Manifest == nil || f.Manifest.Agent() == nil {
		return ""
	}
	return f.Manifest.Agent().ID
}

// candidates are the files of an agents folder that may be manifests.
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
		case err != nil || !info.IsDir(): // a link that leads nowhere holds its name
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

// PassedOver reports whether a file or folder of this name holds no agents. What checks
// a folder of agents passes over the same ones: nothing is served that it did not see.
func PassedOver(name string) bool {
	return strings.HasPrefix(name, ".") || name == "node_modules"
}

func extension(path string) string { return strings.ToLower(filepath.Ext(path)) }

// read reads one file of a folder, whose path is told from top on; ok is false if it
// is no manifest at all.
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
		// What lies deeper may be a tool's own file, and only nearly JSON. What has its
		// folder's name may have been the agent, unless that has another file.
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

// manifestBeside reports whether a folder has a file that is always a manifest.
func manifestBeside(path string) bool {
	return slices.ContainsFunc([]string{"agent.toml", "findagent.json"}, func(name string) bool {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		return err == nil && !info.IsDir()
	})
}

// somethingElse reports whether a file could be read, and is no manifest.
func somethingElse(m *manifest.Manifest) bool {
	return slices.ContainsFunc(m.Diagnostics, func(d manifest.Diagnostic) bool {
		return d.Code == diag.UnknownDialect.Code || d.Code == diag.NotObject.Code
	})
}

// cause is an error without the path.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// readLock reads the lock beside the manifest, and seals what was read.
func (f *Found) readLock() {
	text, err := readBounded(filepath.Join(filepath.Dir(f.Path), pack.LockName))
	missing := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		f.lock, err = pack.ParseLock(pack.LockName, text)
	}
	if err != nil && !missing {
		f.Problem = fmt.Errorf("its lock cannot be used: %w", cause(err))
		return
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%t\n", f.Path, f.Manifest.Digest(), missing)
	h.Write(text)
	f.seal = hex.EncodeToString(h.Sum(nil))
}

// readBounded reads a file, but no more than a lock may have and one byte.
func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, doc.MaxBytes+1))
}

// fitForProduction says what of an agent is good enough for trying things out
// only.
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
		return fmt.Errorf("--production takes no all-zero package_digest (server %s): pin it with ambit lock", strings.Join(unpinned, ", "))
	case len(unlocked) > 0:
		return fmt.Errorf("--production needs a lock for http servers (server %s): make it with ambit lock", strings.Join(unlocked, ", "))
	}
	return nil
}
