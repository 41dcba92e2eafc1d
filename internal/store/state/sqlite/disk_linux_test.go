package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

func TestNetworkDiskIsRefused(t *testing.T) {
	dir := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	kind := int64(uint32(s.Type))
	networkDisks[kind] = "a test disk" // treat the type of the test directory as a network file system
	defer delete(networkDisks, kind)
	if _, err := Open(t.Context(), filepath.Join(dir, "state.db")); !errors.Is(err, state.ErrNetworkDisk) {
		t.Errorf("Open returned the error %v, want ErrNetworkDisk", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "state.db")); err == nil {
		t.Error("Open created the store file")
	}
}

func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "state.db")
	if err := testOpen(t, file, migrations.List()).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if os.Getuid() == 0 { // root can write anywhere, so this thread accesses files as another user
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = unix.Setfsuid(0)
			runtime.UnlockOSThread()
		}()
	}
	for _, name := range []string{file, filepath.Join(dir, "new", "state.db")} {
		if _, err := Open(t.Context(), name); !errors.Is(err, state.ErrReadOnly) {
			t.Errorf("Open returned the error %v, want ErrReadOnly", err)
		}
	}
}
