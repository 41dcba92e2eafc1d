package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Another user of the folder neither gets the backup nor has a file overwritten by it, and two
// backups of one name do not mix.
func TestBackupIsWrittenToAFileOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "monday.ambit")
	theirs := filepath.Join(dir, "theirs")
	if err := errors.Join(os.WriteFile(theirs, []byte("theirs"), 0o644), os.Symlink(theirs, file+".part")); err != nil {
		t.Fatal(err)
	}
	term := new(terminal)
	var finish [2]func(error) error
	for i, text := range []string{"one", "two"} {
		out, done, err := term.backupTo(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(out, text); err != nil {
			t.Fatal(err)
		}
		finish[i] = done
	}
	if err := finish[0](nil); err != nil {
		t.Fatal(err)
	}
	if err := finish[1](nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the second says %v", err)
	}
	for name, want := range map[string]string{file: "one", theirs: "theirs"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s holds %q, error %v", name, got, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, error %v", info, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("there are %v, error %v", entries, err)
	}
}
