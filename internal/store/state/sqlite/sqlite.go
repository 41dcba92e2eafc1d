// Package sqlite implements a store for one machine. The store is one file that all processes open.
//
//   - Writers queue for the store lock, which is a lock on the separate file <file>.lock. SQLite's own lock is not
//     enough: SQLite polls it with growing pauses. Under load, one process could then write thousands of times while
//     another process writes once. The store lock is released after each batch. A writer that waits longer than
//     lockTime gets an error. The error names the process that holds the store lock.
//   - SQLite uses its write-ahead log with synchronous=FULL. A commit is on disk when Write returns. Readers have
//     their own connections and never wait for writers.
//   - File locks and SQLite's write-ahead log need a local disk. Open refuses network file systems.
//   - Connections are opened on first use. A command that writes once opens one connection.
//   - Only the user who created the store can read the store, its directory and its backups.
//   - Deleted data is overwritten with zeros (secure_delete). For a row that fits in one page, this costs nothing.
//     For a larger row, SQLite writes the overflow pages again.
//
// While the store is open, only SQLite may open <file>. If the process closed another descriptor of the file, the
// kernel would drop SQLite's locks on the file.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

const (
	// maxReaders is the maximum number of simultaneous reads.
	maxReaders = 4
	// busyTime is how long a connection waits for SQLite's own locks. Writers already hold the store lock. SQLite's
	// locks are therefore busy only while another process opens, closes or recovers the store.
	busyTime = 10 * time.Second
	// closeTime is how long Close waits while another process holds the store lock.
	closeTime = time.Second
	// pollTime is the interval at which waiters poll for commits of other processes.
	pollTime = 15 * time.Millisecond
)

type store struct {
	file     string
	self     os.FileInfo // the identity of the opened file
	owners   string      // the directory of the owners' files
	name     string
	owner    *os.File // the locked file of this owner
	turnFile *os.File // a file that is locked by the process that will get the store lock next
	lock     *os.File // the store lock: a file that is locked by the process that is writing
	writer   *conn
	group    *engine.Group

	entering atomic.Bool // whether this process waits for the store lock
	commits  int         // the number of commits since Open; guarded by the store lock
	scrubs   []*error    // pointers to the results of the Scrub calls in the current batch

	watch  engine.Watch
	looker *conn // a separate connection for watch, because SQLite reports only the commits of other connections

	slots   chan struct{} // a channel with one value for each running read
	idle    chan *conn
	closing chan struct{}
	closed  atomic.Bool
}

var _ state.DB = (*store)(nil)

// Open opens the store in a file. It creates the file if the file is missing.
func Open(ctx context.Context, file string) (state.DB, error) {
	s, err := open(ctx, file, migrations.List())
	if err != nil {
		return nil, fmt.Errorf("cannot open the store %s: %w", file, explain(err))
	}
	return s, nil
}

