package wal

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ambit-run/ambit/internal/store/home"
)

// A book that turns leaves its file at once, and what comes then goes to the next.
func TestRotate(t *testing.T) {
	b := Open(t.TempDir(), "OWNER")
	b.Rotate() // there is nothing to leave
	for _, entry := range []string{"one", "two"} {
		if err := b.Write([]byte(entry), 0); err != nil {
			t.Fatal(err)
		}
		b.Rotate()
		if name := current(b); name != "" {
			t.Errorf("%s is still written to", name)
		}
	}
	if got := over(t, b); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("the files that were left are over: %v", got)
	}
	if got := all(t, b.dir); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("read %v", got)
	}
}

// An entry that is being written during a rotation goes to the old file.
func TestRotateWaitsForWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Open(t.TempDir(), "OWNER")
		writing, on := make(chan struct{}), make(chan struct{})
		b.sync = func(f *os.File) error {
			close(writing)
			<-on
			return syncData(f)
		}
		wrote := make(chan error, 1)
		go func() { wrote <- b.Write([]byte("one"), 0) }()
		<-writing
		b.Rotate()
		if got := over(t, b); !slices.Equal(got, []bool{false}) {
			t.Errorf("the file that is written to is over: %v", got)
		}
		close(on)
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := over(t, b); !slices.Equal(got, []bool{true}) {
			t.Errorf("the file that was left is over: %v", got)
		}
		if got := all(t, b.dir); !slices.Equal(got, []string{"one"}) {
			t.Errorf("read %v", got)
		}
	})
}

// A writer rotates even if entries are always waiting.
func TestRotateUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Open(t.TempDir(), "OWNER")
		wrote := make(chan error, 4)
		write := func() { wrote <- b.Write([]byte("entry"), 0) }
		var names []string
		b.sync = func(f *os.File) error {
			if names = append(names, f.Name()); len(names) < cap(wrote) {
				go write()
				synctest.Wait() // it waits for this page
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
			t.Errorf("written to %q", names)
		}
	})
}

// An entry is kept only if its folder is: that may be new too.
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
		t.Errorf("synced: %v", synced)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
