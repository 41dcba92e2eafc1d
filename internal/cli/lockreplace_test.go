package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

const unpinned = `{"schema_version": 1, "agent": "matrix://agent/notes", "allowed_side_effects": ["read"], "servers": [
  {"alias": "s", "transport": "http", "endpoint": "https://notes.example/mcp", "version": "1.0.0",
   "tools": [{"name": "read", "side_effect_class": "read"}]}]}`

// TestLockKeepsEdits changes a manifest after a lock has read it, as an editor does
// while a person is asked: what was written is kept, and nothing is locked.
func TestLockKeepsEdits(t *testing.T) {
	const text = unpinned
	pinned := strings.Replace(text, "1.0.0", "1.0.1", 1)
	for name, tt := range map[string]struct {
		before, now, text, want string
		err                     string
	}{
		"nobody changed it":        {text, text, pinned, pinned, ""},
		"it begins with a mark":    {"\ufeff" + text, "\ufeff" + text, pinned, pinned, ""},
		"somebody changed it":      {text, text + "\n", pinned, text + "\n", "was changed meanwhile, so nothing was written; look again"},
		"only the lock is written": {text, text + "\n", "", text + "\n", "was changed meanwhile, so nothing was written; look again"},
		"it is no text any more":   {text, "\xff", pinned, "\xff", "was changed meanwhile, so nothing was written; look again"},
		"it is gone":               {text, "", pinned, "", "nothing was written: "},
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
			l := &locking{m: m}
			if tt.text != "" {
				l.text = []byte(tt.text)
			}
			_, _, err = l.replace(lockFile, m.Agent(), &pack.LockedAgent{Servers: map[string]*pack.LockedServer{}})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("it ends with %v", err)
			}
			if got, _ := os.ReadFile(path); string(got) != tt.want {
				t.Errorf("the manifest is %q", got)
			}
			if _, missing := os.Stat(lockFile); (missing == nil) != (tt.err == "") {
				t.Errorf("the lock: %v", missing)
			}
		})
	}
}

// A lock that could not be read again is not written, and neither is the manifest.
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
	l := &locking{m: m, text: []byte(strings.Replace(unpinned, "1.0.0", "1.0.1", 1))}
	entry := &pack.LockedAgent{Servers: map[string]*pack.LockedServer{"s": {Tools: map[string]pack.LockedTool{"read": {Hash: "none", Definition: []byte("{}")}}}}}
	if _, _, err := l.replace(lockFile, m.Agent(), entry); !errors.Is(err, pack.LockInvalid) {
		t.Errorf("it ends with %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != unpinned {
		t.Errorf("the manifest is %q, %v", got, err)
	}
	if _, err := os.Stat(lockFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock: %v", err)
	}
}
