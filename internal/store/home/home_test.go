package home_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
)

// userHome returns the environment variable of the user's home directory.
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
		{"where AMBIT_HOME says", abs("kept"), abs("user"), abs("kept")},
		{"where AMBIT_HOME says, without a user", abs("kept"), "", abs("kept")},
		{"seen from the working folder", "kept", abs("user"), abs("kept")},
		{"up from the working folder", filepath.Join("..", filepath.Base(dir), "kept"), abs("user"), abs("kept")},
		{"with a name that could be cleaner", abs("a") + string(filepath.Separator) + filepath.Join("..", "b") + string(filepath.Separator), "", abs("b")},
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
				t.Error("it was made before anything is kept")
			}
		})
	}
}

// Without a home there is none: nothing is kept in the working folder.
func TestFindNowhere(t *testing.T) {
	t.Setenv("AMBIT_HOME", "")
	t.Setenv(userHome(), "")
	if h, err := home.Find(); err == nil || h.Dir() != "" {
		t.Errorf("Find = %q, %v; want an error", h.Dir(), err)
	}
}

// The working folder may change after the home was found.
func TestFindStays(t *testing.T) {
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

// The names in a home are a contract.
func TestPlaces(t *testing.T) {
	h := home.At("kept")
	for _, tt := range []struct{ place, want string }{
		{h.Dir(), "kept"},
		{h.Packages(), filepath.Join("kept", "packages")},
		{h.Agents(), filepath.Join("kept", "agents")},
	} {
		if tt.place != tt.want {
			t.Errorf("%q, want %q", tt.place, tt.want)
		}
	}
}

// A home below a file can be neither made nor written; trying leaves nothing.
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
			t.Errorf("%s: %v", home.Dir(), err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
