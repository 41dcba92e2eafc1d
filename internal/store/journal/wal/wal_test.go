package wal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
)

// all returns the entries of all files in a directory.
func all(t *testing.T, dir string) (entries []string) {
	t.Helper()
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	var buf []byte
	for _, f := range files {
		for from := int64(0); ; {
			var e Entries
			if e, buf, err = Read(filepath.Join(dir, f.Name), from, ToEnd, buf); err != nil {
				t.Fatal(err)
			}
			if len(e.Bodies) == 0 {
				break
			}
			for _, b := range e.Bodies {
				entries = append(entries, string(b))
			}
			from = e.End
		}
	}
	return entries
}

func current(b *Writer) string {
	name, _ := b.Current()
	return name
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "daybooks")
	b := Open(dir, "OWNER")
	var want []string
	for i := range 3 * growAfter {
		entry := fmt.Sprintf("%d %s", i, strings.Repeat("x", i*17))
		if i == 20 {
			entry = strings.Repeat("y", readSize+5) // larger than the buffer of Read
		}
		want = append(want, entry)
		if err := b.Write([]byte(entry), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := all(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %d entries, want %d in the same order", len(got), len(want))
	}
	if name, size := b.Current(); name != "OWNER.0" || size < readSize {
		t.Errorf("the current file is %q with %d bytes, want OWNER.0 with at least %d", name, size, readSize)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Write([]byte("late"), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("writing to a closed writer: got error %v, want ErrClosed", err)
	}
	if got := all(t, dir); len(got) != len(want) {
		t.Error("a closed writer accepted an entry")
	}
}

func TestManyWriteAtOnce(t *testing.T) {
	dir := t.TempDir()
	b := Open(dir, "OWNER")
	syncs := 0 // the counter needs no lock, because syncs never overlap
	b.sync = func(f *os.File) error { syncs++; return syncData(f) }
	const writers, each = 16, 25
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := b.Write(fmt.Appendf(nil, "%d/%d", w, i), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	got := all(t, dir)
	if len(got) != writers*each {
		t.Fatalf("got %d entries, want %d", len(got), writers*each)
	}
	next := map[string]int{}
	for _, e := range got {
		w, i, _ := strings.Cut(e, "/")
		if i != fmt.Sprint(next[w]) {
			t.Fatalf("got the entry %[2]s of the writer %[1]s, want the entry %[3]d", w, i, next[w])
		}
		next[w]++
	}
	if syncs > writers*each {
		t.Errorf("got %d syncs for %d entries, want at most one for each entry", syncs, writers*each)
	}
}

// If many calls are in progress, the first write waits for the others. All of them share one sync.
func TestCrowdSharesASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Open(t.TempDir(), "OWNER")
		syncs := 0
		b.sync = func(f *os.File) error { syncs++; return nil }
		// The calls arrive one after the other, all while the first one waits.
		var wg sync.WaitGroup
		for i := range many + 1 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * moment / (many + 2))
				if err := b.Write(fmt.Appendf(nil, "entry %d", i), many); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if syncs != 1 {
			t.Errorf("got %d syncs for %d entries, want 1", syncs, many+1)
		}
		if err := b.Write([]byte("alone"), 0); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestFullFileIsFollowedByAnother(t *testing.T) {
	dir := t.TempDir()
	b := Open(dir, "OWNER")
	entry := bytes.Repeat([]byte("z"), MaxEntry)
	for range fullSize/MaxEntry + 1 {
		if err := b.Write(entry, 0); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Files(dir)
	if err != nil || len(files) != 2 || files[1].Name != "OWNER.1" || current(b) != "OWNER.1" {
		t.Errorf("got the files %v (error %v), want 2 files, of which OWNER.1 is current", files, err)
	}
	if got := all(t, dir); len(got) != fullSize/MaxEntry+1 {
		t.Errorf("got %d entries, want %d", len(got), fullSize/MaxEntry+1)
	}
}

// over returns the result of Finished for each of the writer's files, in order.
func over(t *testing.T, b *Writer) (list []bool) {
	t.Helper()
	files, err := Files(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		list = append(list, b.Finished(f))
	}
	return list
}

// A new file is visible in the directory before it is the current file. Finished must be false during that time,
// because otherwise the file would be removed. This applies to every file of a writer.
func TestFileThatIsBeingMadeIsNotOver(t *testing.T) {
	b := Open(t.TempDir(), "OWNER")
	var seen [][]bool
	b.syncFolder = func(dir string) error {
		if dir == b.dir {
			seen = append(seen, over(t, b))
		}
		return home.SyncFolder(dir)
	}
	entry := bytes.Repeat([]byte("z"), MaxEntry)
	for range fullSize/MaxEntry + 1 {
		if err := b.Write(entry, 0); err != nil {
			t.Fatal(err)
		}
	}
	if want := [][]bool{{false}, {false, false}}; !reflect.DeepEqual(seen, want) {
		t.Errorf("Finished while files are created: got %v, want %v", seen, want)
	}
	if got := over(t, b); !slices.Equal(got, []bool{true, false}) {
		t.Errorf("Finished of a full file and of the current file: got %v, want true and false", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := over(t, b); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("Finished of the files of a closed writer: got %v, want true for both", got)
	}
}

// Finished returns false while Close waits for a write. That write may still succeed, and its entry must then be
// kept.
func TestFileIsNotOverBeforeItsLastEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Open(t.TempDir(), "OWNER")
		writing, resume := make(chan struct{}), make(chan struct{})
		b.sync = func(f *os.File) error {
			close(writing)
			<-resume
			return syncData(f)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.Write([]byte("last"), 0); err != nil {
				t.Error(err)
			}
		})
		<-writing
		wg.Go(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := b.Write([]byte("late"), 0); !errors.Is(err, ErrClosed) {
			t.Errorf("writing during Close: got error %v, want ErrClosed", err)
		}
		if got := over(t, b); !slices.Equal(got, []bool{false}) {
			t.Errorf("Finished during the last write: got %v, want false", got)
		}
		close(resume)
		wg.Wait()
		if got := over(t, b); !slices.Equal(got, []bool{true}) {
			t.Errorf("Finished after Close: got %v, want true", got)
		}
	})
}

// If a sync fails, the waiting writers get the error, and Read does not return their entries.
func TestFailedSync(t *testing.T) {
	dir := t.TempDir()
	b := Open(dir, "OWNER")
	if err := b.Write([]byte("good"), 0); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space")
	b.sync = func(*os.File) error { return full }
	if err := b.Write([]byte("bad"), 0); !errors.Is(err, full) {
		t.Errorf("got error %v, want the error of the sync", err)
	}
	b.sync = syncData
	if err := b.Write([]byte("after"), 0); !errors.Is(err, full) {
		t.Errorf("writing after a failed sync: got error %v, want the error of the sync", err)
	}
	if got := all(t, dir); !slices.Equal(got, []string{"good"}) {
		t.Errorf("got entries %q", got)
	}
}

func TestTornEnd(t *testing.T) {
	for name, tear := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)-3] },
		"flipped": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"length":  func(b []byte) []byte { b[len(b)-len("second")-headSize+3] = 0xff; return b },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := Open(dir, "OWNER")
			for _, e := range []string{"first", "second"} {
				if err := b.Write([]byte(e), 0); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, current(b))
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			raw = bytes.TrimRight(raw, "\x00") // remove the padding of the last block
			raw = append(tear(raw), make([]byte, 100)...)
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			e, buf, err := Read(path, 0, ToEnd, nil)
			if err != nil || len(e.Bodies) != 1 || string(e.Bodies[0]) != "first" {
				t.Fatalf("reading from the start: got %d entries (error %v), want only the entry first",
					len(e.Bodies), err)
			}
			e, _, err = Read(path, e.End, ToEnd, buf)
			if err != nil || len(e.Bodies) != 0 || e.Left < 4 || e.Left > headSize+6 {
				t.Errorf("reading after the first entry: got %d entries and %d bytes left (error %v), want only an incomplete entry",
					len(e.Bodies), e.Left, err)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	var p page
	p.add([]byte(`"time":"x"}`))
	p.add([]byte("two"))
	f.Add(p.bytes, uint16(0))
	f.Add(append(bytes.Clone(p.bytes), 0, 0, 0, 0, 0, 0, 0, 0, 0), uint16(3))
	f.Fuzz(func(t *testing.T, raw []byte, from uint16) {
		path := filepath.Join(t.TempDir(), "OWNER.0")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		e, _, err := Read(path, int64(from), ToEnd, nil)
		if err != nil {
			t.Fatal(err)
		}
		var again page
		for _, b := range e.Bodies {
			again.add(b)
		}
		if e.End > int64(from) && !bytes.Equal(again.bytes, raw[from:e.End]) {
			t.Error("the entries differ from the bytes in the file")
		}
		if len(e.Bodies) == 0 && e.End != int64(from) {
			t.Error("End changed although there are no entries")
		}
	})
}
