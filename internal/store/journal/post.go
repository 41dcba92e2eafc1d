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
	// postTime is how long an entry of a daybook waits to be posted together with
	// others.
	postTime = 100 * time.Millisecond
	// noteTime bounds the commit of a record that goes to the store itself.
	noteTime = 30 * time.Second
	// postAgain is how long a failed posting waits for the next.
	postAgain = time.Second
	// bookTime is how long a daybook is written to at most: it still holds what
	// was posted, and may be erased by then.
	bookTime = time.Hour
)

// posting is how a journal deals with daybooks.
type posting struct {
	dir   string
	book  atomic.Pointer[wal.Book] // nil if this process keeps none
	last  atomic.Pointer[string]   // the file that was posted last
	stuck atomic.Bool              // the last posting failed

	syncFolder func(dir string) error

	one    sync.Mutex // posts
	buffer []byte     // of the one

	mu      sync.Mutex
	timer   *time.Timer
	turner  *time.Timer // of the book that is written to
	armed   atomic.Bool
	closed  bool
	running sync.WaitGroup
}

// Daybooks says in which folder the daybooks of a store lie. What they hold is
// posted before anything is read.
func (j *Journal) Daybooks(dir string) { j.posting.dir = dir }

// KeepDaybook lets Note write to a daybook of this process. It is for processes
// that live on: one record costs more by way of a daybook, many cost less.
func (j *Journal) KeepDaybook() {
	if j.posting.dir != "" {
		j.posting.book.CompareAndSwap(nil, wal.Open(j.posting.dir, j.db.Owner()))
	}
}

// Note keeps a record that settles nothing else in the store. It is durable when
// Note returns nil; its place in the log may come later. No caller can cancel it.
func (j *Journal) Note(r *Record) error {
	if r.Time.IsZero() {
		r.Time = j.now()
	}
	p := &j.posting
	// While nothing can be posted, whoever notes something shall hear of it.
	if book := p.book.Load(); book != nil && !p.stuck.Load() {
		body := bodies.Get().(*[]byte)
		*body = appendBody((*body)[:0], r)
		err := book.Write(*body, int(j.calls.Load())-1)
		bodies.Put(body)
		if err == nil {
			j.arm(postTime)
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTime)
	defer cancel()
	return j.db.Write(ctx, func(tx state.Tx) error {
		_, err := j.Append(tx, r)
		return err
	})
}

var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// arm has what was noted posted after a while.
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

// postOwn posts what this process noted.
func (j *Journal) postOwn() {
	p := &j.posting
	defer p.running.Done()
	p.armed.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := j.postCurrent(ctx)
	p.stuck.Store(err != nil)
	if err != nil && !errors.Is(err, state.ErrClosed) {
		j.arm(postAgain)
	}
}

// postCurrent posts what was noted since the last time. Where that went to a new
// file, it looks at all of them.
func (j *Journal) postCurrent(ctx context.Context) error {
	p := &j.posting
	book := p.book.Load()
	if book == nil {
		return j.Post(ctx)
	}
	name, size := book.Current()
	if last := p.last.Swap(&name); name == "" || last == nil || *last != name {
		j.turnLater(name)
		return j.Post(ctx)
	}
	p.one.Lock()
	defer p.one.Unlock()
	return j.postFile(ctx, name, size, false)
}

// turnLater has the daybook that was begun end in good time.
func (j *Journal) turnLater(name string) {
	p := &j.posting
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turner != nil {
		p.turner.Stop()
	}
	if name == "" || p.closed {
		return
	}
	p.turner = time.AfterFunc(bookTime, func() {
		j.turn()
		j.arm(0) // which removes it
	})
}

// turn ends the daybook that is written to, if there is one.
func (j *Journal) turn() {
	if book := j.posting.book.Load(); book != nil {
		book.Turn()
	}
}

// Post posts what lies in the daybooks of the store, whoever wrote it.
func (j *Journal) Post(ctx context.Context) error {
	if j.posting.dir == "" {
		return nil
	}
	files, err := wal.Files(j.posting.dir)
	if err != nil || len(files) == 0 {
		return err
	}
	j.posting.one.Lock()
	defer j.posting.one.Unlock()
	for _, f := range files {
		// Whether more can come is asked before it is read.
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

// over reports whether nobody writes to a daybook any more.
func (j *Journal) over(ctx context.Context, f wal.File) (bool, error) {
	if f.Owner == j.db.Owner() {
		book := j.posting.book.Load()
		return book == nil || book.Over(f), nil
	}
	alive, err := j.db.Alive(ctx, f.Owner)
	return !alive, err
}

// postNews posts a daybook if there is something new in it: most looks find
// nothing, and those who only read need not write.
func (j *Journal) postNews(ctx context.Context, name string, over bool) error {
	var e wal.Entries
	err := j.db.Read(ctx, func(tx state.Tx) (err error) { e, err = j.look(tx, name, wal.ToEnd); return err })
	if err != nil || len(e.Bodies) == 0 && (e.Left == 0 || !over) {
		return err
	}
	return j.postFile(ctx, name, wal.ToEnd, over)
}

// postFile posts a daybook up to a place.
func (j *Journal) postFile(ctx context.Context, name string, to int64, over bool) error {
	for more := true; more; {
		err := j.db.Write(ctx, func(tx state.Tx) error {
			e, err := j.look(tx, name, to)
			if err == nil && len(e.Bodies) == 0 && e.End < to {
				err = errSpoilt
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
			_, err = tx.Exec(`INSERT INTO daybooks (name, posted) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET posted = excluded.posted`, name, e.End)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// errSpoilt says that what this process wrote is not there any more. It is told
// when the book is over; until then nothing is noted behind it.
var errSpoilt = errors.New("an entry of the daybook was changed before it was posted")

// look reads what is to be posted next. A file that is gone was posted; its mark
// may be gone too.
func (j *Journal) look(tx state.Tx, name string, to int64) (e wal.Entries, err error) {
	var from int64
	err = tx.Query(`SELECT posted FROM daybooks WHERE name = $1`, []any{name}, func(r state.Row) error { return r.Scan(&from) })
	if err != nil {
		return e, err
	}
	e, j.posting.buffer, err = wal.Read(filepath.Join(j.posting.dir, name), from, to, j.posting.buffer)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return e, err
}

// torn is the record of an end that is no entry.
func torn(left int64, now time.Time) []byte {
	return appendBody(nil, &Record{
		Time: now, Decision: Unknown, Stage: "record", Code: "outcome_unknown",
		Detail: fmt.Sprintf("the last %d bytes of a daybook are not whole: either nobody was told of these records, or they are damaged", left),
	})
}

// retire removes a daybook that was posted to its end. The mark goes after the
// file, once a power cut cannot bring that back: as long as there is a file, its
// mark says what was posted.
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

// closeDaybook posts what this process noted. The book stays, closed: its last file
// is not over before those who write to it have ended, and only it knows.
func (j *Journal) closeDaybook(ctx context.Context) error {
	p := &j.posting
	p.mu.Lock()
	p.closed = true
	if p.timer != nil && p.timer.Stop() {
		p.running.Done()
	}
	if p.turner != nil {
		p.turner.Stop()
	}
	p.mu.Unlock()
	p.running.Wait()
	book := p.book.Load()
	if book == nil {
		return nil
	}
	return errors.Join(book.Close(), unlessHandedOver(j.Post(ctx)))
}
