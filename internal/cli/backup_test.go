package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Other users may be able to write to the folder. Even then, only the owner can read the backup, and ambit does
// not follow another user's link. If two backups write to the same file at the same time, the second backup
// fails.
func TestBackupIsWrittenToAFileOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "monday.ambit")
	theirs := filepath.Join(dir, "theirs")
	if err := errors.Join(os.WriteFile(theirs, []byte("theirs"), 0o644), os.Symlink(theirs, file+".part")); err != nil {
		t.Fatal(err)
	}
	term := new(terminal)
	write := func(text string, during func()) error {
		return term.writeBackup(file, func(out io.Writer) error {
			during()
			_, err := io.WriteString(out, text)
			return err
		})
	}
	err := write("two", func() {
		if err := write("one", func() {}); err != nil {
			t.Error(err)
		}
	})
	if err == nil || !strings.HasSuffix(err.Error(), "already exists") {
		t.Errorf("the second backup returned the error %v, want an error that ends in: already exists", err)
	}
	for name, want := range map[string]string{file: "one", theirs: "theirs"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v; want a file with mode 0600", info, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("got the files %v, %v; want 3 files", entries, err)
	}
}
