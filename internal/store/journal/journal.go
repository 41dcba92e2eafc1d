package journal

import (
	"crypto/ed25519"
	"crypto/sha256"
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

	marked    atomic.Int64 // when this process last made a checkpoint, in microseconds
	written   atomic.Bool  // whether this process appended anything
	appenders sync.Pool    // of *appender

	// seen has the end of the log after the last append of this process. The next append
	// takes it out and checks whether the log still ends there.
	seen atomic.Pointer[appender]

	calls   atomic.Int64 // in progress
	retired atomic.Bool  // another key has taken over
	posting posting
}

// ErrNoRecord means that the journal has no record at a position.
var ErrNoRecord = errors.New("the journal has no such record")

// New returns the journal of a store. signer signs its checkpoints, which contain name to
// identify the journal. name must not contain spaces or plus signs.
func New(db state.DB, signer ed25519.PrivateKey, name string) *Journal {
	return &Journal{
		db: db, signer: signer, now: time.Now,
		key:       Key{name: name, public: signer.Public().(ed25519.PublicKey)},
		appenders: sync.Pool{New: func() any { return new(appender) }},

		posting: posting{syncFolder: home.SyncFolder},
	}
}

// Through makes the journal use a wrapper of its store, such as one that counts. It must
// be called before any other method.
func (j *Journal) Through(db state.DB) { j.db = db }

// Enter announces a call that will be recorded; the caller calls leave when it is. The
// journal writes the records of many simultaneous calls together.
func (j *Journal) Enter() (leave func()) {
	j.calls.Add(1)
	return j.leave
}

func (j *Journal) leave() { j.calls.Add(-1) }

// Key returns the public key that verifies the journal's checkpoints.
func (j *Journal) Key() Key { return j.key }

// appender contains the end of a log and the buffers of an append.
type appender struct {
	log    int64
	edge   edge
	tiles  []tileRoot
	body   []byte
	leaves []leaf
	record []byte // of all leaves, one after the other
	before []byte // the encoded edge
	after  []byte
	read   []byte
	size   int64
}

// leaf is a new record: its hash, and the range of its bytes in the buffer.
type leaf struct {
	hash     tlog.Hash
	from, to int
}

// Append writes a record in a transaction and returns its number in the log of this
// process. It sets the record's place, and its time if that is zero.
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

// add appends records that are encoded except for their heads, and returns the number of
// the last one. If a checkpoint is due between two of them, add makes it there.
func (j *Journal) add(tx state.Tx, bodies [][]byte, now time.Time) (last int64, err error) {
	for len(bodies) > 0 {
		a, n, err := j.addSome(tx, bodies, now)
		if err != nil {
			return 0, err
		}
		bodies = bodies[n:]
		j.written.Store(true)
		if j.due(now, a.edge.size) {
			if err := j.mark(tx, a.log, &a.edge, now); err != nil {
				return 0, err
			}
		}
		last = a.edge.size - 1
		j.seen.Store(a)
	}
	return last, nil
}

// addSome appends records up to the next required checkpoint. It starts from the
// remembered end of the log, or from its current end if another process has appended.
func (j *Journal) addSome(tx state.Tx, bodies [][]byte, now time.Time) (*appender, int, error) {
	log := j.db.Log()
	if a := j.seen.Swap(nil); a != nil && a.log == log {
		n := a.stop(len(bodies))
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
	n := a.stop(len(bodies))
	return a, n, a.append(tx, log, bodies[:n])
}

// stop returns how many of n records may follow before a checkpoint.
func (a *appender) stop(n int) int {
	if a.edge.size == 0 {
		return 1
	}
	return int(min(int64(n), stride-a.edge.size%stride))
}

// head reads the end of a log.
func (a *appender) head(tx state.Tx, log int64) (found bool, err error) {
	err = tx.Query(`SELECT size, edge FROM heads WHERE log = $1`, []any{log}, func(row state.Row) error {
		found = true
		return row.Scan(&a.size, &a.read)
	})
	if err != nil {
		return false, err
	}
	if !found {
		a.size, a.read = 0, nil
	}
	a.log = log
	return found, a.edge.read(a.size, a.read)
}

// open reads the end of a log and creates the head of a new one.
func (a *appender) open(tx state.Tx, log int64) error {
	found, err := a.head(tx, log)
	if err == nil && !found {
		_, err = tx.Exec(`INSERT INTO heads (log, size, edge) VALUES ($1, 0, $2) ON CONFLICT (log) DO NOTHING`, log, []byte{})
	}
	return err
}

// errGrew means that a log no longer ends at the remembered edge.
var errGrew = errors.New("another process has appended to the log")

// append writes leaves after the edge. It updates the head first, because that fails if
// another process has appended.
func (a *appender) append(tx state.Tx, log int64, bodies [][]byte) error {
	first := a.edge.size
	if first+int64(len(bodies)) > maxSeq {
		return fmt.Errorf("log %d is full", log)
	}
	if a.before == nil {
		a.before = []byte{} // an edge without roots is not NULL
	}
	a.before = a.edge.append(a.before[:0])
	a.tiles, a.leaves, a.record = a.tiles[:0], a.leaves[:0], a.record[:0]
	for i, body := range bodies {
		from := len(a.record)
		// RFC 6962 hashes a zero byte and the record.
		a.record = append(appendHead(append(a.record, 0), log, first+int64(i)), body...)
		l := leaf{hash: sha256.Sum256(a.record[from:]), from: from + 1, to: len(a.record)}
		a.leaves = append(a.leaves, l)
		err := a.edge.add(l.hash, func(level int, n int64, root tlog.Hash) error {
			a.tiles = append(a.tiles, tileRoot{level: level, n: n, root: root})
			return nil
		})
		if err != nil {
			return err
		}
	}
	a.after = a.edge.append(a.after[:0])
	rows, err := tx.Exec(`UPDATE heads SET size = $1, edge = $2 WHERE log = $3 AND size = $4 AND edge = $5`,
		a.edge.size, a.after, log, first, a.before)
	if err == nil && rows != 1 {
		err = errGrew
	}
	if err != nil {
		return err
	}
	for i := range a.leaves {
		l := &a.leaves[i]
		if _, err := tx.Exec(`INSERT INTO leaves (place, hash, record) VALUES ($1, $2, $3)`,
			place(log, first+int64(i)), l.hash[:], a.record[l.from:l.to]); err != nil {
			return err
		}
	}
	for _, t := range a.tiles {
		if err := addTile(tx, log, t.level, t.n, t.root); err != nil {
			return err
		}
	}
	return nil
}

// enroll writes a record of the roster.
func (j *Journal) enroll(tx state.Tx, r *Record) error {
	a := j.appenders.Get().(*appender)
	defer j.appenders.Put(a)
	// Two transactions that write the roster conflict here, and one of them runs again.
	if _, err := tx.Exec(`UPDATE heads SET size = size WHERE log = 0`); err != nil {
		return err
	}
	if err := a.open(tx, 0); err != nil {
		return err
	}
	if r.Kind == kindErased {
		r.Erasure = j.erasure(r.Roster, &a.edge)
	}
	a.body = appendBody(a.body[:0], r)
	if err := a.append(tx, 0, [][]byte{a.body}); err != nil {
		return err
	}
	if a.edge.size%stride != 0 {
		return nil
	}
	_, err := j.keep(tx, 0, &a.edge, r.Time)
	return err
}