func open(ctx context.Context, file string, list []string) (_ *store, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if file, err = filepath.Abs(file); err != nil {
		return nil, err
	}
	s := &store{
		file:    file,
		owners:  filepath.Join(filepath.Dir(file), "owners"),
		slots:   make(chan struct{}, maxReaders),
		idle:    make(chan *conn, maxReaders),
		closing: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if err := s.prepareFiles(); err != nil {
		return nil, err
	}
	if s.writer, err = s.connect(); err != nil {
		return nil, err
	}
	if err := s.migrate(ctx, migrations.SQLite(list)); err != nil {
		return nil, err
	}
	if s.self, err = os.Stat(s.file); err != nil {
		return nil, err
	}
	sweep(s.owners)
	if s.owner, err = claim(s.owners); err != nil {
		return nil, err
	}
	s.name = filepath.Base(s.owner.Name())
	s.watch.Look, s.watch.First, s.watch.Longest = s.look, pollTime, pollTime
	s.group = engine.New(s.begin, s.try)
	return s, nil
}

func (s *store) prepareFiles() (err error) {
	if err := os.MkdirAll(s.owners, 0o700); err != nil {
		return err
	}
	disk, err := networkDisk(filepath.Dir(s.file))
	if err != nil {
		return err
	}
	if disk != "" {
		return fmt.Errorf("%w, but the directory of the store is on %s. Set AMBIT_HOME to a local directory, "+
			"or use a PostgreSQL store",
			state.ErrNetworkDisk, disk)
	}
	if _, ok := s.Announced(); !ok {
		// The file must belong to the user of the store, so do not leave it to the first announcement.
		if err := s.Announce(); err != nil {
			return err
		}
	}
	if s.turnFile, err = os.OpenFile(s.file+".turn", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if s.lock, err = os.OpenFile(s.file+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	// SQLite gives its other files the mode of this file.
	f, err := os.OpenFile(s.file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return makePrivate(s.file)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// makePrivate removes the permissions of other users from the file of a store.
func makePrivate(file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return os.Chmod(file, 0o600)
}

func (s *store) connect(more ...string) (*conn, error) {
	c, err := sqlite.OpenConn(s.file, sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	conn := &conn{Conn: c, known: map[string]*sqlite.Stmt{}}
	conn.SetBusyTimeout(busyTime)
	for _, pragma := range append([]string{
		`PRAGMA synchronous = FULL`,
		`PRAGMA fullfsync = ON`, // on macOS, also flush the cache of the drive
		`PRAGMA journal_size_limit = 67108864`,
		`PRAGMA secure_delete = ON`, // overwrite deleted data with zeros
	}, more...) {
		if err := conn.exec(pragma); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

func (s *store) begin() (engine.Batch, error) {
	if err := s.enter(); err != nil {
		return nil, explain(err)
	}
	return s.newBatch()
}

func (s *store) try() (engine.Batch, error) {
	if ok, err := s.tryEnter(); err != nil || !ok {
		return nil, explain(err)
	}
	return s.newBatch()
}

// checkMoved returns ErrMoved if the file of the store was moved, removed or replaced. SQLite would then write to a
// file that no other process sees.
func (s *store) checkMoved() error {
	now, err := os.Stat(s.file)
	if err == nil && os.SameFile(now, s.self) {
		return nil
	}
	return state.ErrMoved
}

func (s *store) newBatch() (engine.Batch, error) {
	b := &batch{s: s}
	err := s.checkMoved()
	if err == nil {
		err = b.open()
	}
	if err != nil {
		return nil, errors.Join(explain(err), home.Unlock(s.lock))
	}
	return b, nil
}

// batch is one transaction of the writing connection. Members run without a savepoint until the first member has
// succeeded. If a member without a savepoint fails, the whole transaction is rolled back and restarted.
type batch struct {
	s     *store
	saved bool // whether the transaction contains the changes of a member
	begun bool
	lost  error
}

func (b *batch) open() error {
	err := b.s.writer.exec(`BEGIN IMMEDIATE`)
	b.begun = err == nil
	return err
}

func (b *batch) Do(ctx context.Context, f func(state.Tx) error) (err error) {
	conn := b.s.writer
	saved := b.saved
	if saved {
		err = conn.exec(`SAVEPOINT member`)
	} else if !b.begun {
		err = b.open()
	}
	if err != nil {
		b.lost = explain(err)
		return b.lost
	}
	ok := false
	defer func() {
		switch {
		case conn.AutocommitEnabled():
			// Some errors, such as a full disk, roll back the whole transaction.
			b.begun = false
			if err == nil {
				err = fmt.Errorf("%w: a statement has committed or rolled back the transaction", state.ErrTx)
			}
			if saved || ok {
				b.lost = err
			}
		case !saved && !ok:
			b.begun = false
			b.lost = conn.exec(`ROLLBACK`)
		case !saved:
			b.saved = true
		case !ok:
			b.lost = errors.Join(conn.exec(`ROLLBACK TO member`), conn.exec(`RELEASE member`))
		default:
			b.lost = conn.exec(`RELEASE member`)
		}
	}()
	err = engine.Run(ctx, conn.statement, f)
	ok = err == nil
	return err
}

func (b *batch) Lost() error { return b.lost }

func (b *batch) End(members int) error {
	conn := b.s.writer
	err := b.lost
	if err == nil && members > 0 {
		err = explain(conn.exec(`COMMIT`))
	}
	if !conn.AutocommitEnabled() {
		err = errors.Join(err, conn.exec(`ROLLBACK`))
	}
	if err == nil && members > 0 {
		b.s.commits++
		if b.s.commits == manyCommits {
			b.s.growLog()
		}
	}
	b.s.scrub(err == nil)
	err = errors.Join(err, home.Unlock(b.s.lock))
	if err == nil && members > 0 {
		b.s.watch.Wake()
	}
	return err
}

const (
	// manyCommits is the number of commits after which a process is expected to make many more.
	manyCommits = 32
	// logSize is the size of 1000 pages. At this size, SQLite starts to overwrite its write-ahead log from the
	// beginning.
	logSize = 1000 * (4096 + 24)
)

// growLog extends SQLite's write-ahead log with zeros to its final size. A commit that extends the file keeps the
// disk busy twice as long as a commit that overwrites existing bytes. SQLite does not treat zeros as valid frames and
// has no locks on this file. The caller holds the store lock. Errors are ignored, because growing is only an
// optimization.
func (s *store) growLog() {
	f, err := os.OpenFile(s.file+"-wal", os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return
	}
	zeros := make([]byte, 256<<10)
	for at := info.Size(); at < logSize; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), logSize-at)], at); err != nil {
			return
		}
	}
}

func (s *store) Write(ctx context.Context, f func(state.Tx) error) error {
	return s.group.Write(ctx, f)
}

func (s *store) Read(ctx context.Context, f func(state.Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return state.ErrClosed
	}
	defer func() { <-s.slots }()
	var conn *conn
	select {
	case conn = <-s.idle:
	default:
		if conn, err = s.connect(`PRAGMA query_only = ON`); err != nil {
			return explain(err)
		}
	}
	defer func() {
		if conn.AutocommitEnabled() {
			s.idle <- conn
		} else { // the rollback failed, so the connection cannot be reused
			err = errors.Join(err, conn.Close())
		}
	}()
	if err := conn.exec(`BEGIN`); err != nil {
		return explain(err)
	}
	conn.SetInterrupt(ctx.Done())
	defer func() {
		conn.SetInterrupt(nil)
		err = errors.Join(err, conn.exec(`ROLLBACK`))
	}()
	return engine.Run(ctx, conn.statement, f)
}

func (s *store) Changed(ctx context.Context) error { return s.watch.Wait(ctx) }

func (s *store) look() (string, error) {
	if s.looker == nil {
		conn, err := s.connect()
		if err != nil {
			return "", explain(err)
		}
		s.looker = conn
	}
	version, err := s.looker.queryInt(`PRAGMA data_version`)
	return strconv.FormatInt(version, 10), explain(err)
}

func (s *store) Owner() string { return s.name }

func (s *store) Alive(_ context.Context, owner string) (bool, error) {
	switch {
	case s.closed.Load():
		return false, state.ErrClosed
	case owner == s.Owner():
		return true, nil
	}
	return alive(s.owners, owner)
}

// Log returns 0, because all processes of one machine append to the same log.
func (s *store) Log() int64 { return 0 }

func (s *store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.closing)
	ended := s.group.Close()
	s.watch.Close()
	for range maxReaders { // wait for all reads
		s.slots <- struct{}{}
	}
	close(s.idle)
	var err error
	for conn := range s.idle {
		err = errors.Join(err, conn.Close())
	}
	if s.looker != nil {
		err = errors.Join(err, s.looker.Close())
	}
	select {
	case <-ended:
	case <-time.After(closeTime):
		if s.entering.Load() {
			// Another process holds the store lock and may never release it. The files are closed when that process
			// releases the store lock, or when this process exits.
			owner := s.owner
			s.owner = nil
			go func() {
				<-ended
				_ = s.release()
			}()
			return errors.Join(err, release(owner))
		}
		<-ended
	}
	return errors.Join(err, s.release())
}

// release closes the writing connection, the file of the owner, and the files of the store lock.
func (s *store) release() (err error) {
	if s.writer != nil {
		err = s.writer.Close()
	}
	if s.owner != nil {
		err = errors.Join(err, release(s.owner))
	}
	for _, f := range []*os.File{s.lock, s.turnFile} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// scrubTime is how long a scrub waits for readers. No writer can write during a scrub. Tests make scrubTime shorter.
var scrubTime = 2 * time.Second

var errRead = errors.New("deleted data is still in the file state.db-wal, because a process is reading the store")

// Scrub truncates SQLite's write-ahead log, which contains old versions of pages. In the main file, SQLite overwrites
// deleted data with zeros immediately.
func (s *store) Scrub(ctx context.Context) error {
	var result error
	err := s.group.Write(ctx, func(state.Tx) error {
		s.scrubs = append(s.scrubs, &result)
		return nil
	})
	return errors.Join(err, result)
}

// scrub truncates SQLite's write-ahead log if a member of a committed batch requested a scrub. The caller holds the
// store lock, so scrub waits only for readers.
func (s *store) scrub(committed bool) {
	requests := s.scrubs
	s.scrubs = nil
	if len(requests) == 0 || !committed {
		return
	}
	s.writer.SetBusyTimeout(scrubTime)
	defer s.writer.SetBusyTimeout(busyTime)
	busy, err := s.writer.queryInt(`PRAGMA wal_checkpoint(TRUNCATE)`)
	if err == nil && busy != 0 {
		err = errRead
	}
	if err == nil && s.commits >= manyCommits {
		s.growLog()
	}
	for _, result := range requests {
		*result = explain(err)
	}
}
