package cli

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// stdinName is the name of standard input in locations and messages.
const stdinName = "<stdin>"

// read reads a manifest that was named on the command line, valid or not.
func (t *terminal) read(path string, o manifest.Options) (*manifest.Manifest, error) {
	if path == "-" {
		src, err := io.ReadAll(io.LimitReader(t.in, doc.MaxBytes+1))
		if err != nil {
			return nil, usage("", "cannot read standard input: %w", err)
		}
		m, _ := manifest.Parse(stdinName, src, o) // the manifest contains its errors
		return m, nil
	}
	asked := path
	if file := installed(path); file != "" {
		path = file
	}
	path, err := manifestIn(path)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Load(path, o)
	if _, invalid := errors.AsType[*manifest.InvalidError](err); err != nil && !invalid {
		if path == asked && mayBeName(asked) && errors.Is(err, fs.ErrNotExist) {
			return nil, unknown(asked)
		}
		return nil, unreadable(path, err)
	}
	return m, nil
}

// manifestIn returns path, or for a folder the manifest with a fixed name in it.
func manifestIn(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, nil
	}
	for _, name := range []string{"findagent.json", "agent.toml"} {
		file := filepath.Join(path, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file, nil
		}
	}
	return "", usage("name the manifest itself", "%s is a folder without agent.toml or findagent.json", path)
}

func unreadable(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage(cmp.Or(withExtension(path), "check the path"), "there is no file %s", path)
	case errors.Is(err, fs.ErrPermission):
		return usage("check the file's permissions", "no permission to read %s", path)
	}
	return usage("", "%w", err)
}

// unknown refuses a NAME that no installed agent and no file has.
func unknown(name string) error {
	hint := "list the installed agents: ambit agents; name any other by its path"
	if h, err := home.Find(); err == nil {
		found, _ := daemon.Find(h.Agents()) // only for the hint
		names := make([]string, len(found))
		for i := range found {
			names[i] = found[i].Name
		}
		if near := diag.DidYouMean(name, names); near != "" {
			hint = near + " " + hint
		}
	}
	return usage(cmp.Or(withExtension(name), hint), "there is no installed agent and no file %s", name)
}

// withExtension suggests the file whose extension was left out; empty if there is none.
func withExtension(path string) string {
	for _, meant := range []string{path + ".json", path + ".toml"} {
		if _, err := os.Stat(meant); err == nil {
			return "did you mean " + diag.ShellWord(meant) + "?"
		}
	}
	return ""
}

// load reads a manifest that must be valid, and prints its problems if it is not.
func (t *terminal) load(path, dialect string) (*manifest.Manifest, error) {
	return t.loadFor(development{}, path, dialect)
}

// loadFor is load under development switches.
func (t *terminal) loadFor(dev development, path, dialect string) (*manifest.Manifest, error) {
	d, err := parseDialect(dialect)
	if err != nil {
		return nil, err
	}
	m, err := t.read(path, manifest.Options{Dialect: d, LoopbackHTTP: dev.loopbackHTTP})
	if err != nil {
		return nil, err
	}
	if !m.Valid() {
		if t.json {
			return nil, no("see: ambit validate "+diag.ShellWord(path), "%w", &manifest.InvalidError{Manifest: m})
		}
		t.problems(t.err, m)
		return nil, no("", "%s is not a valid manifest: %s", m.Path, count(len(m.Errors()), "error"))
	}
	t.lastRead = m.Path
	return m, nil
}

// parseDialect parses the name of a dialect; empty means to detect it.
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
	names := make([]string, len(agent.Dialects))
	for i, d := range agent.Dialects {
		names[i] = string(d)
	}
	return names
}
