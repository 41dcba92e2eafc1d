package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ambit-run/ambit/internal/store/journal/wal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// secret returns a record that contains a recognizable number many times. Some records are longer than a page
// of the database.
func secret(i int) *Record {
	r := sample(i)
	r.Arguments = json.RawMessage(strconv.Quote(strings.Repeat(fmt.Sprintf("canary%06d", i), 1+i*i%997)))
	return r
}

// found searches the files of a directory for secrets. It maps the number of each secret to the names of
// the files that contain it.
func found(t *testing.T, dir string) map[int]string {
	t.Helper()
	at := map[int]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, after := range bytes.Split(content, []byte("canary"))[1:] {
			n, err := strconv.Atoi(string(after[:min(6, len(after))]))
			if err == nil && !strings.Contains(at[n], e.Name()) {
				at[n] += " " + e.Name()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// After Erase, no file of the home contains the erased content. This is true even while this process and
// another process have the store open.
func TestErasedBytesAreGone(t *testing.T) {
	const records, noted, erased = 1000, 20, 700
	dir := t.TempDir()
	j := noting(t, dir)
	for i := range noted { // write these through the write-ahead log
		if err := j.Note(secret(i)); err != nil {
			t.Fatal(err)
		}
	}
	other := noting(t, dir)
	if n := size(t, other); n != 0 {
		t.Fatalf("got %d records, want 0", n)
	}
	if err := j.Post(t.Context()); err != nil {
		t.Fatal(err)
	}
	for from := noted; from < records; from += 20 {
		err := j.db.Write(t.Context(), func(tx state.Tx) error {
			for i := range 20 {
				if _, err := j.Append(tx, secret(from+i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for done := range 2 { // erase in two steps, so that some database pages are half erased
		until := erased / 2 * (done + 1)
		if n, err := j.Erase(t.Context(), started.Add(time.Duration(until)*time.Second), "ada@local"); err != nil || n != erased/2 {
			t.Fatalf("Erase erased %d records (error %v), want %d", n, err, erased/2)
		}
	}
	at := found(t, dir)
	for i := range records {
		if where := at[i]; (where == "") != (i < erased) {
			t.Errorf("the erased record %d still occurs in these files:%s", i, where)
		}
	}
	sound(t, j, records+2)
}

// A file of a rarely used write-ahead log is closed and removed in time. Another process can erase the file's
// records from the journal, but cannot remove the file.
func TestWALFileEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := noting(t, t.TempDir())
		j.posting.armed.Store(false)
		for i := range 3 {
			jot(t, j, 1)
			name, _ := j.posting.writer.Load().Current()
			time.Sleep(fileTime + 2*postTime)
			synctest.Wait()
			if files, err := wal.Files(j.posting.dir); err != nil || len(files) != 0 || name == "" {
				t.Errorf("after %q was current, these files are left: %v, error %v", name, files, err)
			}
			if n := size(t, j); n != int64(i+1) {
				t.Errorf("got %d records, want %d", n, i+1)
			}
		}
		if err := j.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Posting succeeds if the write-ahead log has no current file.
func TestPostingAfterTheEnd(t *testing.T) {
	j := noting(t, t.TempDir())
	for i := range 3 {
		jot(t, j, 1)
		j.rotateWAL()
		j.posting.running.Add(1)
		j.postOwn()
		if n := size(t, j); n != int64(i+1) || j.posting.stuck.Load() {
			t.Errorf("round %d: %d records, stuck: %t", i, n, j.posting.stuck.Load())
		}
	}
}
