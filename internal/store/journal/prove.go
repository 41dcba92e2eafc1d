package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// The kinds of proofs.
const (
	// Inclusion proves that a record is in the tree of a checkpoint.
	Inclusion = "inclusion"
	// Consistency proves that the records of an older checkpoint are the first records of a newer checkpoint.
	Consistency = "consistency"
)

// Proof is a proof of inclusion or consistency. Checking a proof requires only the journal's key and not the journal.
type Proof struct {
	Proves string `json:"proves"`
	Log    int64  `json:"log"`
	// Seq, Hash, Record and Erased are set in a proof of inclusion. The hash covers the exact bytes of the record.
	// Record is a string, because tools might reformat a JSON object and so change its bytes.
	Seq    int64      `json:"seq"`
	Hash   *tlog.Hash `json:"hash,omitempty"`
	Record *string    `json:"record,omitempty"`
	Erased bool       `json:"erased,omitempty"`
	// Older is the older checkpoint in a proof of consistency.
	Older string `json:"older,omitempty"`

	// Handovers contains the handovers between the key that the verifier trusts and the key that signed the checkpoint.
	Handovers []Handover `json:"handovers,omitempty"`

	Path       []tlog.Hash `json:"path"`
	Checkpoint string      `json:"checkpoint"`
	// Key is the key that the journal had when the proof was made. A verifier must not trust it.
	Key string `json:"key"`
}

// Proven describes what a valid proof proves.
type Proven struct {
	Proves string
	Log    int64
	// Size is the number of records that the checkpoint covers. In a proof of consistency, Older is the number of
	// records that the older checkpoint covers.
	Size, Older int64
	// Entry is the record in a proof of inclusion.
	Entry Entry
	Key   Key
}

// Prove returns a proof that a record is in the journal.
func (j *Journal) Prove(ctx context.Context, log, seq int64) (*Proof, error) {
	var p *Proof
	build := func(tx state.Tx) error {
		mark, err := newestMark(tx, log)
		if err != nil {
			return err
		}
		if mark == nil || seq < 0 || mark.Size <= seq {
			return ErrNoRecord
		}
		var r *row
		err = readRows(tx, log, seq, seq+1, func(one row) error { r = &one; return nil })
		if err != nil {
			return err
		}
		if r == nil || r.odd || len(r.hash) != tlog.HashSize {
			return errUnprovable
		}
		hash := tlog.Hash(r.hash)
		path, err := tlog.ProveRecord(mark.Size, seq, newNodeReader(tx, log))
		if err != nil {
			return err
		}
		p = &Proof{
			Proves: Inclusion, Log: log, Seq: seq, Hash: &hash, Path: path,
			Checkpoint: string(mark.Note), Key: j.key.String(),
		}
		if p.Handovers, err = handoversOf(tx, log); err != nil {
			return err
		}
		if p.Erased = r.record == nil; !p.Erased {
			text := string(r.record)
			p.Record = &text
		}
		return nil
	}
	err := j.db.Read(ctx, build)
	if errors.Is(err, ErrNoRecord) {
		// The record may be newer than the last checkpoint.
		if ends, e := j.Ends(ctx); e != nil || seq < 0 || seq >= ends[log] {
			return nil, errors.Join(ErrNoRecord, e)
		}
		if _, err = j.Checkpoint(ctx); err == nil {
			err = j.db.Read(ctx, build)
		}
	}
	return j.checked(p, err)
}

