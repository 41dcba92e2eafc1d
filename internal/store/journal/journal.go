package journal

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Journal is the journal of a store.
type Journal struct {
	db     state.DB
	signer ed25519.PrivateKey
	key    Key
	now    func() time.Time

	marked  atomic.Int64 // the time of this process's last checkpoint, in microseconds
	written atomic.Bool  // whether this process has appended a record

	// lastEnd is the end of the log after the last append of this process. The next append checks whether the log still
	// ends there.
	lastEnd atomic.Pointer[appender]

	// scanned is, for each log, the position before which no record is left to erase. A repeated erasure begins there.
	scanned struct {
		sync.Mutex
		before map[int64]int64
	}

	calls   atomic.Int64 // the number of calls in progress; see Enter
	retired atomic.Bool  // whether another key has replaced the key of this process
	posting posting
}

// ErrNoRecord means that the journal has no record at the requested position.
var ErrNoRecord = errors.New("the journal has no such record")

// New returns the journal of a store. The signer signs the checkpoints. The name identifies the journal in its
// checkpoints and must not contain spaces or plus signs.
func New(db state.DB, signer ed25519.PrivateKey, name string) *Journal {
	return &Journal{
		db: db, signer: signer, now: time.Now,
		key:     KeyOf(signer, name),
		posting: posting{syncFolder: home.SyncFolder},
	}
}

// Through makes the journal use db, which must be a wrapper around the journal's database, for example one that
// measures the time of transactions. Through must be called before any other method.
func (j *Journal) Through(db state.DB) { j.db = db }

// Enter counts a gateway call that has started and will be recorded. The caller of Enter must run the
// returned function after the gateway call is recorded. The journal counts the calls in progress because it writes the
// records of simultaneous calls together.
func (j *Journal) Enter() (leave func()) {
	j.calls.Add(1)
	return j.leave
}

func (j *Journal) leave() { j.calls.Add(-1) }

// Key returns the public key that verifies the journal's checkpoints.
func (j *Journal) Key() Key { return j.key }

// appender appends records to the end of a log.
type appender struct {
	log  int64
	edge edge
}

// Append writes a record to the log of this process and returns the record's sequence number. It sets the fields Log
// and Seq of the record, and Time if Time is zero.
func (j *Journal) Append(tx state.Tx, r *Record) (seq int64, err error) {
	now := j.now()
	if r.Time.IsZero() {
		r.Time = now
	}
	r.Time = r.Time.UTC().Truncate(time.Microsecond)
	body := appendBody(make([]byte, 0, 1024), r)
	r.Log = j.db.Log()
	r.Seq, err = j.add(tx, [][]byte{body}, now)
	return r.Seq, err
}

// add appends records and returns the sequence number of the last record. Each element of bodies is an encoded record
// without its head. If a checkpoint is required after a record, the checkpoint is made before the next record is
// appended.
func (j *Journal) add(tx state.Tx, bodies [][]byte, now time.Time) (last int64, err error) {
	for len(bodies) > 0 {
		a, n, err := j.addSome(tx, bodies, now)
		if err != nil {
			return 0, err
		}
		bodies = bodies[n:]
		j.written.Store(true)
		if j.checkpointDue(now, a.edge.size) {
			if err := j.mark(tx, a.log, &a.edge, now); err != nil {
				return 0, err
			}
		}
		last = a.edge.size - 1
		j.lastEnd.Store(a)
	}
	return last, nil
}

// addSome appends records up to the next required checkpoint and returns the number of appended records. It first
// assumes that the log still ends where the last append of this process ended. If another process has appended records
// since then, addSome reads the end of the log from the store.
func (j *Journal) addSome(tx state.Tx, bodies [][]byte, now time.Time) (*appender, int, error) {
	log := j.db.Log()
	if a := j.lastEnd.Swap(nil); a != nil && a.log == log {
		n := a.untilCheckpoint(len(bodies))
		if err := a.append(tx, log, bodies[:n]); err != errGrew {
			return a, n, err
		}
	}
	a := new(appender)
	if err := a.open(tx, log); err != nil {
		return nil, 0, err
	}
	if a.edge.size == 0 && log != 0 {
		if err := j.enroll(tx, &Record{Kind: kindBorn, Time: now, Roster: &Roster{Log: log}}); err != nil {
			return nil, 0, err
		}
	}
	n := a.untilCheckpoint(len(bodies))
	return a, n, a.append(tx, log, bodies[:n])
}

