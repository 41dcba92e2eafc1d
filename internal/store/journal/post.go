package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/internal/store/journal/wal"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	// postTime is how long an entry of the write-ahead log waits to be posted together
	// with others.
	postTime = 100 * time.Millisecond
	// writeTime bounds a commit that no caller's context bounds.
	writeTime = 30 * time.Second
	// postAgain is the time between a failed posting and the next attempt.
	postAgain = time.Second
	// fileTime bounds how long one file is used: it still contains posted records, which
	// may be erased from the journal meanwhile.
	fileTime = time.Hour
)

// posting moves records from write-ahead logs to the journal.
type posting struct {
	dir    string
	writer atomic.Pointer[wal.Writer] // nil if this process has no write-ahead log
	last   atomic.Pointer[string]     // the file that was posted last
	stuck  atomic.Bool                // the last posting failed

	syncFolder func(dir string) error

	post   sync.Mutex // held while posting
	buffer []byte     // guarded by post

	mu       sync.Mutex
	timer    *time.Timer
	rotation *time.Timer // ends the current file after fileTime
	armed    atomic.Bool
	closed   bool
	running  sync.WaitGroup
}

// Daybooks sets the directory of the store's write-ahead logs. They are posted before the
// journal is read.
func (j *Journal) Daybooks(dir string) { j.posting.dir = dir }

// KeepDaybook makes Note use a write-ahead log of this process. It is meant for
// long-running processes: a single record costs more this way, many cost less.
func (j *Journal) KeepDaybook() {
	if j.posting.dir != "" {
		j.posting.writer.CompareAndSwap(nil, wal.Open(j.posting.dir, j.db.Owner()))
	}
}

