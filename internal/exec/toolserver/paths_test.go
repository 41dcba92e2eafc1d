//go:build unix

package toolserver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

func TestAbsolute(t *testing.T) {
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(work)
	for _, tt := range []struct{ what, want, argument string }{
		{"~", home, home},
		{"~/notes", home + "/notes", home + "/notes"},
		{"$env:HOME", home, home},
		{"$env:HOME/notes", home + "/notes", home + "/notes"},
		{".", work, work},
		{"./data", work + "/data", work + "/data"},
		{"../data", filepath.Dir(work) + "/data", filepath.Dir(work) + "/data"},
		{"data/x", work + "/data/x", "data/x"}, // an argument like this may be anything, such as a package
		{"/data//x/", "/data/x", "/data//x/"},
		{"~other", work + "/~other", "~other"},
	} {
		got, err := Absolute(agent.Access{{Kind: agent.CanRead, What: tt.what}, {Kind: agent.CanConnect, What: tt.what}})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].What != tt.want || got[1].What != tt.what {
			t.Errorf("%s: %+v, want %s", tt.what, got, tt.want)
		}
		f, err := ownFolders()
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"", "--dir="} {
			if got := f.argument(flag + tt.what); got != flag+tt.argument {
				t.Errorf("the argument %s is %s, want %s", flag+tt.what, got, flag+tt.argument)
			}
		}
	}
}

func TestTooWide(t *testing.T) {
	dir := realPath(t.TempDir())
	real, home := filepath.Join(dir, "disk", "ann"), filepath.Join(dir, "home")
	if err := errors.Join(os.MkdirAll(filepath.Join(real, "code"), 0o755), os.Symlink(real, home)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home) // a link, as on machines with a second disk
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	for folder, want := range map[string]bool{
		"/": true, dir: true, home: true, real: true, filepath.Dir(real): true, filepath.Join(dir, "tmp"): true, "/tmp": true,
		filepath.Join(home, "code"): false, filepath.Join(real, "code"): false,
	} {
		if got := TooWide(folder); got != want {
			t.Errorf("TooWide(%s) = %t, want %t", folder, got, want)
		}
	}
}