// untilCheckpoint returns how many of n records can be appended before a checkpoint is required.
func (a *appender) untilCheckpoint(n int) int {
	if a.edge.size == 0 {
		return 1
	}
	return int(min(int64(n), stride-a.edge.size%stride))
}

// head reads the head of a log. The first result reports whether the log exists.
func (a *appender) head(tx state.Tx, log int64) (found bool, err error) {
	var size int64
	var roots []byte
	err = tx.Query(`SELECT size, edge FROM heads WHERE log = $1`, []any{log}, func(row state.Row) error {
		found = true
		return row.Scan(&size, &roots)
	})
	if err != nil {
		return false, err
	}
	a.log = log
	return found, a.edge.read(size, roots)
}

// open reads the head of a log. If the log does not exist, open creates it.
func (a *appender) open(tx state.Tx, log int64) error {
	found, err := a.head(tx, log)
	if err == nil && !found {
		_, err = tx.Exec(`INSERT INTO heads (log, size, edge) VALUES ($1, 0, $2) ON CONFLICT (log) DO NOTHING`, log, []byte{})
	}
	return err
}

// errGrew means that a log no longer ends where the last append of this process ended.
var errGrew = errors.New("another process has appended to the log")

// append writes records to the end of the log. It updates the head first. If another process has appended records, the
// update matches no row, and append returns errGrew.
func (a *appender) append(tx state.Tx, log int64, bodies [][]byte) error {
	first := a.edge.size
	if first+int64(len(bodies)) > maxSeq {
		return fmt.Errorf("log %d is full", log)
	}
	before := a.edge.append([]byte{}) // the edge must not be nil, because nil would become NULL in the database
	records, hashes := make([][]byte, len(bodies)), make([]tlog.Hash, len(bodies))
	var tiles []tileRoot
	for i, body := range bodies {
		records[i] = append(appendHead(make([]byte, 0, headSize+len(body)), log, first+int64(i)), body...)
		hashes[i] = tlog.RecordHash(records[i])
		tiles = append(tiles, a.edge.add(hashes[i])...)
	}
	rows, err := tx.Exec(`UPDATE heads SET size = $1, edge = $2 WHERE log = $3 AND size = $4 AND edge = $5`,
		a.edge.size, a.edge.append(nil), log, first, before)
	if err == nil && rows != 1 {
		err = errGrew
	}
	if err != nil {
		return err
	}
	for i := range records {
		if _, err := tx.Exec(`INSERT INTO leaves (place, hash, record) VALUES ($1, $2, $3)`,
			place(log, first+int64(i)), hashes[i][:], records[i]); err != nil {
			return err
		}
	}
	for _, root := range tiles {
		if err := addTile(tx, log, root); err != nil {
			return err
		}
	}
	return nil
}

// enroll appends a record to log 0, the roster.
func (j *Journal) enroll(tx state.Tx, r *Record) error {
	// This update causes a conflict between concurrent transactions that write to the roster, so that the store repeats
	// one of them.
	if _, err := tx.Exec(`UPDATE heads SET size = size WHERE log = 0`); err != nil {
		return err
	}
	var a appender
	if err := a.open(tx, 0); err != nil {
		return err
	}
	if r.Kind == kindErased {
		r.Erasure = j.signErasure(r.Roster, &a.edge)
	}
	if err := a.append(tx, 0, [][]byte{appendBody(nil, r)}); err != nil {
		return err
	}
	if a.edge.size%stride != 0 {
		return nil
	}
	_, err := j.storeCheckpoint(tx, 0, &a.edge, r.Time)
	return err
}
