package backup

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// volume returns an empty directory on a different volume from the given directory.
func volume(t *testing.T, other string) string {
	t.Helper()
	const memory = "/dev/shm"
	var here, there syscall.Stat_t
	err := syscall.Stat(memory, &there)
	if err == nil {
		err = syscall.Stat(other, &here)
	}
	if err != nil || here.Dev == there.Dev {
		const lacks = memory + " must be on another volume than the temporary files"
		if os.Getenv("CI") == "true" {
			t.Fatal(lacks, err)
		}
		t.Skip(lacks, err)
	}
	dir, err := os.MkdirTemp(memory, "ambit-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Restore works even if part of the home is on another volume, onto which files cannot be renamed.
func TestRestoreOntoOtherVolumes(t *testing.T) {
	backup := backedUp(t)
	want := len(filesIn(t, backup))
	for _, part := range []string{"keys", "agents"} {
		t.Run(part, func(t *testing.T) {
			h := home.At(t.TempDir())
			if err := os.Symlink(volume(t, h.Dir()), filepath.Join(h.Dir(), part)); err != nil {
				t.Fatal(err)
			}
			s, err := Restore(t.Context(), source(backup), h, into(statetest.Open(t)))
			if err != nil || s.Files != want || s.Rows < 301 {
				t.Fatalf("got the summary %+v (error %v), want %d files and at least 301 rows", s, err, want)
			}
			for _, f := range filesIn(t, backup) {
				text, err := os.ReadFile(filepath.Join(h.Dir(), f.rel))
				if err != nil || string(text) != string(f.text) {
					t.Errorf("%s contains %q, error %v", f.rel, text, err)
				}
			}
			var again bytes.Buffer
			if s, err := Write(t.Context(), &again, h, statetest.Open(t), "test"); err != nil || s.Files != want || s.LeftOut != nil {
				t.Errorf("backing up the restored home: got the summary %+v (error %v), want %d files", s, err, want)
			} else if got := filesIn(t, again.Bytes()); !reflect.DeepEqual(got, filesIn(t, backup)) {
				t.Errorf("the backup of the restored home has other files: %+v", got)
			}
		})
	}
}
