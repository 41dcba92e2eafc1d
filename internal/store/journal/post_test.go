package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal/wal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

// noting returns a journal with a write-ahead log that is posted only on request.
func noting(t *testing.T, dir string) *Journal {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	j := New(db, testKey, "test")
	j.SetWALDir(filepath.Join(dir, "daybooks"))
	j.StartWAL()
	j.posting.armed.Store(true)
	return j
}

func jot(t *testing.T, j *Journal, n int) {
	t.Helper()
	for i := range n {
		if err := j.Note(sample(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func size(t *testing.T, j *Journal) int64 {
	t.Helper()
	ends, err := j.ends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ends[0]
}

func sound(t *testing.T, j *Journal, records int64) {
	t.Helper()
	report, err := j.Verify(t.Context(), Check{})
	if err != nil || !report.OK || report.Records != records {
		t.Errorf("got report %+v, error %v; want %d records", report, err, records)
	}
}

func TestNotesBecomeRecordsInOrder(t *testing.T) {
	dir := t.TempDir()
	j := noting(t, dir)
	const notes = stride + 300 // the notes exceed a stride, so a checkpoint is required
	jot(t, j, notes)
	if n := size(t, j); n != 0 {
		t.Fatalf("the journal has %d records before posting, want 0", n)
	}
	entries, err := j.Show(t.Context(), Filter{Limit: notes + 1})
	if err != nil || len(entries) != notes {
		t.Fatalf("Show returned %d records (error %v), want %d", len(entries), err, notes)
	}
	for i, e := range entries {
		want := notes - 1 - i
		if e.Seq != int64(want) || e.Call != sample(want).Call {
			t.Fatalf("record %d is %+v", i, e)
		}
	}
	sound(t, j, notes)
	jot(t, j, 1)
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if files, _ := wal.Files(j.posting.dir); len(files) != 0 {
		t.Errorf("these files were not removed: %v", files)
	}
	sound(t, j, notes+1)
}

// Several processes can post at the same time and keep calling Note. Each entry is posted exactly
// once.
func TestEntriesArePostedOnce(t *testing.T) {
	dir := t.TempDir()
	const processes, each = 4, 200
	var wg sync.WaitGroup
	for range processes {
		j := noting(t, dir)
		wg.Go(func() {
			for i := range each {
				if err := j.Note(sample(i)); err != nil {
					t.Error(err)
				}
				if i%20 == 0 {
					if err := j.Post(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	sound(t, noting(t, dir), processes*each)
}

// The entries of a dead process are posted exactly once.
func TestWALOfADeadProcess(t *testing.T) {
	dir := t.TempDir()
	dead := noting(t, dir)
	jot(t, dead, 5)
	if err := dead.db.Close(); err != nil { // close only the database, as if the process had been killed
		t.Fatal(err)
	}
	j := noting(t, dir)
	sound(t, j, 5)
	if files, _ := wal.Files(j.posting.dir); len(files) != 0 {
		t.Errorf("these files were not removed: %v", files)
	}
	sound(t, j, 5)
	if n := count(t, j, "daybooks"); n != 0 {
		t.Errorf("the table daybooks still has %d rows", n)
	}
}

// A process can be killed after it posts a file. This can happen before or after it removes the file and its
// row in the table. No entry is posted twice.
func TestDeathWhilePosting(t *testing.T) {
	dir := t.TempDir()
	dead := noting(t, dir)
	jot(t, dead, 3)
	if err := dead.db.Close(); err != nil {
		t.Fatal(err)
	}
	j := noting(t, dir)
	files, err := wal.Files(j.posting.dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("got the files %v (error %v), want one file", files, err)
	}
	// The process posts the file and is then killed.
	if err := j.postFile(t.Context(), files[0].Name, wal.ToEnd, true); err != nil {
		t.Fatal(err)
	}
	sound(t, noting(t, dir), 3)
	if err := j.postFile(t.Context(), files[0].Name, wal.ToEnd, true); err != nil { // this process is slower than the others
		t.Fatal(err)
	}
	sound(t, j, 3)
}

// A running process can have a file without entries. Its writer may not report this file as current yet.
// Posting must not remove this file, because later entries would be lost. This applies to the first file and to
// later files.
func TestNewWALFileStays(t *testing.T) {
	for name, notes := range map[string]int{"first": 0, "next": 3} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := noting(t, dir)
			jot(t, j, notes)
			made := filepath.Join(j.posting.dir, fmt.Sprintf("%s.%d", j.db.Owner(), min(notes, 1)))
			if err := os.MkdirAll(j.posting.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(made, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for process, j := range map[string]*Journal{"its owner": j, "another process": noting(t, dir)} {
				if _, err := j.Show(t.Context(), Filter{}); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(made); err != nil {
					t.Errorf("%s removed the new file: %v", process, err)
				}
			}
			sound(t, j, int64(notes))
		})
	}
}

// The journal keeps its writer after the writer is closed. Only the writer knows whether a file is
// complete.
func TestClosedWALIsAsked(t *testing.T) {
	j := noting(t, t.TempDir())
	jot(t, j, 1)
	writer := j.posting.writer.Load()
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	jot(t, j, 1)
	if n := size(t, j); n != 1 {
		t.Errorf("the store has %d records, want 1, because the second note bypasses the closed writer", n)
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j.posting.writer.Load() != writer {
		t.Error("the journal no longer has its writer")
	}
	sound(t, j, 2)
}

// A power failure can undo the removal of a file. The file's row in the table is deleted only when this can
// no longer happen. Without the row, all entries of the file would be posted again.
func TestRowOutlivesItsFile(t *testing.T) {
	dir := t.TempDir()
	dead := noting(t, dir)
	jot(t, dead, 3)
	files, err := wal.Files(dead.posting.dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("got the files %v (error %v), want one file", files, err)
	}
	file := filepath.Join(dead.posting.dir, files[0].Name)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.db.Close(); err != nil { // close only the database, as if the process had been killed
		t.Fatal(err)
	}
	j := noting(t, dir)
	j.posting.syncFolder = func(string) error {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory is synced before the file is removed: %v", err)
		}
		return errFault
	}
	if err := j.Post(t.Context()); !errors.Is(err, errFault) {
		t.Fatalf("got error %v, want the error of the sync", err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil { // the file comes back after a power failure
		t.Fatal(err)
	}
	j.posting.syncFolder = home.SyncFolder
	sound(t, j, 3)
	if n := count(t, j, "daybooks"); n != 0 {
		t.Errorf("the table daybooks still has %d rows", n)
	}
}

func TestTornEntryIsRecorded(t *testing.T) {
	dir := t.TempDir()
	dead := noting(t, dir)
	jot(t, dead, 2)
	name, end := dead.posting.writer.Load().Current()
	if err := os.Truncate(filepath.Join(dead.posting.dir, name), end-1); err != nil {
		t.Fatal(err)
	}
	j := noting(t, dir)
	if err := j.Post(t.Context()); err != nil { // the owner may still be writing the entry
		t.Fatal(err)
	}
	if n := size(t, j); n != 1 {
		t.Fatalf("the journal has %d records while the owner runs, want 1", n)
	}
	if err := dead.db.Close(); err != nil {
		t.Fatal(err)
	}
	sound(t, j, 2)
	entries, err := j.Show(t.Context(), Filter{})
	if err != nil || !strings.Contains(entries[0].Detail, "cannot be read") || entries[0].Decision != Unknown {
		t.Errorf("got the entries %+v (error %v), want a first entry that reports unreadable bytes", entries, err)
	}
}

// postOwn posts the new entries, even after the process has started another file.
func TestPostingInGoodTime(t *testing.T) {
	j := noting(t, t.TempDir())
	for i := range 3 {
		jot(t, j, 10)
		j.posting.running.Add(1)
		j.postOwn()
		j.posting.armed.Store(true) // no other timer may run, because it would treat the second owner as dead
		if n := size(t, j); n != int64(10*(i+1)) {
			t.Errorf("round %d: got %d records, want %d", i, n, 10*(i+1))
		}
		if i == 1 {
			j.posting.writer.Store(wal.Open(j.posting.dir, j.db.Owner()+"2"))
		}
	}
	sound(t, j, 30)
}

// While posting fails, Note returns the error instead of using the write-ahead log.
func TestStuckPostingIsReported(t *testing.T) {
	dir := t.TempDir()
	j := noting(t, dir)
	jot(t, j, 1)
	if err := os.Rename(filepath.Join(dir, "state.db"), filepath.Join(dir, "gone.db")); err != nil {
		t.Fatal(err)
	}
	j.posting.running.Add(1)
	j.postOwn()
	if err := j.Note(sample(2)); err == nil {
		t.Error("Note accepted a record that cannot be stored")
	}
}

// Note succeeds even if the write-ahead log cannot be written: it writes to the store instead.
func TestWithoutWAL(t *testing.T) {
	dir := t.TempDir()
	j := noting(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "daybooks"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	jot(t, j, 2)
	if err := os.Remove(filepath.Join(dir, "daybooks")); err != nil {
		t.Fatal(err)
	}
	if n := size(t, j); n != 2 {
		t.Errorf("got %d records, want 2", n)
	}
}

func count(t *testing.T, j *Journal, table string) (n int64) {
	t.Helper()
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT count(*) FROM `+table, nil, func(r state.Row) error { return r.Scan(&n) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
