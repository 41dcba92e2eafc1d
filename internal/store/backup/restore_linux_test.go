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

// volume is an empty folder on another volume than the one of a folder.
func volume(t *testing.T, than string) string {
	t.Helper()
	const memory = "/dev/shm"
	var here, there syscall.Stat_t
	err := syscall.Stat(memory, &there)
	if err == nil {
		err = syscall.Stat(than, &here)
	}
	if err != nil || here.Dev == there.Dev {
		const lacks = memory + " is not another volume than the one of temporary files"
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

// Part of a home may be a volume of its own, which nothing can be moved onto.
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
				t.Fatalf("%+v, error %v", s, err)
			}
			for _, f := range filesIn(t, backup) {
				text, err := os.ReadFile(filepath.Join(h.Dir(), f.rel))
				if err != nil || string(text) != string(f.text) {
					t.Errorf("%s is %q, error %v", f.rel, text, err)
				}
			}
			var again bytes.Buffer
			if s, err := Write(t.Context(), &again, h, statetest.Open(t), "test"); err != nil || s.Files != want || s.LeftOut != nil {
				t.Errorf("a backup of it is %+v, error %v", s, err)
			} else if got := filesIn(t, again.Bytes()); !reflect.DeepEqual(got, filesIn(t, backup)) {
				t.Errorf("a backup of it has other files: %+v", got)
			}
		})
	}
}
