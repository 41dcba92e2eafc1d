// Package home knows where ambit keeps things: $AMBIT_HOME, or ~/.ambit.
//
// One folder holds all of it, so that it can be moved, backed up, and hidden from
// tool servers and programs as a whole. Nothing is made before something is kept:
// looking at a manifest leaves no trace. Settings are tables of one file,
// config.toml, and each is read by the package that it is for; a setting or a table
// that nobody knows is refused by all of them.
package home

import (
	"errors"
	"os"
	"path/filepath"
)

// Home is the folder that holds everything ambit keeps.
type Home struct{ dir string }

// Find returns the home of this user. It is not made until something is kept.
func Find() (Home, error) {
	if dir := os.Getenv("AMBIT_HOME"); dir != "" {
		abs, err := filepath.Abs(dir)
		return Home{abs}, err
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return Home{}, errors.New("there is no home folder: set AMBIT_HOME")
	}
	return Home{filepath.Join(user, ".ambit")}, nil
}

// At is the home in a given folder.
func At(dir string) Home { return Home{dir} }

// Dir is the folder itself.
func (h Home) Dir() string { return h.dir }

// Writable tries whether something can be kept here, and leaves nothing behind. A
// folder that is not there yet is one that could be made.
func (h Home) Writable() error {
	dir := h.dir
	for parent := filepath.Dir(dir); parent != dir; parent = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = parent
	}
	tried, err := os.MkdirTemp(dir, ".ambit-*")
	if err != nil {
		return err
	}
	return os.Remove(tried)
}

// Packages is where installed packages are.
func (h Home) Packages() string { return filepath.Join(h.dir, "packages") }

// State is the store of a home that has no other.
func (h Home) State() string { return filepath.Join(h.dir, "state.db") }

// Daybooks is where processes write down what is not in the store yet.
func (h Home) Daybooks() string { return filepath.Join(h.dir, "daybooks") }

// Root is the file of the root secret.
func (h Home) Root() string { return filepath.Join(h.dir, "keys", "root") }

// Guardrails is the file of the rails that the operator sets for every agent.
func (h Home) Guardrails() string { return filepath.Join(h.dir, "guardrails.json") }

// Agents is where installed agents are.
func (h Home) Agents() string { return filepath.Join(h.dir, "agents") }

// Policy is the file of the user's rules.
func (h Home) Policy() string { return filepath.Join(h.dir, "policy.cedar") }

// Config is the file of settings.
func (h Home) Config() string { return filepath.Join(h.dir, "config.toml") }