// Note stores a record that belongs to no other change in the store. The record is durable
// when Note returns nil; it may get its place in the log later. Note cannot be cancelled.
func (j *Journal) Note(r *Record) error {
	if r.Time.IsZero() {
		r.Time = j.now()
	}
	p := &j.posting
	// While posting fails, records go to the store directly, so that the caller gets the
	// error.
	if w := p.writer.Load(); w != nil && !p.stuck.Load() {
		body := bodies.Get().(*[]byte)
		*body = appendBody((*body)[:0], r)
		err := w.Write(*body, int(j.calls.Load())-1)
		bodies.Put(body)
		if err == nil {
			j.arm(postTime)
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	return j.db.Write(ctx, func(tx state.Tx) error {
		_, err := j.Append(tx, r)
		return err
	})
}

var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// arm schedules a posting.
func (j *Journal) arm(after time.Duration) {
	p := &j.posting
	if p.armed.Swap(true) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.running.Add(1)
	if p.timer == nil {
		p.timer = time.AfterFunc(after, j.postOwn)
	} else {
		p.timer.Reset(after)
	}
}

// postOwn posts the entries of this process.
func (j *Journal) postOwn() {
	p := &j.posting
	defer p.running.Done()
	p.armed.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	err := j.postCurrent(ctx)
	p.stuck.Store(err != nil)
	if err != nil && !errors.Is(err, state.ErrClosed) {
		j.arm(postAgain)
	}
}

// postCurrent posts the entries since the last posting. If they are in a new file, it
// posts all files.
func (j *Journal) postCurrent(ctx context.Context) error {
	p := &j.posting
	w := p.writer.Load()
	if w == nil {
		return j.Post(ctx)
	}
	name, size := w.Current()
	if last := p.last.Swap(&name); name == "" || last == nil || *last != name {
		j.rotateLater(name)
		return j.Post(ctx)
	}
	p.post.Lock()
	defer p.post.Unlock()
	return j.postFile(ctx, name, size, false)
}

// rotateLater schedules the end of a new file.
func (j *Journal) rotateLater(name string) {
	p := &j.posting
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rotation != nil {
		p.rotation.Stop()
	}
	if name == "" || p.closed {
		return
	}
	p.rotation = time.AfterFunc(fileTime, func() {
		j.rotateWAL()
		j.arm(0) // the posting removes the file
	})
}

// rotateWAL ends the current file of the write-ahead log.
func (j *Journal) rotateWAL() {
	if w := j.posting.writer.Load(); w != nil {
		w.Rotate()
	}
}

// Post posts the entries in all write-ahead logs of the store.
func (j *Journal) Post(ctx context.Context) error {
	if j.posting.dir == "" {
		return nil
	}
	files, err := wal.Files(j.posting.dir)
	if err != nil || len(files) == 0 {
		return err
	}
	j.posting.post.Lock()
	defer j.posting.post.Unlock()
	for _, f := range files {
		// This is asked before the file is read: an entry could be added in between.
		over, err := j.over(ctx, f)
		if err == nil {
			err = j.postNews(ctx, f.Name, over)
		}
		if err == nil && over {
			err = j.retire(ctx, f.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// over reports whether a file gets no more entries.
func (j *Journal) over(ctx context.Context, f wal.File) (bool, error) {
	if f.Owner == j.db.Owner() {
		w := j.posting.writer.Load()
		return w == nil || w.Over(f), nil
	}
	alive, err := j.db.Alive(ctx, f.Owner)
	return !alive, err
}

// postNews posts a file if it has new entries. Usually there are none, and then a reader
// of the journal needs no write transaction.
func (j *Journal) postNews(ctx context.Context, name string, over bool) error {
	var e wal.Entries
	err := j.db.Read(ctx, func(tx state.Tx) (err error) { e, err = j.unposted(tx, name, wal.ToEnd); return err })
	if err != nil || len(e.Bodies) == 0 && (e.Left == 0 || !over) {
		return err
	}
	return j.postFile(ctx, name, wal.ToEnd, over)
}

// postFile posts the entries of a file that begin before to.
func (j *Journal) postFile(ctx context.Context, name string, to int64, over bool) error {
	for more := true; more; {
		err := j.db.Write(ctx, func(tx state.Tx) error {
			e, err := j.unposted(tx, name, to)
			if err == nil && len(e.Bodies) == 0 && e.End < to {
				err = errCorrupt
			}
			if err == nil && len(e.Bodies) == 0 && e.Left > 0 && over {
				e.Bodies, e.End = [][]byte{torn(e.Left, j.now())}, e.End+e.Left
			}
			more = len(e.Bodies) > 0 && (e.More || over)
			if err != nil || len(e.Bodies) == 0 {
				return err
			}
			if _, err := j.add(tx, e.Bodies, j.now()); err != nil {
				return err
			}
			_, err = tx.Exec(`INSERT INTO daybooks (name, posted) VALUES ($1, $2)
				ON CONFLICT (name) DO UPDATE SET posted = excluded.posted`, name, e.End)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// errCorrupt means that an entry of this process is no longer in the file. It is recorded
// when the file is over; until then Note does not use the write-ahead log.
var errCorrupt = errors.New("an entry of the write-ahead log was changed before it was posted")

// unposted reads the next entries to post. A missing file was posted; its row in the
// table may be gone too.
func (j *Journal) unposted(tx state.Tx, name string, to int64) (e wal.Entries, err error) {
	var from int64
	err = tx.Query(`SELECT posted FROM daybooks WHERE name = $1`, []any{name},
		func(r state.Row) error { return r.Scan(&from) })
	if err != nil {
		return e, err
	}
	e, j.posting.buffer, err = wal.Read(filepath.Join(j.posting.dir, name), from, to, j.posting.buffer)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return e, err
}

// torn returns the record of an incomplete entry at the end of a file.
func torn(left int64, now time.Time) []byte {
	return appendBody(nil, &Record{
		Time: now, Decision: Unknown, Stage: "record", Code: "outcome_unknown",
		Detail: fmt.Sprintf("the last %d bytes of a write-ahead log are incomplete: "+
			"either these records were never acknowledged, or they are damaged", left),
	})
}

// retire removes a file that was posted completely. Its row in the table is deleted only
// when a power failure can no longer restore the file: as long as the file exists, the row
// says what was posted.
func (j *Journal) retire(ctx context.Context, name string) error {
	if err := os.Remove(filepath.Join(j.posting.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := j.posting.syncFolder(j.posting.dir); err != nil {
		return err
	}
	return j.db.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`DELETE FROM daybooks WHERE name = $1`, name)
		return err
	})
}

// closeWAL closes the write-ahead log and posts its entries. j.posting.writer stays set:
// the last file is over only when its running writes have ended, and only the writer
// knows that.
func (j *Journal) closeWAL(ctx context.Context) error {
	p := &j.posting
	p.mu.Lock()
	p.closed = true
	if p.timer != nil && p.timer.Stop() {
		p.running.Done()
	}
	if p.rotation != nil {
		p.rotation.Stop()
	}
	p.mu.Unlock()
	p.running.Wait()
	w := p.writer.Load()
	if w == nil {
		return nil
	}
	return errors.Join(w.Close(), unlessHandedOver(j.Post(ctx)))
}
