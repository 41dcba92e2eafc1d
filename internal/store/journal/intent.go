package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Intent is a row of the table calls. A gateway stores the intent of a call with effects before it sends the call.
type Intent struct {
	Call, Agent, Digest, Tool, Principal, Idem string
	// Sealed contains the arguments if the call can be sent again; otherwise it is nil.
	Sealed []byte
	// Record is the draft of the journal record, made by [Draft].
	Record []byte
	// Started is when the call began, in microseconds since 1970.
	Started int64
}

// Content returns one string with all values of the row that never change.
func (i *Intent) Content() string {
	return fmt.Sprintf("%q", []string{i.Call, i.Agent, i.Digest, i.Tool, i.Principal, i.Idem, string(i.Record)})
}

// SetMAC sets the function that computes the MAC of an intent's content. The MAC proves that ambit wrote the row.
func (j *Journal) SetMAC(mac func(content []byte) []byte) { j.mac = mac }

// Draft encodes a record that has no outcome yet.
func Draft(r *Record) []byte {
	return appendBody(append(make([]byte, 0, 1024), '{'), r)
}

const insertCall = `INSERT INTO calls
	(id, agent, digest, tool, principal, state, owner, idem, sealed, record, started, mac)
VALUES ($1, $2, $3, $4, $5, 'sending', $6, $7, $8, $9, $10, $11)`

// InsertIntent inserts the intent of a call that this process makes.
func (j *Journal) InsertIntent(tx state.Tx, i *Intent) error {
	_, err := tx.Exec(insertCall, j.row(i, j.db.Owner())...)
	return err
}

func (j *Journal) row(i *Intent, owner string) []any {
	var sealed any // a nil []byte is not NULL in every engine
	if i.Sealed != nil {
		sealed = i.Sealed
	}
	return []any{
		i.Call, i.Agent, i.Digest, i.Tool, i.Principal, owner, i.Idem, sealed, i.Record, i.Started,
		j.mac([]byte(i.Content())),
	}
}

// An entry of the write-ahead log begins with one of these bytes, unless it is the record of a call without an intent.
// Such a record begins with a quote. After the byte follow the call's id, and the other values of the intent or the
// record of the outcome. Each string begins with its length. The record is last, so it has no length.
const (
	intentEntry  = 'i'
	outcomeEntry = 'o'
)

// ErrNotLogged means that the write-ahead log cannot take an intent. The caller can insert the intent in a transaction.
var ErrNotLogged = errors.New("the intent cannot be written to the write-ahead log")

// NoteIntent writes an intent to the write-ahead log. When NoteIntent returns nil, the intent is on disk. The row in the
// table calls follows when the log is posted, unless NoteOutcome has recorded the outcome by then.
func (j *Journal) NoteIntent(i *Intent) error {
	p := &j.posting
	if p.writer.Load() == nil || p.stuck.Load() || i.Idem != "" || i.Sealed != nil {
		return ErrNotLogged
	}
	entry := append(make([]byte, 0, 1024), intentEntry)
	for _, s := range []string{i.Call, i.Agent, i.Digest, i.Tool, i.Principal} {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			return ErrNotLogged // the store would refuse the row, and no later entry could be posted
		}
		entry = appendValue(entry, s)
	}
	return j.noteEntry(append(binary.AppendVarint(entry, i.Started), i.Record...))
}

func appendValue(entry []byte, s string) []byte {
	return append(binary.AppendUvarint(entry, uint64(len(s))), s...)
}

// value decodes the string at the beginning of an entry, and returns the string and the rest of the entry.
func value(entry []byte) (s string, rest []byte, err error) {
	n, size := binary.Uvarint(entry)
	if size <= 0 || n > uint64(len(entry)-size) {
		return "", nil, errCorrupt
	}
	return string(entry[size : size+int(n)]), entry[size+int(n):], nil
}

// readIntent decodes the part of an intent's entry that follows the call's id.
func readIntent(id string, rest []byte) (i *Intent, err error) {
	i = &Intent{Call: id}
	for _, to := range []*string{&i.Agent, &i.Digest, &i.Tool, &i.Principal} {
		if *to, rest, err = value(rest); err != nil {
			return nil, err
		}
	}
	started, size := binary.Varint(rest)
	if size <= 0 {
		return nil, errCorrupt
	}
	i.Started, i.Record = started, rest[size:]
	return i, nil
}

// NoteOutcome writes the record of a call whose intent is in the write-ahead log. Posting the record removes the intent.
// When NoteOutcome returns nil, the record is on disk.
func (j *Journal) NoteOutcome(r *Record) error {
	entry := appendValue(append(make([]byte, 0, 1024), outcomeEntry), r.Call)
	return j.noteEntry(appendBody(entry, r))
}

func (j *Journal) noteEntry(entry []byte) error {
	err := j.posting.writer.Load().Write(entry, int(j.calls.Load())-1)
	if err == nil {
		j.schedulePost(postTime)
	}
	return err
}

// applyIntents inserts and deletes rows of the table calls for the intents and outcomes in the entries of a write-ahead
// log, and returns the records in the entries. An intent whose outcome is also in the entries never becomes a row.
func (j *Journal) applyIntents(tx state.Tx, owner string, entries [][]byte) (records [][]byte, err error) {
	var order []string
	open := map[string][]byte{}
	for _, e := range entries {
		if e[0] != intentEntry && e[0] != outcomeEntry {
			records = append(records, e)
			continue
		}
		id, rest, err := value(e[1:])
		if err != nil {
			return nil, err
		}
		if e[0] == intentEntry {
			order, open[id] = append(order, id), rest
			continue
		}
		records = append(records, rest)
		if _, ok := open[id]; ok {
			delete(open, id)
		} else if _, err := tx.Exec(`DELETE FROM calls WHERE id = $1`, id); err != nil {
			return nil, err
		}
	}
	for _, id := range order {
		rest, ok := open[id]
		if !ok {
			continue
		}
		i, err := readIntent(id, rest)
		if err != nil {
			return nil, err
		}
		// The row already exists if NoteIntent returned an error although the log contains the intent. In this case, the
		// caller inserted the intent itself.
		if _, err := tx.Exec(insertCall+` ON CONFLICT (id) DO NOTHING`, j.row(i, owner)...); err != nil {
			return nil, err
		}
	}
	return records, nil
}
