package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

// Found is a file in an agents folder that contains a manifest or may be a broken manifest.
type Found struct {
	// Name is the name under which the daemon serves the agent.
	Name string
	Path string
	// short is the path for messages. It does not reveal the location of the agents folder.
	short string
	// Manifest is nil if the file cannot be read.
	Manifest *manifest.Manifest
	// Problem is the reason why the agent cannot be served, or nil.
	Problem error

	stray bool // the file is not a valid manifest, and may have a different purpose
	lock  *pack.Lock
	seal  string // digests of the path, the manifest, the lock file and the allowed rights, for detecting changes
}

// Find searches folders for agents: *.json, *.toml, */agent.toml, */findagent.json and */*.json. The agents of each
// folder are sorted by path. A missing folder is treated as empty. A file that is found twice is listed once.
//
// Find omits files that are not manifests. If an omitted file may be a broken manifest, its name stays reserved. If two
// agents have the same name or id, the second one has a Problem, even if the first one cannot be served.
func Find(folders ...string) ([]Found, error) { return FindAs(manifest.Options{}, folders...) }

// FindAs is like Find, but takes options for reading manifests.
func FindAs(o manifest.Options, folders ...string) ([]Found, error) {
	all, err := readAll(o, folders)
	settle(all) // settle runs before the strays are deleted, because strays reserve their names
	return slices.DeleteFunc(all, func(f Found) bool { return f.stray }), err
}

// List is like Find, but includes the files that may be broken manifests.
func List(folders ...string) ([]Found, error) {
	all, err := readAll(manifest.Options{}, folders)
	settle(all)
	return all, err
}

// Pick returns the first agent for which the callback returns true. It returns nil if there is no such agent. An agent
// that can be served takes precedence over an earlier agent that cannot be served. A duplicate cannot be served, so it
// never takes precedence over the original.
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

