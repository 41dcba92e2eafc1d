package sqlite

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// After a scrub, no file of the store contains deleted data, even if another process has the store open.
func TestScrub(t *testing.T) {
	dir := t.TempDir()
	list := []string{`CREATE TABLE t (n BIGINT PRIMARY KEY, text TEXT);`}
	file := filepath.Join(dir, "state.db")
	s, other := testOpen(t, file, list), testOpen(t, file, list)
	long := strings.Repeat("canary ", 3000) // several pages long
	for n := range manyCommits + 1 {
		if err := write(s, `INSERT INTO t (n, text) VALUES ($1, $2), ($3, $4)`, int64(2*n), "canary", int64(2*n+1), long); err != nil {
			t.Fatal(err)
		}
	}
	read(t, other, `SELECT count(*) FROM t`)
	if !holds(t, dir, "canary") {
		t.Fatal("the store files do not contain the test data")
	}
	if err := write(s, `DELETE FROM t`); err != nil {
		t.Fatal(err)
	}
	if err := s.Scrub(t.Context()); err != nil {
		t.Fatal(err)
	}
	if holds(t, dir, "canary") {
		t.Error("the store files still contain deleted data")
	}
	if info, err := os.Stat(file + "-wal"); err != nil || info.Size() != logSize {
		t.Errorf("SQLite's write-ahead log after the scrub: got %v, error %v; want its full size again", info, err)
	}
	if err := write(other, `INSERT INTO t (n, text) VALUES (1, 'new')`); err != nil || read(t, s, `SELECT count(*) FROM t`) != 1 {
		t.Errorf("writing after the scrub failed: %v", err)
	}
}

// holds reports whether one of the store's files contains a string.
func holds(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "state.db*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found = found || bytes.Contains(content, []byte(text))
	}
	return found
}

// A scrub fails while a reader may still see deleted data, and does not block other operations.
func TestScrubDuringARead(t *testing.T) {
	defer func(was time.Duration) { scrubTime = was }(scrubTime)
	scrubTime = time.Millisecond
	list := []string{`CREATE TABLE t (n BIGINT PRIMARY KEY);`}
	s := testOpen(t, filepath.Join(t.TempDir(), "state.db"), list)
	if err := write(s, `INSERT INTO t (n) VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	err := s.Read(t.Context(), func(tx state.Tx) error {
		if err := tx.Query(`SELECT n FROM t`, nil, func(state.Row) error { return nil }); err != nil {
			return err
		}
		if err := s.Scrub(context.Background()); !errors.Is(err, errRead) {
			t.Errorf("got error %v, want errRead", err)
		}
		return write(s, `INSERT INTO t (n) VALUES (2)`)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Scrub(t.Context()); err != nil {
		t.Errorf("a scrub without readers: %v", err)
	}
	if n := read(t, s, `SELECT count(*) FROM t`); n != 2 {
		t.Errorf("got %d rows, want 2", n)
	}
}
