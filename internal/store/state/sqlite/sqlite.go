// Package sqlite implements a store of one machine, in one file that every process opens.
//
//   - Writers queue at a lock file, <file>.lock. SQLite's own lock is polled with growing
//     pauses: under load one process wrote thousands of times while another wrote once.
//     The lock is released after each batch. A writer that waits longer than lockTime
//     gets an error that names the process holding the lock.
//   - With WAL and synchronous=FULL, a commit is on disk when Write returns. Readers have
//     their own connections and never wait for writers.
//   - Locks and WAL need a local disk. Network file systems are refused.
//   - Connections are opened on first use: a command that writes once opens one.
//   - Only their user can read the store, its directory and its backups.
//   - Deleted data is overwritten with zeros (secure_delete). This is free for a row
//     within one page; a larger row has its overflow pages written again.
//
// While the store is open, only SQLite may open <file>: closing any other descriptor of
// the file would drop the locks that SQLite holds on it.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

const (
	// maxReaders bounds how many reads run at the same time.
	maxReaders = 4
	// busyTime bounds how long a connection waits for SQLite's own locks. Because of the
	// lock file they are free, except while another process opens, closes or recovers.
	busyTime = 10 * time.Second
	// closeTime bounds how long Close waits for the lock of another process.
	closeTime = time.Second
	// pollTime is the interval at which waiters poll for commits of other processes.
	pollTime = 15 * time.Millisecond
)

type store struct {
	file   string
	self   os.FileInfo // the file that was opened
	owners string
	name   string
	owner  *os.File
	turns  *os.File // locked by the next writer
	lock   *os.File // locked by the writer
	writer *conn
	group  *engine.Group

	entering atomic.Bool // waiting for the lock
	commits  int         // since Open; guarded by lock
	scrubs   []*error    // requested in the current batch

	watch  engine.Watch
	looker *conn // of watch: SQLite reports the commits of other connections

	slots   chan struct{} // holds one value for each running read
	mu      sync.Mutex
	idle    []*conn
	closing chan struct{}
	closed  bool
}

var _ state.DB = (*store)(nil)

