// Package catalog implements the catalogue, a list of tool servers that ambit knows without a registry. It contains
// the entries that ship with ambit and the entries that the user added.
//
// An entry maps a server id to one exact package, by version and sha256. Resolving an entry needs no network. ambit
// runs exactly the package that was reviewed. An entry also lists every tool with its side-effect class. For each
// scope, it lists the tools that the scope covers. A scope without a mapping covers no tool.
//
// The version of an entry is the version of the server, not of the package. The version constraints of agents refer
// to servers. Packages with a version below 1 are listed as version 1.
//
// The user's entries are in one file in $AMBIT_HOME. They override shipped entries with the same id.
package catalog

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/tooluri"
)

//go:embed catalog.json
var shipped []byte

// Entry describes one server.
type Entry struct {
	// Version is the server's exact semantic version.
	Version     string `json:"version"`
	Description string `json:"description"`
	License     string `json:"license,omitempty"`
	Homepage    string `json:"homepage,omitempty"`
	// Needs describes what must be installed or configured besides the package.
	Needs   string  `json:"needs,omitempty"`
	Package Package `json:"package"`
	// Args and Env are the arguments and environment variables of the program. {work} is replaced with the agent's
	// work folder, and $env:NAME with a credential.
	Args []string          `json:"args,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	// Tools maps every tool of the server to its side-effect class.
	Tools map[string]agent.SideEffect `json:"tools"`
	// Scopes maps each scope to the tools that the scope covers.
	Scopes map[string][]string `json:"scopes"`

	// Added means that the user added the entry.
	Added bool `json:"added,omitempty"`
}

// Package is the package that an entry runs.
type Package struct {
	// Kind is "npm" or "pypi". For a server that is part of ambit, it is "builtin".
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Digest is the sha256 of the published archive.
	Digest string `json:"digest,omitempty"`
}

// The kinds of packages.
const (
	NPM     = "npm"
	PyPI    = "pypi"
	Builtin = "builtin"
)

// Catalog is the catalogue. The keys of Entries are server ids.
type Catalog struct{ Entries map[string]*Entry }

// File returns the path of the file that contains the user's entries.
func File(h home.Home) string { return filepath.Join(h.Dir(), "catalog.json") }

// Work returns the path of the work folder that ambit creates for the agent with the given name. This folder is
// outside ambit's home folder, because servers cannot see the home folder.
func Work(h home.Home, name string) string { return filepath.Join(h.Dir()+"-work", name) }

// builtin returns the entries that ship with ambit.
var builtin = sync.OnceValues(func() (map[string]*Entry, error) { return Parse("catalog.json", shipped) })

// Open returns the catalogue, which contains the entries that ship with ambit and the user's entries in h.
func Open(h home.Home) (*Catalog, error) {
	ours, err := builtin()
	if err != nil {
		return nil, err
	}
	c := &Catalog{Entries: maps.Clone(ours)}
	theirs, err := added(h)
	if err != nil {
		return nil, err
	}
	for id, e := range theirs {
		e.Added = true
		c.Entries[id] = e
	}
	return c, nil
}

// IDs returns the sorted ids of all servers.
func (c *Catalog) IDs() []string { return slices.Sorted(maps.Keys(c.Entries)) }

// ScopeTools returns the tools that a scope of a server covers. It returns nil if the scope is not mapped.
func (c *Catalog) ScopeTools(server, scope string) []string {
	if e := c.Entries[server]; e != nil {
		return e.Scopes[scope]
	}
	return nil
}

// ScopesOf returns the scopes of a server.
func (c *Catalog) ScopesOf(server string) []string {
	if e := c.Entries[server]; e != nil {
		return slices.Sorted(maps.Keys(e.Scopes))
	}
	return nil
}

const maxFile = 4 << 20

// Parse parses a file of entries. The error has one line for each problem. Each line begins with the given file name.
func Parse(name string, text []byte) (map[string]*Entry, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	var entries map[string]*Entry
	if err := d.Decode(&entries); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if d.More() {
		return nil, fmt.Errorf("%s contains more than one JSON value", name)
	}
	var problems []error
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		if entries[id] == nil {
			problems = append(problems, fmt.Errorf("%s: %s: the entry is empty", name, diag.Quote(id)))
			continue
		}
		for _, p := range entries[id].Problems() {
			problems = append(problems, fmt.Errorf("%s: %s: %s", name, diag.Quote(id), p))
		}
	}
	return entries, errors.Join(problems...)
}

// Problems lists all problems in an entry.
func (e *Entry) Problems() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !isVersion.MatchString(e.Version) {
		bad("the version %s is not of the form 1.2.3", diag.Quote(e.Version))
	}
	switch e.Package.Kind {
	case NPM, PyPI:
		if e.Package.Name == "" || strings.ContainsAny(e.Package.Name, " \t=") || strings.HasPrefix(e.Package.Name, "-") {
			bad("%s is not a valid package name", diag.Quote(e.Package.Name))
		}
		if e.Package.Version == "" || strings.ContainsAny(e.Package.Version, "<>=^~*| xX") {
			bad("the package version %s is not an exact version", diag.Quote(e.Package.Version))
		}
		if !tooluri.IsDigest(e.Package.Digest) {
			bad("the digest of the package is missing or is not a SHA-256 digest")
		}
	case Builtin:
	default:
		bad("the package kind %s is not supported; use npm or pypi", diag.Quote(e.Package.Kind))
	}
	if len(e.Tools) == 0 {
		bad("the entry lists no tools")
	}
	for _, tool := range slices.Sorted(maps.Keys(e.Tools)) {
		if !slices.Contains(agent.SideEffects, e.Tools[tool]) {
			bad("tool %s: unknown side-effect class %s", diag.Quote(tool), diag.Quote(string(e.Tools[tool])))
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(e.Scopes)) {
		for _, tool := range e.Scopes[scope] {
			if _, ok := e.Tools[tool]; !ok {
				bad("scope %s: unknown tool %s", diag.Quote(scope), diag.Quote(tool))
			}
		}
	}
	return out
}

var isVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)

// Add adds an entry to the user's file. It replaces an entry with the same id.
func Add(h home.Home, id string, e *Entry) error {
	if problems := e.Problems(); len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	entries, err := added(h)
	if err != nil {
		return err
	}
	copied := *e
	copied.Added = false
	entries[id] = &copied
	return write(h, entries)
}

// Remove removes an entry from the user's file. It returns false if the file does not contain the entry.
func Remove(h home.Home, id string) (bool, error) {
	entries, err := added(h)
	if err != nil || entries[id] == nil {
		return false, err
	}
	delete(entries, id)
	return true, write(h, entries)
}

func added(h home.Home) (map[string]*Entry, error) {
	text, err := os.ReadFile(File(h))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return map[string]*Entry{}, nil
	case err != nil:
		return nil, err
	}
	return Parse(File(h), text)
}

func write(h home.Home, entries map[string]*Entry) error {
	file := File(h)
	text, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return home.Replace(file, 0o600, append(text, '\n'))
}
