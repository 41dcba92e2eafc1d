package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

func testOpen(t *testing.T, file string, list []string) *store {
	t.Helper()
	s, err := open(t.Context(), file, list)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func write(s *store, query string, args ...any) error {
	return s.Write(context.Background(), func(tx state.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
}

func read(t *testing.T, s *store, query string) (n int64) {
	t.Helper()
	if err := s.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(query, nil, func(r state.Row) error { return r.Scan(&n) })
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSettings(t *testing.T) {
	s := testOpen(t, filepath.Join(t.TempDir(), "state.db"), migrations.List())
	read(t, s, `SELECT count(*) FROM logs`) // opens a reading connection
	for name, conn := range map[string]int{"writer": 0, "reader": 1} {
		c := s.writer
		if conn == 1 {
			c = s.idle[0]
		}
		if n, err := c.ask(`PRAGMA synchronous`); err != nil || n != 2 {
			t.Errorf("%s: synchronous is %d, error %v", name, n, err)
		}
		stmt, err := c.Prepare(`PRAGMA journal_mode`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stmt.Step(); err != nil || stmt.ColumnText(0) != "wal" {
			t.Errorf("%s: the journal mode is %q, error %v", name, stmt.ColumnText(0), err)
		}
		if err := stmt.Reset(); err != nil {
			t.Error(err)
		}
	}
}

func TestFilesAreForTheirUserAlone(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	file := filepath.Join(home, "state.db")
	check := func() {
		t.Helper()
		if err := filepath.WalkDir(home, func(name string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := os.Stat(name)
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", name, info.Mode())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	s := testOpen(t, file, migrations.List())
	if err := write(s, `UPDATE logs SET born = 1`); err != nil {
		t.Fatal(err)
	}
	check()
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	testOpen(t, file, append(migrations.List(), "CREATE TABLE more (n BIGINT);\n")) // with a backup
	check()
}

func TestUpgradeIsPrecededByABackup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	list := []string{"CREATE TABLE one (n BIGINT);\n"}
	s := testOpen(t, file, list)
	if err := write(s, `INSERT INTO one (n) VALUES (7)`); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file + ".v1"); err == nil {
		t.Error("a new store has a backup")
	}

	// A step that fails leaves the store as it was.
	bad := append(list[:1:1], "CREATE TABLE two (n BIGINT);\nDROP TABLE one;\nCREATE TABLE two (n BIGINT);\n")
	if _, err := open(t.Context(), file, bad); err == nil {
		t.Fatal("a step that fails passes")
	}
	if n := read(t, s, `SELECT n FROM one`); n != 7 {
		t.Errorf("the store was changed: %d", n)
	}

	up := append(list[:1:1], "DELETE FROM one;\nCREATE TABLE two (n BIGINT);\n")
	upgraded := testOpen(t, file, up)
	if n := read(t, upgraded, `SELECT count(*) FROM one`); n != 0 {
		t.Error("the step was not taken")
	}
	backup := testOpen(t, file+".v1", list)
	if n := read(t, backup, `SELECT n FROM one`); n != 7 {
		t.Errorf("the backup has %d", n)
	}
	if _, err := open(t.Context(), file, list); !errors.Is(err, state.ErrNewer) {
		t.Errorf("the old program opens the upgraded store: %v", err)
	}
	if parts, _ := filepath.Glob(file + "*.part"); len(parts) != 0 {
		t.Errorf("left behind: %v", parts)
	}
}

func TestDamagedStoreIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	text := []byte(strings.Repeat("this is no database ", 1000))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), file); !errors.Is(err, state.ErrDamaged) {
		t.Errorf("Open returned %v", err)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(text) {
		t.Errorf("the file was changed, error %v", err)
	}
}

func TestFullDisk(t *testing.T) {
	s := testOpen(t, filepath.Join(t.TempDir(), "state.db"), []string{"CREATE TABLE one (b BYTEA);\n"})
	if err := s.writer.do(`PRAGMA max_page_count = 20`); err != nil {
		t.Fatal(err)
	}
	if err := write(s, `INSERT INTO one (b) VALUES ($1)`, make([]byte, 1<<20)); !errors.Is(err, state.ErrFull) {
		t.Errorf("Write returned %v", err)
	}
	if err := write(s, `INSERT INTO one (b) VALUES ($1)`, []byte("small")); err != nil {
		t.Errorf("after that, Write returned %v", err)
	}
	if n := read(t, s, `SELECT count(*) FROM one`); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func TestDeadOwnersAreSwept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	a := testOpen(t, file, migrations.List())
	dead := filepath.Join(a.owners, "DEAD")
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := testOpen(t, file, migrations.List())
	if _, err := os.Stat(dead); err == nil {
		t.Error("the file of a dead owner is still there")
	}
	for _, owner := range []string{a.Owner(), b.Owner()} {
		if alive, err := b.Alive(t.Context(), owner); err != nil || !alive {
			t.Errorf("alive: %v, error %v", alive, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(a.owners); err != nil || len(entries) != 1 {
		t.Errorf("after Close there are %d files, error %v", len(entries), err)
	}
}

// A stopped writer blocks other writers, but not their Close.
func TestCloseDoesNotWaitForTheLockOfAnother(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	a, b := testOpen(t, file, migrations.List()), testOpen(t, file, migrations.List())
	if err := a.enter(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- write(b, `UPDATE logs SET born = 1`) }()
	for !b.entering.Load() {
		runtime.Gosched()
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, state.ErrClosed) {
		t.Errorf("the waiting Write returned %v", err)
	}
	if alive, err := a.Alive(t.Context(), b.Owner()); err != nil || alive {
		t.Errorf("the closed one is alive: %v, error %v", alive, err)
	}
	if err := home.Unlock(a.lock); err != nil {
		t.Fatal(err)
	}
	<-b.group.Close() // it has let go of its files, too, or will at once
}

// The space added to the log is not part of its content: the store is intact for a process
// that reads only its files.
func TestGrownLog(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "state.db")
	s := testOpen(t, file, migrations.List())
	for i := range int64(manyCommits + 8) {
		if err := write(s, `UPDATE logs SET born = $1`, i); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		if roomy := i+1 >= manyCommits; (info.Size() == logSize) != roomy {
			t.Fatalf("after %d commits the log has %d bytes", i+1, info.Size())
		}
	}
	// As after a crash: the files are all there is.
	copied := filepath.Join(t.TempDir(), "state.db")
	for _, end := range []string{"", "-wal"} {
		b, err := os.ReadFile(file + end)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+end, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := read(t, testOpen(t, copied, migrations.List()), `SELECT born FROM logs`); n != manyCommits+7 {
		t.Errorf("the last commit is %d", n)
	}
}

// TestMovedStore moves the file of an open store: nothing more is written to a file that
// other processes cannot see.
func TestMovedStore(t *testing.T) {
	for name, take := range map[string]func(file string) error{
		"moved":   func(file string) error { return os.Rename(file, file+".old") },
		"removed": os.Remove,
		"replaced": func(file string) error {
			return errors.Join(os.Rename(file, file+".old"), os.WriteFile(file, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "state.db")
			db, err := Open(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			write := func() error {
				return db.Write(t.Context(), func(tx state.Tx) error {
					_, err := tx.Exec(`UPDATE logs SET born = 1`)
					return err
				})
			}
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if err := take(file); err != nil {
				t.Fatal(err)
			}
			if err := write(); !errors.Is(err, state.ErrMoved) {
				t.Errorf("it continued: %v", err)
			}
		})
	}
}
