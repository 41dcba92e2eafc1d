package home_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
)

// userHome returns the name of the environment variable that contains the user's home directory.
func userHome() string {
	if filepath.Separator == '\\' {
		return "USERPROFILE"
	}
	return "HOME"
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	abs := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	for _, tt := range []struct {
		name, ambit, user, want string
	}{
		{"below the user's home", "", abs("user"), abs("user", ".ambit")},
		{"AMBIT_HOME", abs("kept"), abs("user"), abs("kept")},
		{"AMBIT_HOME without a user", abs("kept"), "", abs("kept")},
		{"relative to the working directory", "kept", abs("user"), abs("kept")},
		{"relative to the parent directory", filepath.Join("..", filepath.Base(dir), "kept"), abs("user"), abs("kept")},
		{"a path that is not clean", abs("a") + string(filepath.Separator) + filepath.Join("..", "b") + string(filepath.Separator), "", abs("b")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(dir)
			t.Setenv("AMBIT_HOME", tt.ambit)
			t.Setenv(userHome(), tt.user)
			h, err := home.Find()
			if err != nil || h.Dir() != tt.want {
				t.Errorf("Find = %q, %v; want %q", h.Dir(), err, tt.want)
			}
			if _, err := os.Stat(tt.want); err == nil {
				t.Error("Find created the directory")
			}
		})
	}
}

// Without a home directory, Find fails. It does not fall back to the working directory.
func TestFindNowhere(t *testing.T) {
	t.Setenv("AMBIT_HOME", "")
	t.Setenv(userHome(), "")
	if h, err := home.Find(); err == nil || h.Dir() != "" {
		t.Errorf("Find = %q, %v; want an error", h.Dir(), err)
	}
}

// The home does not change if the working directory changes later.
func TestFindMakesPathAbsolute(t *testing.T) {
	first := t.TempDir()
	t.Chdir(first)
	t.Setenv("AMBIT_HOME", "kept")
	h, err := home.Find()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if want := filepath.Join(first, "kept"); h.Dir() != want {
		t.Errorf("the home is %q, want %q", h.Dir(), want)
	}
}

// The names of files and directories in a home must not change, because existing homes use them.
func TestPlaces(t *testing.T) {
	h := home.At("kept")
	for _, tt := range []struct{ place, want string }{
		{h.Dir(), "kept"},
		{h.Packages(), filepath.Join("kept", "packages")},
		{h.Agents(), filepath.Join("kept", "agents")},
	} {
		if tt.place != tt.want {
			t.Errorf("got %q, want %q", tt.place, tt.want)
		}
	}
}

// Writable fails if the home or one of its parents is a file, and leaves nothing behind.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for home, want := range map[home.Home]bool{
		home.At(dir): true, home.At(filepath.Join(dir, "not", "there")): true,
		home.At(file): false, home.At(filepath.Join(file, "below")): false,
	} {
		if err := home.Writable(); (err == nil) != want {
			t.Errorf("Writable of %s: got error %v, want success: %t", home.Dir(), err, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory contains %v (error %v), want only the test's own file", left, err)
	}
}

// No name of an agent or server leads out of the folder of private files, and no two names share a folder.
func TestServerFiles(t *testing.T) {
	h := home.At("/home")
	seen := map[string]bool{}
	long := strings.Repeat("long", 100)
	for _, name := range []string{"desk", "..", ".", "%2E.", "a/b", "a%2Fb", "/root/desk.json", ".x", long, long + "x"} {
		path := h.ServerFiles(name, name, name)
		of := filepath.Dir(filepath.Dir(path))
		if seen[path] || filepath.Dir(of) != filepath.FromSlash("/home/servers") || of != h.AgentFiles(name) || len(filepath.Base(path)) > 255 {
			t.Errorf("%q: %s", name, path)
		}
		seen[path] = true
	}
	if h.ServerFiles("desk", "one", "s") == h.ServerFiles("desk", "other", "s") {
		t.Error("two agents with the same name share the private folder of a server")
	}
}
