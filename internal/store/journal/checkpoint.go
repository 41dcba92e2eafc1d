package journal

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	// stride is the number of records between two required checkpoints. There is a checkpoint at every multiple of
	// stride.
	stride = 4096
	// checkpointInterval is the maximum time between checkpoints. If a process has made no checkpoint for this time,
	// its next append makes one.
	checkpointInterval = time.Minute
)

// Key is the public key that verifies the checkpoints of one journal. Its string form is a verifier key of the
// package golang.org/x/mod/sumdb/note.
type Key struct {
	name   string
	public ed25519.PublicKey
}

var errKey = errors.New("this is not a journal key: a key has the format NAME+HASH+KEY")

// ParseKey parses the string form of a key.
func ParseKey(s string) (Key, error) {
	s = strings.TrimSpace(s)
	v, err := note.NewVerifier(s)
	if err != nil {
		return Key{}, errKey
	}
	// NewVerifier has validated s, but the returned verifier does not expose the public key.
	parts := strings.SplitN(s, "+", 3) // the base64 of the key can also contain "+"
	raw, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(raw) != 1+ed25519.PublicKeySize {
		return Key{}, errKey
	}
	return Key{v.Name(), raw[1:]}, nil
}

// KeyOf returns the key of the journal that has the given signer and name.
func KeyOf(signer ed25519.PrivateKey, name string) Key {
	return Key{name: name, public: signer.Public().(ed25519.PublicKey)}
}

func (k Key) String() string {
	if k.public == nil {
		return ""
	}
	s, err := note.NewEd25519VerifierKey(k.name, k.public)
	if err != nil {
		return ""
	}
	return s
}

// IsZero reports whether the key is unset.
func (k Key) IsZero() bool { return k.public == nil }

// IsOf reports whether k has the given public key.
func (k Key) IsOf(signer ed25519.PublicKey) bool { return k.public.Equal(signer) }

// Equal reports whether two keys are the same.
func (k Key) Equal(other Key) bool { return k.name == other.name && k.public.Equal(other.public) }

func (k Key) origin(log int64) string { return k.name + "/log/" + strconv.FormatInt(log, 10) }

func (k Key) verifier(log int64) (note.Verifier, error) {
	s, err := note.NewEd25519VerifierKey(k.origin(log), k.public)
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(s)
}

// Checkpoint is a signed note and its content.
type Checkpoint struct {
	Log  int64
	Size int64
	Root tlog.Hash
	Note []byte
}

var errNote = errors.New("this is not a checkpoint of a journal")

// maxNote is the maximum size of a checkpoint in bytes. It leaves space for the signatures of witnesses.
const maxNote = 64 << 10

