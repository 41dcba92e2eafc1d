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

	// seen is where this process has last seen the log end. It is taken out
	// for an append, which finds out whether the log still ends there.
	seen atomic.Pointer[room]
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
	log    int64
	edge   edge
	tiles  []tileRoot
	record []byte
	was    []byte // the edge before, and after
	is     []byte
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
	room, err := j.add(tx, r, now)
	if err != nil {
		return 0, err
	}
	j.written.Store(true)
	if j.due(now, room.edge.size) {
		if err := j.mark(tx, room.log, &room.edge, now); err != nil {
			return 0, err
		}
	}
	j.seen.Store(room)
	return r.Seq, nil
}

// add appends where the log was last seen to end, and where that is no longer
// its end, where it ends now.
func (j *Journal) add(tx state.Tx, r *Record, now time.Time) (*room, error) {
	log := j.db.Log()
	if room := j.seen.Swap(nil); room != nil && room.log == log {
		if err := room.append(tx, log, r); err != errGrew {
			return room, err
		}
	}
	room := new(room)
	if err := room.open(tx, log); err != nil {
		return nil, err
	}
	if room.edge.size == 0 && log != 0 {
		if err := j.enroll(tx, &Record{Kind: kindBorn, Time: now, Roster: &Roster{Log: log}}); err != nil {
			return nil, err
		}
	}
	return room, room.append(tx, log, r)
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
	room.log = log
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

// errGrew says that a log does not end where it was believed to.
var errGrew = errors.New("the log grew under another writer's hand")

// append writes a leaf after the edge. The head is moved first, because that
// tells whether the edge is still the log's.
func (room *room) append(tx state.Tx, log int64, r *Record) error {
	r.Log, r.Seq = log, room.edge.size
	if r.Seq > maxSeq {
		return fmt.Errorf("log %d is full", log)
	}
	r.Time = r.Time.UTC().Truncate(time.Microsecond)
	// RFC 6962 hashes a zero byte and the record.
	room.record = appendRecord(append(room.record[:0], 0), r)
	hash := tlog.Hash(sha256.Sum256(room.record))
	if room.was == nil {
		room.was = []byte{} // an edge without roots is not NULL
	}
	room.was, room.tiles = room.edge.append(room.was[:0]), room.tiles[:0]
	err := room.edge.add(hash, func(level int, n int64, root tlog.Hash) error {
		room.tiles = append(room.tiles, tileRoot{level, n, root})
		return nil
	})
	if err != nil {
		return err
	}
	room.is = room.edge.append(room.is[:0])
	rows, err := tx.Exec(`UPDATE heads SET size = $1, edge = $2 WHERE log = $3 AND size = $4 AND edge = $5`, room.edge.size, room.is, log, r.Seq, room.was)
	if err == nil && rows != 1 {
		err = errGrew
	}
	if err != nil {
		return err
	}
	if _, err := tx.Exec(`INSERT INTO leaves (place, hash, record) VALUES ($1, $2, $3)`, place(log, r.Seq), hash[:], room.record[1:]); err != nil {
		return err
	}
	for _, t := range room.tiles {
		if err := addTile(tx, log, t.level, t.n, t.root); err != nil {
			return err
		}
	}
	return nil
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
