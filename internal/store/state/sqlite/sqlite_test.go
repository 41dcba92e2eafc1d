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
	read(t, s, `SELECT count(*) FROM logs`) // this query opens a reading connection
	for name, conn := range map[string]int{"writer": 0, "reader": 1} {
		c := s.writer
		if conn == 1 {
			c = <-s.idle
			defer c.Close()
		}
		if n, err := c.queryInt(`PRAGMA synchronous`); err != nil || n != 2 {
			t.Errorf("the connection %s has synchronous = %d (error %v), want 2", name, n, err)
		}
		stmt, err := c.Prepare(`PRAGMA journal_mode`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stmt.Step(); err != nil || stmt.ColumnText(0) != "wal" {
			t.Errorf("the connection %s has the journal mode %q (error %v), want wal", name, stmt.ColumnText(0), err)
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
	testOpen(t, file, append(migrations.List(), "CREATE TABLE more (n BIGINT);\n")) // this upgrade also makes a backup
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

	// A schema step that fails leaves the store unchanged.
	bad := append(list[:1:1], "CREATE TABLE two (n BIGINT);\nDROP TABLE one;\nCREATE TABLE two (n BIGINT);\n")
	if _, err := open(t.Context(), file, bad); err == nil {
		t.Fatal("opening succeeded although a schema step fails")
	}
	if n := read(t, s, `SELECT n FROM one`); n != 7 {
		t.Errorf("the failed step changed the store: n is %d, want 7", n)
	}

	up := append(list[:1:1], "DELETE FROM one;\nCREATE TABLE two (n BIGINT);\n")
	upgraded := testOpen(t, file, up)
	if n := read(t, upgraded, `SELECT count(*) FROM one`); n != 0 {
		t.Error("the schema step was not applied")
	}
	backup := testOpen(t, file+".v1", list)
	if n := read(t, backup, `SELECT n FROM one`); n != 7 {
		t.Errorf("the backup contains n = %d, want 7", n)
	}
	if _, err := open(t.Context(), file, list); !errors.Is(err, state.ErrNewer) {
		t.Errorf("opening the upgraded store with the old steps: got error %v, want ErrNewer", err)
	}
	if parts, _ := filepath.Glob(file + "*.part"); len(parts) != 0 {
		t.Errorf("incomplete backups were left behind: %v", parts)
	}
}

func TestDamagedStoreIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	text := []byte(strings.Repeat("this is no database ", 1000))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), file); !errors.Is(err, state.ErrDamaged) {
		t.Errorf("Open returned the error %v, want ErrDamaged", err)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(text) {
		t.Errorf("Open changed the damaged file, or reading it failed: %v", err)
	}
}

func TestFullDisk(t *testing.T) {
	s := testOpen(t, filepath.Join(t.TempDir(), "state.db"), []string{"CREATE TABLE one (b BYTEA);\n"})
	if err := s.writer.exec(`PRAGMA max_page_count = 20`); err != nil {
		t.Fatal(err)
	}
	if err := write(s, `INSERT INTO one (b) VALUES ($1)`, make([]byte, 1<<20)); !errors.Is(err, state.ErrFull) {
		t.Errorf("Write returned the error %v, want ErrFull", err)
	}
	if err := write(s, `INSERT INTO one (b) VALUES ($1)`, []byte("small")); err != nil {
		t.Errorf("after the disk was full, a smaller write failed: %v", err)
	}
	if n := read(t, s, `SELECT count(*) FROM one`); n != 1 {
		t.Errorf("got %d rows, want 1", n)
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
		t.Error("the file of a dead owner was not removed")
	}
	for _, owner := range []string{a.Owner(), b.Owner()} {
		if alive, err := b.Alive(t.Context(), owner); err != nil || !alive {
			t.Errorf("Alive(%q) = %v, error %v; want true", owner, alive, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(a.owners); err != nil || len(entries) != 1 {
		t.Errorf("after Close, there are %d owner files, error %v; want 1", len(entries), err)
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
		t.Errorf("the waiting Write returned the error %v, want ErrClosed", err)
	}
	if alive, err := a.Alive(t.Context(), b.Owner()); err != nil || alive {
		t.Errorf("Alive of the closed owner = %v, error %v; want false", alive, err)
	}
	if err := home.Unlock(a.lock); err != nil {
		t.Fatal(err)
	}
	<-b.group.Close() // wait until the store can close its files
}

// The zeros that growLog appends to SQLite's write-ahead log do not count as content. A process that has only
// the files can read the store.
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
		if grown := i+1 >= manyCommits; (info.Size() == logSize) != grown {
			t.Fatalf("after %d commits, SQLite's write-ahead log has %d bytes", i+1, info.Size())
		}
	}
	// Copy the files, as they would be after a crash.
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
		t.Errorf("the copy contains commit %d, want %d", n, manyCommits+7)
	}
}

// Write fails if the file of an open store is moved, removed or replaced. Other processes would not see the
// data.
func TestMovedStore(t *testing.T) {
	for name, move := range map[string]func(file string) error{
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
			if err := move(file); err != nil {
				t.Fatal(err)
			}
			if err := write(); !errors.Is(err, state.ErrMoved) {
				t.Errorf("Write returned the error %v, want ErrMoved", err)
			}
		})
	}
}

// The parameters of a query must be $1, $2 … in order. SQLite would bind other parameters in a
// different order from PostgreSQL.
func TestParametersOutOfOrder(t *testing.T) {
	s := testOpen(t, filepath.Join(t.TempDir(), "state.db"), migrations.List())
	for _, query := range []string{
		`UPDATE logs SET born = $2 WHERE log = $1`, `UPDATE logs SET born = ? WHERE log = ?`,
		`UPDATE logs SET born = :a WHERE log = :b`,
	} {
		if err := write(s, query, int64(1), int64(2)); !errors.Is(err, state.ErrTx) {
			t.Errorf("%s: Write returned the error %v, want ErrTx", query, err)
		}
	}
}
