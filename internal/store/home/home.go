// Package home locates ambit's files. The files are in the directory $AMBIT_HOME. If that variable is not set, they
// are in ~/.ambit.
//
// One directory contains all files, so the files can be moved, backed up, and hidden from tool servers as one unit.
// ambit creates the directory when it writes the first file. Commands that only inspect a manifest create nothing.
//
// The file config.toml contains all settings. Each package reads its own table from the file. Reading fails if the file
// contains an unknown table or setting.
package home

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Home is the directory that contains ambit's files.
type Home struct{ dir string }

// Find returns the home of the current user. It does not create the home's directory.
func Find() (Home, error) {
	if dir := os.Getenv("AMBIT_HOME"); dir != "" {
		abs, err := filepath.Abs(dir)
		return Home{abs}, err
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return Home{}, errors.New("the current user has no home directory: set the environment variable AMBIT_HOME")
	}
	return Home{filepath.Join(user, ".ambit")}, nil
}

// At returns the home in the directory dir.
func At(dir string) Home { return Home{dir} }

// Dir returns the path of the home.
func (h Home) Dir() string { return h.dir }

// Writable returns an error if no files can be created in the home. If the directory does not exist, Writable checks
// the nearest existing parent. Writable leaves no files behind.
func (h Home) Writable() error {
	dir := h.dir
	for parent := filepath.Dir(dir); parent != dir; parent = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = parent
	}
	probe, err := os.MkdirTemp(dir, ".ambit-*")
	if err != nil {
		return err
	}
	return os.Remove(probe)
}

// Packages returns the directory of installed packages.
func (h Home) Packages() string { return filepath.Join(h.dir, "packages") }

// State returns the path of the SQLite database.
func (h Home) State() string { return filepath.Join(h.dir, "state.db") }

// WALDir returns the directory of the journal's write-ahead logs. The logs used to be called daybooks. The directory
// keeps the old name, because existing homes use it.
func (h Home) WALDir() string { return filepath.Join(h.dir, "daybooks") }

// Root returns the path of the file that contains the root secret.
func (h Home) Root() string { return filepath.Join(h.dir, "keys", "root") }

// Seen returns the path of the file that records the newest registers of authority that this home has seen in
// PostgreSQL stores.
func (h Home) Seen() string { return filepath.Join(h.dir, "seen.json") }

// Begun returns the path of an empty file. The file exists if the SQLite database of this home has had a register of
// authority.
func (h Home) Begun() string { return filepath.Join(h.dir, "register-begun") }

// Guardrails returns the path of the operator's guardrails, which apply to every agent.
func (h Home) Guardrails() string { return filepath.Join(h.dir, "guardrails.json") }

// Agents returns the directory of installed agents.
func (h Home) Agents() string { return filepath.Join(h.dir, "agents") }

// ServerFiles returns the private folder of a tool server. Agents with the same name but different ids have different
// folders.
func (h Home) ServerFiles(agent, id, server string) string {
	return filepath.Join(h.AgentFiles(agent), fileName(id), fileName(server))
}

// AgentFiles returns the folder that contains the private folders of the tool servers of all agents with the given
// name.
func (h Home) AgentFiles(agent string) string {
	return filepath.Join(h.dir, "servers", fileName(agent))
}

// fileName returns a file name for any text. Different texts have different file names. No file name is "." or "..".
func fileName(text string) string {
	name := url.PathEscape(text)
	if strings.HasPrefix(name, ".") {
		name = "%2E" + name[1:]
	}
	const longest = 128
	if len(name) > longest {
		sum := sha256.Sum256([]byte(text))
		name = name[:longest-2*len(sum)] + "-" + hex.EncodeToString(sum[:])
	}
	return name
}

// Policy returns the path of the operator's policy.
func (h Home) Policy() string { return filepath.Join(h.dir, "policy.cedar") }

// Config returns the path of the settings file.
func (h Home) Config() string { return filepath.Join(h.dir, "config.toml") }
