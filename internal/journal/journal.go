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

	"github.com/ambit-run/ambit/internal/state"
)

// Journal is the journal of a store.
type Journal struct {
	db     state.DB
	signer ed25519.PrivateKey
	key    Key
	now    func() time.Time

	marked  atomic.Int64 // when this process last made a checkpoint, in microseconds
	written atomic.Bool  // whether this process appended anything
	room    sync.Pool    // of *room
}

// ErrNoRecord says that the journal has no record at a place.
var ErrNoRecord = errors.New("the journal has no such record")

// New returns the journal of a store. Its checkpoints are signed by signer, and
// name says in them whose journal it is; name holds no spaces and no plus.
func New(db state.DB, signer ed25519.PrivateKey, name string) *Journal {
	return &Journal{
		db: db, signer: signer, now: time.Now,
		key:  Key{name: name, public: signer.Public().(ed25519.PublicKey)},
		room: sync.Pool{New: func() any { return new(room) }},
	}
}

// Key is what the journal's checkpoints are checked with. It is no secret.
func (j *Journal) Key() Key { return j.key }

// room is what an append works in.
type room struct {
	edge   edge
	record []byte
	roots  []byte
	read   []byte
	size   int64
}

// Append writes a record in a transaction and tells its number in the log of
// this process. It sets the record's place, and its time if that is zero.
func (j *Journal) Append(tx state.Tx, r *Record) (seq int64, err error) {
	now := j.now()
	if r.Time.IsZero() {
		r.Time = now
	}
	room := j.room.Get().(*room)
	defer j.room.Put(room)
	log := j.db.Log()
	if err := room.open(tx, log); err != nil {
		return 0, err
	}
	if room.edge.size == 0 && log != 0 {
		if err := j.enroll(tx, &Record{Kind: kindBorn, Time: now, Roster: &Roster{Log: log}}); err != nil {
			return 0, err
		}
	}
	if err := room.append(tx, log, r); err != nil {
		return 0, err
	}
	j.written.Store(true)
	if j.due(now, room.edge.size) {
		if err := j.mark(tx, log, &room.edge, now); err != nil {
			return 0, err
		}
	}
	return r.Seq, nil
}

// head reads where a log ends.
func (room *room) head(tx state.Tx, log int64) (found bool, err error) {
	err = tx.Query(`SELECT size, edge FROM heads WHERE log = $1`, []any{log}, func(row state.Row) error {
		found = true
		return row.Scan(&room.size, &room.read)
	})
	if err != nil {
		return false, err
	}
	if !found {
		room.size, room.read = 0, nil
	}
	return found, room.edge.read(room.size, room.read)
}

// open reads where a log ends, and makes the head of a new one.
func (room *room) open(tx state.Tx, log int64) error {
	found, err := room.head(tx, log)
	if err == nil && !found {
		_, err = tx.Exec(`INSERT INTO heads (log, size, edge) VALUES ($1, 0, $2) ON CONFLICT (log) DO NOTHING`, log, []byte{})
	}
	return err
}

// append writes a leaf after the head that was read.
func (room *room) append(tx state.Tx, log int64, r *Record) error {
	r.Log, r.Seq = log, room.edge.size
	r.Time = r.Time.UTC().Truncate(time.Microsecond)
	// RFC 6962 hashes a zero byte and the record.
	room.record = appendRecord(append(room.record[:0], 0), r)
	hash := tlog.Hash(sha256.Sum256(room.record))
	if _, err := tx.Exec(`INSERT INTO leaves (log, seq, hash, record) VALUES ($1, $2, $3, $4)`, log, r.Seq, hash[:], room.record[1:]); err != nil {
		return err
	}
	err := room.edge.add(hash, func(level int, n int64, root tlog.Hash) error { return addTile(tx, log, level, n, root) })
	if err != nil {
		return err
	}
	room.roots = room.edge.append(room.roots[:0])
	rows, err := tx.Exec(`UPDATE heads SET size = $1, edge = $2 WHERE log = $3 AND size = $4`, room.edge.size, room.roots, log, r.Seq)
	if err == nil && rows != 1 {
		err = fmt.Errorf("log %d grew under another writer's hand", log)
	}
	return err
}

// enroll writes a record of the roster.
func (j *Journal) enroll(tx state.Tx, r *Record) error {
	room := j.room.Get().(*room)
	defer j.room.Put(room)
	// Two who write the roster at once meet here, and one of them is run again.
	if _, err := tx.Exec(`UPDATE heads SET size = size WHERE log = 0`); err != nil {
		return err
	}
	if err := room.open(tx, 0); err != nil {
		return err
	}
	if err := room.append(tx, 0, r); err != nil {
		return err
	}
	if room.edge.size%stride != 0 {
		return nil
	}
	_, err := j.keep(tx, 0, &room.edge, r.Time)
	return err
}
