// Package home locates ambit's files: $AMBIT_HOME, or ~/.ambit.
//
// One directory contains all of them, so that it can be moved, backed up, and hidden from
// tool servers and programs as a whole. The directory is created when the first file is
// written: inspecting a manifest leaves no trace. Settings are tables of one file,
// config.toml. Each table is read by the package that uses it, and every reader refuses a
// file with an unknown table or setting.
package home

import (
	"errors"
	"os"
	"path/filepath"
)

// Home is the directory that contains ambit's files.
type Home struct{ dir string }

// Find returns the home of this user without creating it.
func Find() (Home, error) {
	if dir := os.Getenv("AMBIT_HOME"); dir != "" {
		abs, err := filepath.Abs(dir)
		return Home{abs}, err
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return Home{}, errors.New("this user has no home directory: set AMBIT_HOME")
	}
	return Home{filepath.Join(user, ".ambit")}, nil
}

// At returns the home in dir.
func At(dir string) Home { return Home{dir} }

// Dir returns the directory.
func (h Home) Dir() string { return h.dir }

// Writable returns an error if files cannot be created here. It leaves nothing behind. If
// the directory does not exist, Writable tries its nearest existing parent.
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

// Packages is the directory of installed packages.
func (h Home) Packages() string { return filepath.Join(h.dir, "packages") }

// State is the file of the SQLite store.
func (h Home) State() string { return filepath.Join(h.dir, "state.db") }

// Daybooks is the directory of the processes' write-ahead logs. The name is older than
// the word.
func (h Home) Daybooks() string { return filepath.Join(h.dir, "daybooks") }

// Root is the file of the root secret.
func (h Home) Root() string { return filepath.Join(h.dir, "keys", "root") }

// Guardrails is the file of the guardrails that the operator sets for every agent.
func (h Home) Guardrails() string { return filepath.Join(h.dir, "guardrails.json") }

// Agents is the directory of installed agents.
func (h Home) Agents() string { return filepath.Join(h.dir, "agents") }

// Policy is the file of the operator's policy.
func (h Home) Policy() string { return filepath.Join(h.dir, "policy.cedar") }

// Config is the settings file.
func (h Home) Config() string { return filepath.Join(h.dir, "config.toml") }
