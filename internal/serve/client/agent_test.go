package client

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestStage(t *testing.T) {
	from, agents := t.TempDir(), filepath.Join(t.TempDir(), "agents")
	for name, text := range map[string]string{"findagent.json": "{}", "src/run.mjs": "x", ".env": "canary", ".git/config": "canary"} {
		file := filepath.Join(from, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Stage(agents, "x", from, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{".env", ".git"}; !slices.Equal(s.Left, want) {
		t.Errorf("left out %v, want %v", s.Left, want)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(agents, "x", "src", "run.mjs")); err != nil || string(text) != "x" {
		t.Errorf("copied %q, %v", text, err)
	}
	// A second copy replaces the first one completely.
	s, err = Stage(agents, "x", from, false, []string{"findagent.json"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(agents, "x", "src")); err == nil {
		t.Error("the new copy contains files of the old copy")
	}
	entries, err := os.ReadDir(agents)
	if err != nil || len(entries) != 1 {
		t.Errorf("the agents folder contains %v, %v; want only the agent", entries, err)
	}
}

// Commit first syncs the copy and moves it to the agent's folder. Then Commit syncs the agents
// folder. Only then does Commit remove the previous version. If a sync fails, Commit restores the
// previous version.
func TestCommitLasts(t *testing.T) {
	from, agents := t.TempDir(), t.TempDir()
	write := func(text string) *Staged {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Join(from, "src"), 0o755), os.WriteFile(filepath.Join(from, "src", "run.mjs"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := Stage(agents, "x", from, true, nil)
		if err == nil {
			err = s.Write("findagent.json", []byte("{}"))
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	installed := func() string {
		text, _ := os.ReadFile(filepath.Join(agents, "x", "src", "run.mjs"))
		return string(text)
	}
	if err := write("first").Commit(); err != nil {
		t.Fatal(err)
	}

	file, folder := syncFile, syncFolder
	t.Cleanup(func() { syncFile, syncFolder = file, folder })
	var s *Staged
	var synced []string
	note := func(path string) {
		rel, err := filepath.Rel(s.Dir, path)
		if err != nil {
			t.Fatal(err)
		}
		synced = append(synced, filepath.ToSlash(rel)+" while "+installed()+" is installed")
		if path == agents {
			if text, err := os.ReadFile(filepath.Join(s.Dir, "old", "src", "run.mjs")); err != nil || string(text) != "first" {
				t.Errorf("the previous version is %q, %v", text, err)
			}
		}
	}
	broken := errors.New("the disk is broken")
	for _, fails := range []error{broken, nil} {
		s, synced = write("second"), nil
		syncFile = func(f *os.File) error { note(f.Name()); return file(f) }
		syncFolder = func(dir string) error {
			note(dir)
			if dir == agents {
				return fails
			}
			return folder(dir)
		}
		if err := s.Commit(); !errors.Is(err, fails) {
			t.Errorf("Commit returned %v, want %v", err, fails)
		}
		want := []string{
			"x while first is installed", "x/findagent.json while first is installed", "x/src while first is installed",
			"x/src/run.mjs while first is installed", ".. while second is installed",
		}
		if !slices.Equal(synced, want) {
			t.Errorf("these were synced:\n%s\nwant\n%s", strings.Join(synced, "\n"), strings.Join(want, "\n"))
		}
		if got := installed(); got != map[error]string{broken: "first", nil: "second"}[fails] {
			t.Errorf("the installed version is %q", got)
		}
	}
}

// If the previous version cannot be restored, its only copy is kept.
func TestPreviousVersionIsKept(t *testing.T) {
	agents := t.TempDir()
	stage := func(text string) *Staged {
		from := t.TempDir()
		err := os.WriteFile(filepath.Join(from, "findagent.json"), []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Stage(agents, "x", from, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := stage("first").Commit(); err != nil {
		t.Fatal(err)
	}
	s, folder := stage("second"), syncFolder
	t.Cleanup(func() { syncFolder = folder })
	broken := errors.New("the disk is broken")
	syncFolder = func(dir string) error {
		if dir != agents {
			return folder(dir)
		}
		// This non-empty folder blocks the rename that would undo the change.
		if err := os.MkdirAll(filepath.Join(s.Dir, "x", "full"), 0o700); err != nil {
			t.Error(err)
		}
		return broken
	}
	err := s.Commit()
	s.Discard() // callers of Stage call Discard like this too
	old := filepath.Join(s.Dir, "old")
	if text, lost := os.ReadFile(filepath.Join(old, "findagent.json")); !errors.Is(err, broken) || !strings.Contains(err.Error(), old) || string(text) != "first" {
		t.Errorf("Commit returned %v; the previous version is %q, %v", err, text, lost)
	}
}

func TestStageRefusesLinksAndOutsidePaths(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	from, agents := t.TempDir(), t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("canary"), 0o600), os.Symlink(secret, filepath.Join(from, "link"))); err != nil {
		t.Fatal(err)
	}
	inside := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(inside, "file"), nil, 0o600), os.Symlink("file", filepath.Join(inside, "link"))); err != nil {
		t.Fatal(err)
	}
	for name, stage := range map[string]func() (*Staged, error){
		"a link to a neighbour": func() (*Staged, error) { return Stage(agents, "x", inside, true, nil) },
		"a link in a folder":    func() (*Staged, error) { return Stage(agents, "x", from, true, nil) },
		"a link by name":        func() (*Staged, error) { return Stage(agents, "x", from, false, []string{"link"}) },
		"a path upwards":        func() (*Staged, error) { return Stage(agents, "x", from, false, []string{"../secret"}) },
	} {
		if _, err := stage(); err == nil {
			t.Errorf("%s was copied", name)
		}
	}
	if entries, err := os.ReadDir(agents); err != nil || len(entries) > 0 {
		t.Errorf("temporary folders remain: %v, %v", entries, err)
	}
}

// A folder that is too large is refused before its content is copied.
func TestStageIsBounded(t *testing.T) {
	from, agents := t.TempDir(), t.TempDir()
	large := filepath.Join(from, "large")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, maxBytes+1)); err != nil {
		t.Fatal(err)
	}
	for name, whole := range map[string]bool{"folder": true, "file": false} {
		if _, err := Stage(agents, "x", from, whole, []string{"large"}); err == nil || !strings.Contains(err.Error(), "too large for an agent") {
			t.Errorf("with a large %s, Stage returned %v", name, err)
		}
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := &Staged{files: maxFiles - 1}
	if err := s.count(root, 0); err != nil {
		t.Errorf("%d files: %v", maxFiles, err)
	}
	if err := s.count(root, 0); err == nil {
		t.Errorf("Stage accepted more than %d files", maxFiles)
	}
	if entries, err := os.ReadDir(agents); err != nil || len(entries) > 0 {
		t.Errorf("temporary folders remain: %v, %v", entries, err)
	}
}

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "my agent", "report-builder_2.0", "日本", "it's"} {
		if err := ValidName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", `a\b`, "-rf", "a\nb", "a\x1b[0m", "node_modules", "c:", strings.Repeat("a", 129)} {
		if ValidName(name) == nil {
			t.Errorf("ValidName accepts %q", name)
		}
	}
}
