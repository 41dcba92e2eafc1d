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
	// postTime is how long an entry of the write-ahead log waits for other entries, so that they can be posted
	// together.
	postTime = 100 * time.Millisecond
	// writeTime is the time limit of a transaction that runs without a caller's context.
	writeTime = 30 * time.Second
	// postAgain is the pause between a failed attempt to post and the next attempt.
	postAgain = time.Second
	// fileTime is how long a process writes to one file of the write-ahead log. A file contains its records even
	// after they are erased from the journal, so it must not be kept for long.
	fileTime = time.Hour
)

// posting copies records from the write-ahead logs to the journal.
type posting struct {
	dir    string
	writer atomic.Pointer[wal.Writer] // nil if this process has no write-ahead log
	last   atomic.Pointer[string]     // the name of the current file at the last call of postCurrent
	stuck  atomic.Bool                // whether the last attempt to post entries failed

	syncFolder func(dir string) error

	post   sync.Mutex // a mutex that is held while posting
	buffer []byte     // a buffer for posting; guarded by post

	mu       sync.Mutex
	timer    *time.Timer
	rotation *time.Timer // the timer that closes the current file after fileTime
	armed    atomic.Bool
	closed   bool
	running  sync.WaitGroup
}

// SetWALDir sets the directory of the store's write-ahead logs. Before a method reads the journal, it posts the entries
// in this directory.
func (j *Journal) SetWALDir(dir string) { j.posting.dir = dir }

// StartWAL starts a write-ahead log of this process. From then on, [Journal.Note] writes to that log. StartWAL does
// nothing if no directory is set. Only a long-running process should call StartWAL. Many records are written faster
// with a write-ahead log, but a single record is written more slowly.
func (j *Journal) StartWAL() {
	if j.posting.dir != "" {
		j.posting.writer.CompareAndSwap(nil, wal.Open(j.posting.dir, j.db.Owner()))
	}
}

// Note stores a record. If the record must be in the same transaction as another change, use [Journal.Append] instead.
// When Note returns nil, the record is on disk, but may not be in the journal yet. A call of Note cannot be canceled.
func (j *Journal) Note(r *Record) error {
	if r.Time.IsZero() {
		r.Time = j.now()
	}
	p := &j.posting
	// While posting fails, write directly to the store, so that the caller gets the error.
	if w := p.writer.Load(); w != nil && !p.stuck.Load() {
		body := appendBody(make([]byte, 0, 1024), r)
		if err := w.Write(body, int(j.calls.Load())-1); err == nil {
			j.schedulePost(postTime)
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

// schedulePost schedules a call of postOwn, unless a call is already scheduled.
func (j *Journal) schedulePost(after time.Duration) {
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

// postOwn posts the entries of this process. If that fails, postOwn schedules another attempt.
func (j *Journal) postOwn() {
	p := &j.posting
	defer p.running.Done()
	p.armed.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	err := j.postCurrent(ctx)
	p.stuck.Store(err != nil)
	if err != nil && !errors.Is(err, state.ErrClosed) {
		j.schedulePost(postAgain)
	}
}

// postCurrent posts the new entries of the current file. If there is a new current file, postCurrent calls Post.
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

// rotateLater stops the previous timer, if any, and sets a new timer that closes the current file after fileTime. If
// the name is empty, there is no current file, and no new timer is set.
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
		j.schedulePost(0) // postOwn removes the file after posting its entries
	})
}

// rotateWAL closes the current file of the write-ahead log. The next entry creates a new file.
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
		// The file must be read after this check. In the other order, an entry could be added between the read and the
		// check, and the file would be removed together with this entry.
		over, err := j.isFinished(ctx, f)
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

// isFinished reports whether the owner of a file has stopped adding entries to it.
func (j *Journal) isFinished(ctx context.Context, f wal.File) (bool, error) {
	if f.Owner == j.db.Owner() {
		w := j.posting.writer.Load()
		return w == nil || w.Finished(f), nil
	}
	alive, err := j.db.Alive(ctx, f.Owner)
	return !alive, err
}

// postNews posts the new entries of a file. It first looks for new entries without a write transaction, because usually
// there are none.
func (j *Journal) postNews(ctx context.Context, name string, over bool) error {
	var e wal.Entries
	err := j.db.Read(ctx, func(tx state.Tx) (err error) { e, err = j.unposted(tx, name, wal.ToEnd); return err })
	if err != nil || len(e.Bodies) == 0 && (e.Left == 0 || !over) {
		return err
	}
	return j.postFile(ctx, name, wal.ToEnd, over)
}

// postFile posts the entries of a file up to an offset. The last parameter is true if no more entries will be added to
// the file. In that case, postFile also records an incomplete entry at the end of the file.
func (j *Journal) postFile(ctx context.Context, name string, to int64, over bool) error {
	for more := true; more; {
		err := j.db.Write(ctx, func(tx state.Tx) error {
			e, err := j.unposted(tx, name, to)
			if err == nil && len(e.Bodies) == 0 && e.End < to {
				err = errCorrupt
			}
			if err == nil && len(e.Bodies) == 0 && e.Left > 0 && over {
				e.Bodies, e.End = [][]byte{tornRecord(e.Left, j.now())}, e.End+e.Left
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

// errCorrupt means that this process can no longer read an entry that it wrote to the file. In that case,
// [Journal.Note] stops using the write-ahead log. The damage is recorded when no more entries can be added to the file.
var errCorrupt = errors.New("an entry in the write-ahead log was changed before ambit copied it to the journal")

// unposted reads the next entries to post. It returns no entries if the file is missing, because a file is removed only
// after all its entries were posted.
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

// tornRecord returns a record that reports an incomplete entry at the end of a file.
func tornRecord(left int64, now time.Time) []byte {
	return appendBody(nil, &Record{
		Time: now, Decision: Unknown, Stage: "record", Code: "outcome_unknown",
		Detail: fmt.Sprintf("the last %d bytes of a write-ahead log cannot be read: "+
			"either a write was interrupted before it was acknowledged, or the file is damaged", left),
	})
}

// retire removes a file whose entries are all posted. The file's row in the daybooks table is deleted only after the
// removal is on disk. Otherwise, a power failure could restore the file without its row, and its entries would be
// posted twice.
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

// closeWAL closes the write-ahead log and posts its entries. The field j.posting.writer stays set, because only the
// writer knows whether a write to the last file is still in progress.
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
