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

	"github.com/ambit-run/ambit/internal/store/journal/wal"
	"github.com/ambit-run/ambit/internal/store/state"
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

	calls   atomic.Int64 // under way
	retired atomic.Bool  // another key was seen to have taken over
	posting posting
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

		posting: posting{syncFolder: wal.SyncFolder},
	}
}

// Through lets the journal use its store by another face of it, such as one that
// counts. It is called before anything else.
func (j *Journal) Through(db state.DB) { j.db = db }

// Enter says that a call is under way, which will be recorded; leave that it is.
// Records of many calls at once are written together.
func (j *Journal) Enter() (leave func()) {
	j.calls.Add(1)
	return j.leave
}

func (j *Journal) leave() { j.calls.Add(-1) }

// Key is what the journal's checkpoints are checked with. It is no secret.
func (j *Journal) Key() Key { return j.key }

// room is what an append works in.
type room struct {
	log    int64
	edge   edge
	tiles  []tileRoot
	body   []byte
	leaves []leaf
	record []byte // of all leaves, one after the other
	was    []byte // the edge before, and after
	is     []byte
	read   []byte
	size   int64
}

// leaf is a new record: its hash, and where its bytes lie in the room.
type leaf struct {
	hash     tlog.Hash
	from, to int
}

// Append writes a record in a transaction and tells its number in the log of
// this process. It sets the record's place, and its time if that is zero.
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

// add appends records, all but the heads of which are there, and tells the number
// of the last. A checkpoint that is due between two of them is made there.
func (j *Journal) add(tx state.Tx, bodies [][]byte, now time.Time) (last int64, err error) {
	for len(bodies) > 0 {
		room, n, err := j.addSome(tx, bodies, now)
		if err != nil {
			return 0, err
		}
		bodies = bodies[n:]
		j.written.Store(true)
		if j.due(now, room.edge.size) {
			if err := j.mark(tx, room.log, &room.edge, now); err != nil {
				return 0, err
			}
		}
		last = room.edge.size - 1
		j.seen.Store(room)
	}
	return last, nil
}

// addSome appends where the log was last seen to end, and where that is no longer
// its end, where it ends now. It stops where there has to be a checkpoint.
func (j *Journal) addSome(tx state.Tx, bodies [][]byte, now time.Time) (*room, int, error) {
	log := j.db.Log()
	if room := j.seen.Swap(nil); room != nil && room.log == log {
		n := room.stop(len(bodies))
		if err := room.append(tx, log, bodies[:n]); err != errGrew {
			return room, n, err
		}
	}
	room := new(room)
	if err := room.open(tx, log); err != nil {
		return nil, 0, err
	}
	if room.edge.size == 0 && log != 0 {
		if err := j.enroll(tx, &Record{Kind: kindBorn, Time: now, Roster: &Roster{Log: log}}); err != nil {
			return nil, 0, err
		}
	}
	n := room.stop(len(bodies))
	return room, n, room.append(tx, log, bodies[:n])
}

// stop is how many of n records may follow before a checkpoint.
func (room *room) stop(n int) int {
	if room.edge.size == 0 {
		return 1
	}
	return int(min(int64(n), stride-room.edge.size%stride))
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

// append writes leaves after the edge. The head is moved first, because that
// tells whether the edge is still the log's.
func (room *room) append(tx state.Tx, log int64, bodies [][]byte) error {
	first := room.edge.size
	if first+int64(len(bodies)) > maxSeq {
		return fmt.Errorf("log %d is full", log)
	}
	if room.was == nil {
		room.was = []byte{} // an edge without roots is not NULL
	}
	room.was, room.tiles, room.leaves, room.record = room.edge.append(room.was[:0]), room.tiles[:0], room.leaves[:0], room.record[:0]
	for i, body := range bodies {
		from := len(room.record)
		// RFC 6962 hashes a zero byte and the record.
		room.record = append(appendHead(append(room.record, 0), log, first+int64(i)), body...)
		l := leaf{hash: sha256.Sum256(room.record[from:]), from: from + 1, to: len(room.record)}
		room.leaves = append(room.leaves, l)
		err := room.edge.add(l.hash, func(level int, n int64, root tlog.Hash) error {
			room.tiles = append(room.tiles, tileRoot{level: level, n: n, root: root})
			return nil
		})
		if err != nil {
			return err
		}
	}
	room.is = room.edge.append(room.is[:0])
	rows, err := tx.Exec(`UPDATE heads SET size = $1, edge = $2 WHERE log = $3 AND size = $4 AND edge = $5`, room.edge.size, room.is, log, first, room.was)
	if err == nil && rows != 1 {
		err = errGrew
	}
	if err != nil {
		return err
	}
	for i := range room.leaves {
		l := &room.leaves[i]
		if _, err := tx.Exec(`INSERT INTO leaves (place, hash, record) VALUES ($1, $2, $3)`, place(log, first+int64(i)), l.hash[:], room.record[l.from:l.to]); err != nil {
			return err
		}
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
	if r.Kind == kindErased {
		r.Erasure = j.erasure(r.Roster, &room.edge)
	}
	room.body = appendBody(room.body[:0], r)
	if err := room.append(tx, 0, [][]byte{room.body}); err != nil {
		return err
	}
	if room.edge.size%stride != 0 {
		return nil
	}
	_, err := j.keep(tx, 0, &room.edge, r.Time)
	return err
}