// readAll reads all folders. The result includes strays, which are files that may be broken manifests. The caller must
// call settle to detect duplicate names and ids.
func readAll(o manifest.Options, folders []string) ([]Found, error) {
	var all []Found
	seen := map[string]bool{}
	var last lockFile
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
			if f, ok := read(folder, path, messageBase(folder, folders), o); ok {
				if f.Problem == nil {
					f.readLock(&last)
				}
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// messageBase returns the folder to which paths in messages are relative. This is the deepest common parent of all
// agents folders. If the common parent is the root of the file system, messageBase returns the parent of the given
// folder.
func messageBase(folder string, folders []string) string {
	top := filepath.Clean(folders[0])
	for _, other := range folders[1:] {
		for !sandbox.Inside(other, top) && top != filepath.Dir(top) {
			top = filepath.Dir(top)
		}
	}
	if root := top == filepath.Dir(top) && top != "."; root || !sandbox.Inside(folder, top) {
		return filepath.Dir(filepath.Clean(folder))
	}
	return top
}

// settle reserves each name and id for the first file that has it. If a later file has the same name or id, it gets a
// Problem and reserves nothing. A file that cannot be served for another reason still reserves its name, and its id if
// the manifest is valid. Without this rule, another agent with the same id could use the grants and memory of a broken
// agent.
func settle(all []Found) {
	names, ids := map[string]*Found{}, map[string]*Found{}
	for i := range all {
		f := &all[i]
		id := f.id()
		named, owner := names[f.Name], ids[id]
		if f.Problem == nil {
			if f.Problem = f.checkDuplicate(named, owner); f.Problem != nil {
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

// checkDuplicate returns an error if an earlier file has the same name or id as f. The first parameter is the earlier
// file with the same name, or nil. The second parameter is the earlier file with the same id, or nil.
func (f *Found) checkDuplicate(named, owner *Found) error {
	switch {
	case named != nil && named.Problem != nil:
		return fmt.Errorf("%[1]s and %[2]s both have the name %[3]s, and %[2]s cannot be served anyway; either "+
			"fix or remove %[2]s, or rename %[1]s", f.short, named.short, f.Name)
	case named != nil:
		return fmt.Errorf("%s and %s both have the name %s; rename one of them", f.short, named.short, f.Name)
	case owner != nil && owner.Problem != nil:
		return fmt.Errorf("%[1]s and %[2]s both have the id %[3]s, and %[2]s cannot be served anyway; either "+
			"fix or remove %[2]s, or change the id in %[1]s", f.short, owner.short, f.id())
	case owner != nil:
		return fmt.Errorf("%s and %s both have the id %s; change one of the ids", f.short, owner.short, f.id())
	}
	return nil
}

// agent returns the agent in the manifest, or nil if the manifest is unreadable or invalid.
func (f *Found) agent() *agent.Agent {
	if f.Manifest == nil {
		return nil
	}
	return f.Manifest.Agent()
}

// id returns the agent's id, or an empty string if the id is unknown.
func (f *Found) id() string {
	if a := f.agent(); a != nil {
		return a.ID
	}
	return ""
}

// candidates returns the files in an agents folder that may be manifests.
func candidates(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder) // ReadDir returns sorted entries
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
		case err != nil || !info.IsDir(): // a broken link is included, because its name stays reserved
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

// PassedOver reports whether the search for agents skips files and folders with this name. Code that checks the
// agents of a folder must skip exactly the same names. Otherwise, an unchecked agent could be served.
func PassedOver(name string) bool {
	return strings.HasPrefix(name, ".") || name == "node_modules"
}

func extension(path string) string { return strings.ToLower(filepath.Ext(path)) }

// read reads one file of a folder. Paths in messages are relative to the top folder. The second result is false if the
// file is not a manifest.
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
		f.Problem = fmt.Errorf("%s cannot be read: %w", f.short, home.WithoutPath(err))
		return f, true
	}
	if m.Dialect == "" && !m.Suspect() {
		// A subfolder may contain files of other programs, so an unknown file in it is ignored. A file with the same name
		// as the subfolder may be a broken agent, so it is kept as a stray. But if the file can be parsed and the subfolder
		// contains agent.toml or findagent.json, the file is ignored too.
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
	return f, true
}

// manifestBeside reports whether the folder of a file contains agent.toml or findagent.json. Files with these names
// are always manifests.
func manifestBeside(path string) bool {
	return slices.ContainsFunc([]string{"agent.toml", "findagent.json"}, func(name string) bool {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		return err == nil && !info.IsDir()
	})
}

// somethingElse reports whether a file was parsed but is not a manifest.
func somethingElse(m *manifest.Manifest) bool {
	return slices.ContainsFunc(m.Diagnostics, func(d manifest.Diagnostic) bool {
		return d.Code == diag.UnknownDialect.Code || d.Code == diag.NotObject.Code
	})
}

// lockFile is the lock file of a folder.
type lockFile struct {
	folder string
	lock   *pack.Lock
	err    error
}

// of returns the lock file of a folder. It reads the file only if the folder differs from that of the previous call,
// because the agents of a folder share the file.
func (l *lockFile) of(folder string) (*pack.Lock, error) {
	if l.folder != folder {
		*l = lockFile{folder: folder}
		var text []byte
		if text, l.err = readBounded(filepath.Join(folder, pack.LockName)); l.err == nil {
			l.lock, l.err = pack.ParseLock(pack.LockName, text)
		}
	}
	return l.lock, l.err
}

// readLock reads the lock file in the manifest's folder and computes f.seal. The seal covers only the agent's own entry
// in the lock file, so a change of another entry does not restart the agent.
func (f *Found) readLock(last *lockFile) {
	lock, err := last.of(filepath.Dir(f.Path))
	missing := errors.Is(err, fs.ErrNotExist)
	var entry []byte
	if err == nil && lock.Agents[f.id()] != nil {
		entry, err = json.Marshal(lock.Agents[f.id()])
	}
	if err != nil && !missing {
		f.Problem = fmt.Errorf("the agent's ambit.lock is invalid: %w", home.WithoutPath(err))
		return
	}
	f.lock = lock
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%t\n", f.Path, f.Manifest.Digest(), missing)
	h.Write(entry)
	f.seal = hex.EncodeToString(h.Sum(nil))
}

// readBounded reads a lock file. It reads at most one byte more than the maximum size. Because of the extra byte,
// ParseLock can detect a file that is too large.
func readBounded(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe must not block
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, &fs.PathError{Op: "read", Path: path, Err: errors.New("is not a regular file")})
	}
	return io.ReadAll(io.LimitReader(file, doc.MaxBytes+1))
}

// fitForProduction returns an error if --production does not accept the agent.
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
		return fmt.Errorf("--production does not accept an all-zero package_digest (server %s); run: ambit lock",
			strings.Join(unpinned, ", "))
	case len(unlocked) > 0:
		return fmt.Errorf("--production requires a lock for http servers (server %s); run: ambit lock",
			strings.Join(unlocked, ", "))
	}
	return nil
}