// readNote parses a checkpoint without checking its signature. The second result is the name of the journal.
func readNote(text []byte) (c Checkpoint, name string, err error) {
	if len(text) > maxNote {
		return c, "", errNote
	}
	lines := strings.SplitN(string(text), "\n", 4)
	if len(lines) < 4 {
		return c, "", errNote
	}
	name, number, ok := cutLast(lines[0], "/log/")
	log, err1 := strconv.ParseInt(number, 10, 64)
	size, err2 := strconv.ParseInt(lines[1], 10, 64)
	root, err3 := tlog.ParseHash(lines[2])
	if !ok || errors.Join(err1, err2, err3) != nil || log < 0 || size < 0 ||
		number != strconv.FormatInt(log, 10) || lines[1] != strconv.FormatInt(size, 10) {
		return c, "", errNote
	}
	return Checkpoint{Log: log, Size: size, Root: root, Note: text}, name, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Open parses a checkpoint and verifies that this key signed it.
func (k Key) Open(text []byte) (Checkpoint, error) {
	c, name, err := readNote(text)
	if err != nil {
		return c, err
	}
	if name != k.name {
		return c, fmt.Errorf("the checkpoint belongs to the journal %q, not to %q", name, k.name)
	}
	v, err := k.verifier(c.Log)
	if err != nil {
		return c, err
	}
	if _, err := note.Open(text, note.VerifierList(v)); err != nil {
		return c, errors.New("the checkpoint is not signed by this journal's key")
	}
	return c, nil
}

// noteSigner signs the checkpoints of one log.
type noteSigner struct {
	note.Verifier
	key ed25519.PrivateKey
}

func (s noteSigner) Sign(text []byte) ([]byte, error) { return ed25519.Sign(s.key, text), nil }

func (j *Journal) sign(log, size int64, root tlog.Hash) ([]byte, error) {
	v, err := j.key.verifier(log)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%s\n%d\n%s\n", j.key.origin(log), size, root)
	return note.Sign(&note.Note{Text: text}, noteSigner{v, j.signer})
}

// checkpointDue reports whether an append must make a checkpoint. The given size of the log includes the appended
// records. The first record of a log always gets a checkpoint, because Verify rejects a log without checkpoints.
func (j *Journal) checkpointDue(now time.Time, size int64) bool {
	return size == 1 || size%stride == 0 || now.UnixMicro()-j.marked.Load() >= checkpointInterval.Microseconds()
}

// mark makes a checkpoint of a log. If the log is not log 0, the checkpoint is also recorded in log 0, and log 0 gets a
// new checkpoint too.
func (j *Journal) mark(tx state.Tx, log int64, e *edge, now time.Time) error {
	if log == 0 {
		_, err := j.storeCheckpoint(tx, 0, e, now)
		return err
	}
	if err := j.markOther(tx, log, e, now); err != nil {
		return err
	}
	_, err := j.markRoster(tx, now)
	return err
}

func (j *Journal) markOther(tx state.Tx, log int64, e *edge, now time.Time) error {
	root := e.root()
	r := &Record{Kind: kindCheckpoint, Time: now, Roster: &Roster{Log: log, Size: e.size, Root: &root}}
	if err := j.enroll(tx, r); err != nil {
		return err
	}
	_, err := j.storeCheckpoint(tx, log, e, now)
	return err
}

func (j *Journal) markRoster(tx state.Tx, now time.Time) ([]byte, error) {
	var a appender
	if err := a.open(tx, 0); err != nil {
		return nil, err
	}
	return j.storeCheckpoint(tx, 0, &a.edge, now)
}

// storeCheckpoint signs and stores a checkpoint of a log. It returns the signed note.
func (j *Journal) storeCheckpoint(tx state.Tx, log int64, e *edge, now time.Time) ([]byte, error) {
	if err := j.InForce(tx); err != nil {
		return nil, err
	}
	text, err := j.sign(log, e.size, e.root())
	if err != nil {
		return nil, err
	}
	if err := forget(tx, log, e.size, now); err != nil {
		return nil, err
	}
	_, err = tx.Exec(`INSERT INTO checkpoints (log, size, note, made) VALUES ($1, $2, $3, $4)
		ON CONFLICT (log, size) DO NOTHING`, log, e.size, text, now.UnixMicro())
	j.marked.Store(now.UnixMicro())
	return text, err
}

// forget deletes the previous checkpoint of a log if it was made in the same minute as the new checkpoint. A checkpoint
// whose size is a multiple of stride is kept.
func forget(tx state.Tx, log, size int64, now time.Time) error {
	last, made, err := lastMark(tx, log)
	minute := checkpointInterval.Microseconds()
	if err != nil || last <= 0 || last >= size || last%stride == 0 || made/minute != now.UnixMicro()/minute {
		return err
	}
	_, err = tx.Exec(`DELETE FROM checkpoints WHERE log = $1 AND size = $2`, log, last)
	return err
}

// lastMark returns the size and time of a log's last checkpoint. The size is -1 if the log has no checkpoint.
func lastMark(tx state.Tx, log int64) (size, made int64, err error) {
	size = -1
	err = tx.Query(`SELECT size, made FROM checkpoints WHERE log = $1 ORDER BY size DESC LIMIT 1`, []any{log},
		func(r state.Row) error { return r.Scan(&size, &made) })
	return size, made, err
}

// Checkpoint makes a checkpoint of every log. It returns the checkpoint of log 0, which covers all logs. Callers should
// keep a copy of the returned checkpoint outside the store.
func (j *Journal) Checkpoint(ctx context.Context) (text []byte, err error) {
	if err := j.Post(ctx); err != nil {
		return nil, err
	}
	// Read the heads in a separate transaction. Every process updates its head, so a write transaction that reads all
	// heads would often conflict with other writers.
	var unsigned []head
	err = j.db.Read(ctx, func(tx state.Tx) error {
		unsigned = nil
		heads, err := readHeads(tx)
		if err != nil {
			return err
		}
		for _, h := range heads {
			last, _, err := lastMark(tx, h.log)
			if err != nil {
				return err
			}
			if h.log != 0 && h.size > last && h.size > 0 {
				unsigned = append(unsigned, h)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = j.db.Write(ctx, func(tx state.Tx) error {
		now := j.now()
		for _, h := range unsigned {
			var e edge
			if err := e.read(h.size, h.edge); err != nil {
				return err
			}
			if err := j.markOther(tx, h.log, &e, now); err != nil {
				return err
			}
		}
		text, err = j.markRoster(tx, now)
		return err
	})
	return text, err
}

// Close posts the entries in this process's write-ahead log and makes a checkpoint if records were appended since the
// last checkpoint. If another key has replaced the key of this process, Close leaves both tasks to processes with the
// new key. Close does not close the store.
func (j *Journal) Close(ctx context.Context) error {
	if err := j.closeWAL(ctx); err != nil || !j.written.Load() {
		return err
	}
	var a appender
	var behind bool
	look := func(tx state.Tx) error {
		if _, err := a.head(tx, j.db.Log()); err != nil {
			return err
		}
		last, _, err := lastMark(tx, j.db.Log())
		behind = last < a.edge.size
		return err
	}
	if err := j.db.Read(ctx, look); err != nil || !behind {
		return err
	}
	return unlessHandedOver(j.db.Write(ctx, func(tx state.Tx) error {
		if err := look(tx); err != nil || !behind {
			return err
		}
		return j.mark(tx, j.db.Log(), &a.edge, j.now())
	}))
}

func unlessHandedOver(err error) error {
	if errors.Is(err, ErrHandedOver) {
		return nil
	}
	return err
}

type head struct {
	log, size int64
	edge      []byte
}

func readHeads(tx state.Tx) (heads []head, err error) {
	err = tx.Query(`SELECT log, size, edge FROM heads ORDER BY log`, nil, func(r state.Row) error {
		var h head
		if err := r.Scan(&h.log, &h.size, &h.edge); err != nil {
			return err
		}
		heads = append(heads, h)
		return nil
	})
	return heads, err
}