// ProveSince returns a proof that the records of an older checkpoint are the first records of the current journal.
func (j *Journal) ProveSince(ctx context.Context, older []byte) (*Proof, error) {
	var old Checkpoint
	err := j.db.Read(ctx, func(tx state.Tx) error {
		keys, _, err := j.keyring(tx)
		if err == nil {
			old, err = keys.open(older)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := j.Checkpoint(ctx); err != nil {
		return nil, err
	}
	var p *Proof
	err = j.db.Read(ctx, func(tx state.Tx) error {
		mark, err := newestMark(tx, old.Log)
		if err != nil {
			return err
		}
		if mark == nil || mark.Size < old.Size {
			return fmt.Errorf("the given checkpoint covers %d records of log %d, but the log is now shorter",
				old.Size, old.Log)
		}
		path := tlog.TreeProof{}
		if old.Size > 0 {
			if path, err = tlog.ProveTree(mark.Size, old.Size, newNodeReader(tx, old.Log)); err != nil {
				return err
			}
		}
		p = &Proof{
			Proves: Consistency, Log: old.Log, Older: string(older), Path: path,
			Checkpoint: string(mark.Note), Key: j.key.String(),
		}
		p.Handovers, err = handoversOf(tx, old.Log)
		return err
	})
	return j.checked(p, err)
}

var errUnprovable = errors.New("the journal was modified, so there is no proof; to check, run: ambit journal verify")

// checked returns p if p is a valid proof. Otherwise, it returns an error.
func (j *Journal) checked(p *Proof, err error) (*Proof, error) {
	if err != nil {
		return nil, err
	}
	if _, err := p.check(j.key); err != nil {
		return nil, errUnprovable
	}
	return p, nil
}

func handoversOf(tx state.Tx, log int64) ([]Handover, error) {
	list, err := readHandovers(tx)
	return slices.DeleteFunc(list, func(h Handover) bool { return h.Log != log }), err
}

func newestMark(tx state.Tx, log int64) (c *Checkpoint, err error) {
	const query = `SELECT size, note FROM checkpoints WHERE log = $1 ORDER BY size DESC LIMIT 1`
	err = tx.Query(query, []any{log}, func(r state.Row) error {
		c = &Checkpoint{Log: log}
		return r.Scan(&c.Size, &c.Note)
	})
	return c, err
}

// proofLimit is the maximum size of a proof in bytes.
const proofLimit = 4 * MaxRecord

// VerifyProof checks a proof in JSON. It needs no store and works on any machine. If the key is zero, VerifyProof uses
// the key in the proof. The result then shows only that the parts of the proof match each other.
func VerifyProof(text []byte, key Key) (*Proven, error) {
	var p Proof
	if len(text) > proofLimit {
		return nil, fmt.Errorf("this is not a proof: it has %d bytes, and the limit is %d", len(text), proofLimit)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("this is not a proof: %w", err)
	}
	if key.IsZero() {
		var err error
		if key, err = ParseKey(p.Key); err != nil {
			return nil, err
		}
	}
	return p.check(key)
}

func (p *Proof) check(key Key) (*Proven, error) {
	keys, err := newKeyring(key, p.Handovers)
	if err != nil {
		return nil, err
	}
	mark, err := keys.open([]byte(p.Checkpoint))
	if err != nil {
		return nil, err
	}
	if mark.Log != p.Log {
		return nil, fmt.Errorf("the proof is for log %d, but its checkpoint is for log %d", p.Log, mark.Log)
	}
	out := &Proven{Proves: p.Proves, Log: p.Log, Size: mark.Size, Key: key}
	switch p.Proves {
	case Inclusion:
		err = p.checkInclusion(mark, out)
	case Consistency:
		err = p.checkConsistency(keys, mark, out)
	default:
		err = fmt.Errorf("the proof has the unknown kind %q", p.Proves)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (p *Proof) checkInclusion(mark Checkpoint, out *Proven) error {
	if p.Hash == nil || (p.Record == nil) != p.Erased {
		return errors.New("the proof must contain a hash, and either a record or \"erased\": true")
	}
	out.Entry = Entry{Record: Record{Log: p.Log, Seq: p.Seq}, Hash: *p.Hash, Erased: p.Erased}
	if !p.Erased {
		// Verify makes the same checks.
		c := &checker{log: p.Log}
		if err := c.checkContent(p.Seq, p.Hash[:], []byte(*p.Record)); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(*p.Record), &out.Entry.Record); err != nil {
			return err
		}
	}
	if err := tlog.CheckRecord(p.Path, mark.Size, mark.Root, p.Seq, *p.Hash); err != nil {
		return fmt.Errorf("the proof does not show that the record is at position %d of log %d", p.Seq, p.Log)
	}
	return nil
}

func (p *Proof) checkConsistency(keys *keyring, mark Checkpoint, out *Proven) error {
	old, err := keys.open([]byte(p.Older))
	if err != nil {
		return err
	}
	out.Older = old.Size
	switch {
	case old.Log != mark.Log:
		return fmt.Errorf("the checkpoints in the proof are for different logs: %d and %d", old.Log, mark.Log)
	case old.Size == 0:
		return nil
	}
	if err := tlog.CheckTree(p.Path, mark.Size, mark.Root, old.Size, old.Root); err != nil {
		return fmt.Errorf("the older checkpoint (%d records) does not match the first records of the newer one (%d records)",
			old.Size, mark.Size)
	}
	return nil
}
