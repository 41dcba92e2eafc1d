package lock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

const unpinned = `{"schema_version": 1, "agent": "matrix://agent/notes", "allowed_side_effects": ["read"], "servers": [
  {"alias": "s", "transport": "http", "endpoint": "https://notes.example/mcp", "version": "1.0.0",
   "tools": [{"name": "read", "side_effect_class": "read"}]}]}`

// TestLockKeepsEdits checks that nothing is locked if the manifest is edited after it was read. An
// edit can happen while the user is asked. The edit must be kept.
func TestLockKeepsEdits(t *testing.T) {
	const text = unpinned
	pinned := strings.Replace(text, "1.0.0", "1.0.1", 1)
	for name, tt := range map[string]struct {
		before, now, text, want string
		err                     string
	}{
		"not edited":                     {text, text, pinned, pinned, ""},
		"begins with a byte order mark":  {"\ufeff" + text, "\ufeff" + text, pinned, pinned, ""},
		"edited":                         {text, text + "\n", pinned, text + "\n", "was edited in the meantime; run the command again"},
		"only the lock is written":       {text, text + "\n", "", text + "\n", "was edited in the meantime; run the command again"},
		"the manifest is no longer text": {text, "\xff", pinned, "\xff", "was edited in the meantime; run the command again"},
		"deleted":                        {text, "", pinned, "", "nothing was written, because the manifest could not be reread: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, lockFile := filepath.Join(dir, "notes.json"), filepath.Join(dir, pack.LockName)
			write := func(content string) {
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(tt.before)
			m, err := manifest.Load(path, manifest.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if write(tt.now); tt.now == "" {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			l := &Locking{Manifest: m}
			if tt.text != "" {
				l.text = []byte(tt.text)
			}
			_, _, err = l.replace(lockFile, &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error = %v, want %q", err, tt.err)
			}
			if got, _ := os.ReadFile(path); string(got) != tt.want {
				t.Errorf("the manifest is %q, want %q", got, tt.want)
			}
			if _, missing := os.Stat(lockFile); (missing == nil) != (tt.err == "") {
				t.Errorf("os.Stat of the lock file: %v, want it to exist: %v", missing, tt.err == "")
			}
		})
	}
}

// TestLockThatCannotBeWritten checks that neither the lock nor the manifest is written if
// the lock would be invalid.
func TestLockThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	path, lockFile := filepath.Join(dir, "notes.json"), filepath.Join(dir, pack.LockName)
	if err := os.WriteFile(path, []byte(unpinned), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Load(path, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &Locking{Manifest: m, text: []byte(strings.Replace(unpinned, "1.0.0", "1.0.1", 1))}
	entry := &pack.LockedAgent{Servers: map[string]*pack.LockedServer{"s": {Tools: map[string]pack.LockedTool{"read": {Hash: "none", Definition: []byte("{}")}}}}}
	if _, _, err := l.replace(lockFile, entry); !errors.Is(err, pack.LockInvalid) {
		t.Errorf("error = %v, want LockInvalid", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != unpinned {
		t.Errorf("the manifest is %q, error %v; want it unchanged", got, err)
	}
	if _, err := os.Stat(lockFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("os.Stat of the lock file: %v, want it not to exist", err)
	}
}

// unfound is an agent with a requirement for which no server was found. All methods except Found panic.
type unfound struct {
	Resolved
	found registry.Found
}

func (u unfound) Found() []registry.Found { return []registry.Found{u.found} }

// TestRequiredServerUnavailable checks that Run and Check return an error if a required server is
// unavailable. They must not fetch or start anything.
func TestRequiredServerUnavailable(t *testing.T) {
	for _, tt := range []struct {
		problem error
		lacking bool
	}{{registry.ErrUnreachable, true}, {errors.New("no such version"), false}} {
		f := registry.Found{Requirement: agent.Requirement{Server: "a.example.com/x"}, Problem: tt.problem}
		l := &Locking{Resolved: unfound{found: f}}
		_, run := l.Run(t.Context())
		_, check := l.Check(t.Context())
		for _, err := range []error{run, check} {
			missing, ok := errors.AsType[*UnavailableError](err)
			if !ok || missing.Lacking != tt.lacking || !strings.Contains(err.Error(), "a.example.com/x") {
				t.Errorf("problem %v: error = %v, want an UnavailableError", tt.problem, err)
			}
		}
	}
}