// Open opens the store in a file and creates a missing one.
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
		return fmt.Errorf("%w, and this directory is on %s. Set AMBIT_HOME to a local directory, or use a PostgreSQL store",
			state.ErrNetworkDisk, disk)
	}
	if s.turns, err = os.OpenFile(s.file+".turn", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if s.lock, err = os.OpenFile(s.file+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	// SQLite creates its other files with the mode of this one.
	f, err := os.OpenFile(s.file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return private(s.file)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// private removes the permissions of other users from a store.
func private(file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return os.Chmod(file, 0o600)
}

func (s *store) connect() (*conn, error) {
	c, err := sqlite.OpenConn(s.file, sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	conn := &conn{Conn: c, known: map[string]*statement{}}
	conn.SetBusyTimeout(busyTime)
	for _, pragma := range []string{
		`PRAGMA synchronous = FULL`,
		`PRAGMA fullfsync = ON`, // macOS: past the drive's cache
		`PRAGMA journal_size_limit = 67108864`,
		`PRAGMA secure_delete = ON`, // overwrite deleted data with zeros
	} {
		if err := conn.do(pragma); err != nil {
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

// moved reports that the store file was moved, removed or replaced. SQLite would continue
// to write to a file that no other process can see.
func (s *store) moved() error {
	now, err := os.Stat(s.file)
	if err == nil && os.SameFile(now, s.self) {
		return nil
	}
	return state.ErrMoved
}

func (s *store) newBatch() (engine.Batch, error) {
	b := &batch{s: s}
	err := s.moved()
	if err == nil {
		err = b.open()
	}
	if err != nil {
		return nil, errors.Join(explain(err), home.Unlock(s.lock))
	}
	return b, nil
}

// batch is one transaction of the writing connection. The first successful member needs
// no savepoint: if it fails, the whole transaction is rolled back and begun again.
type batch struct {
	s     *store
	saved bool // a member's changes are in the transaction
	begun bool // there is a transaction
	lost  error
}

func (b *batch) open() error {
	err := b.s.writer.do(`BEGIN IMMEDIATE`)
	b.begun = err == nil
	return err
}

func (b *batch) Do(ctx context.Context, f func(state.Tx) error) (err error) {
	conn := b.s.writer
	saved := b.saved
	if saved {
		err = conn.do(`SAVEPOINT member`)
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
			// Some errors, such as a full disk, end the whole transaction.
			b.begun = false
			if err == nil {
				err = fmt.Errorf("%w: the transaction was ended", state.ErrTx)
			}
			if saved || ok {
				b.lost = err
			}
		case !saved && !ok:
			b.begun = false
			b.lost = conn.do(`ROLLBACK`)
		case !saved:
			b.saved = true
		case !ok:
			b.lost = errors.Join(conn.do(`ROLLBACK TO member`), conn.do(`RELEASE member`))
		default:
			b.lost = conn.do(`RELEASE member`)
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
		err = explain(conn.do(`COMMIT`))
	}
	if !conn.AutocommitEnabled() {
		err = errors.Join(err, conn.do(`ROLLBACK`))
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
	// manyCommits is the number of commits after which a process is expected to keep
	// writing.
	manyCommits = 32
	// logSize is the size at which SQLite starts its write-ahead log anew: 1000 pages.
	logSize = 1000 * (4096 + 24)
)

// growLog extends SQLite's write-ahead log to its final size. A commit that extends the
// file takes the disk twice as long as one that overwrites it. Zeros at the end are not
// valid frames, and SQLite holds no lock on the log. The caller holds the lock. Errors
// are ignored: growing is only an optimisation.
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
	conn, err := s.reader(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.putReader(conn)) }()
	if err := conn.do(`BEGIN`); err != nil {
		return explain(err)
	}
	conn.SetInterrupt(ctx.Done())
	defer func() {
		conn.SetInterrupt(nil)
		err = errors.Join(err, conn.do(`ROLLBACK`))
	}()
	return engine.Run(ctx, conn.statement, f)
}

// reader returns a connection for reading. Each running read holds a slot, so Close waits
// for all reads by taking every slot.
func (s *store) reader(ctx context.Context) (conn *conn, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closing:
		return nil, state.ErrClosed
	}
	defer func() {
		if err != nil {
			<-s.slots
		}
	}()
	s.mu.Lock()
	closed := s.closed
	if n := len(s.idle); n > 0 && !closed {
		conn, s.idle = s.idle[n-1], s.idle[:n-1]
	}
	s.mu.Unlock()
	if closed {
		return nil, state.ErrClosed
	}
	if conn != nil {
		return conn, nil
	}
	if conn, err = s.connect(); err != nil {
		return nil, explain(err)
	}
	if err := conn.do(`PRAGMA query_only = ON`); err != nil {
		return nil, errors.Join(explain(err), conn.Close())
	}
	return conn, nil
}

func (s *store) putReader(conn *conn) error {
	defer func() { <-s.slots }()
	if !conn.AutocommitEnabled() { // the rollback failed
		return conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, conn)
	return nil
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
	version, err := s.looker.ask(`PRAGMA data_version`)
	return strconv.FormatInt(version, 10), explain(err)
}

func (s *store) Owner() string { return s.name }

func (s *store) Alive(_ context.Context, owner string) (bool, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return false, state.ErrClosed
	case owner == s.Owner():
		return true, nil
	}
	return alive(s.owners, owner)
}

// Log returns 0: all processes of one machine write to the same log.
func (s *store) Log() int64 { return 0 }

func (s *store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.closing)
	s.mu.Unlock()

	ended := s.group.Close()
	for range maxReaders {
		s.slots <- struct{}{}
	}
	s.watch.Close()
	if s.looker != nil {
		s.idle = append(s.idle, s.looker)
	}
	var err error
	for _, conn := range s.idle {
		err = errors.Join(err, conn.Close())
	}
	select {
	case <-ended:
	case <-time.After(closeTime):
		if s.entering.Load() {
			// Another process holds the lock, perhaps for ever. The files are closed
			// when it releases the lock, or when this process ends.
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

// release frees everything that open acquired.
func (s *store) release() (err error) {
	if s.writer != nil {
		err = s.writer.Close()
	}
	if s.owner != nil {
		err = errors.Join(err, release(s.owner))
	}
	for _, f := range []*os.File{s.lock, s.turns} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
