package wal

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Rotate ends the current file at once, and the next entry goes to a new file.
func TestRotate(t *testing.T) {
	b := Open(t.TempDir(), "OWNER")
	b.Rotate() // Rotate does nothing, because there is no file yet
	for _, entry := range []string{"one", "two"} {
		if err := b.Write([]byte(entry), 0); err != nil {
			t.Fatal(err)
		}
		b.Rotate()
		if name := current(b); name != "" {
			t.Errorf("%s is still the current file", name)
		}
	}
	if got := over(t, b); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("Finished of the rotated files: got %v, want true for both", got)
	}
	if got := all(t, b.dir); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("got entries %v", got)
	}
}

// An entry that is being written during Rotate goes to the old file. Finished returns true for that
// file only after the write.
func TestRotateWaitsForWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Open(t.TempDir(), "OWNER")
		writing, resume := make(chan struct{}), make(chan struct{})
		b.sync = func(f *os.File) error {
			close(writing)
			<-resume
			return syncData(f)
		}
		wrote := make(chan error, 1)
		go func() { wrote <- b.Write([]byte("one"), 0) }()
		<-writing
		b.Rotate()
		if got := over(t, b); !slices.Equal(got, []bool{false}) {
			t.Errorf("Finished during the write: got %v, want false", got)
		}
		close(resume)
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := over(t, b); !slices.Equal(got, []bool{true}) {
			t.Errorf("Finished after the write: got %v, want true", got)
		}
		if got := all(t, b.dir); !slices.Equal(got, []string{"one"}) {
			t.Errorf("got entries %v", got)
		}
	})
}

// Rotate takes effect even if entries are always waiting.
func TestRotateUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Open(t.TempDir(), "OWNER")
		wrote := make(chan error, 4)
		write := func() { wrote <- b.Write([]byte("entry"), 0) }
		var names []string
		b.sync = func(f *os.File) error {
			if names = append(names, f.Name()); len(names) < cap(wrote) {
				go write()
				synctest.Wait() // the new write waits for this page
			}
			if len(names) == 2 {
				b.Rotate()
			}
			return syncData(f)
		}
		go write()
		for range cap(wrote) {
			if err := <-wrote; err != nil {
				t.Fatal(err)
			}
		}
		if len(names) != 4 || names[1] == names[2] {
			t.Errorf("the entries were written to the files %q, want a new file for the third", names)
		}
	})
}

// An entry survives a crash only if its directory survives too. So the parent of a new directory is
// synced.
func TestNewFolderIsSynced(t *testing.T) {
	above := t.TempDir()
	b := Open(filepath.Join(above, "daybooks"), "OWNER")
	var synced []string
	b.syncFolder = func(dir string) error {
		synced = append(synced, dir)
		return home.SyncFolder(dir)
	}
	if err := b.Write([]byte("one"), 0); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(synced, []string{above, b.dir}) {
		t.Errorf("the synced directories are %v, want the parent and the new directory", synced)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
