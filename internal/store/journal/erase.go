package journal

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Erase removes the content of records older than a time: from the start of each log up
// to the first newer record. It returns the number of erased records. Their hashes stay,
// so that everything else can still be proven. Before the erasure, log 0 gets a record of
// its extent and its author. Afterwards no file of the store contains the content, except
// the write-ahead log of another process, which is removed within an hour.
func (j *Journal) Erase(ctx context.Context, before time.Time, by string) (erased int64, err error) {
	// The current write-ahead log still contains posted records, and is not removed while
	// it is in use.
	j.rotateWAL()
	ends, err := j.Ends(ctx)
	if err != nil {
		return 0, err
	}
	for log, end := range ends {
		from, to, err := j.older(ctx, log, end, before)
		if err != nil {
			return erased, err
		}
		if from == to {
			continue
		}
		r := &Record{Kind: kindErased, Time: j.now(), Principal: by, Roster: &Roster{Log: log, Size: to}}
		err = j.db.Write(ctx, func(tx state.Tx) error {
			if err := j.InForce(tx); err != nil {
				return err
			}
			// An older ambit stored hashes of values in this table.
			if _, err := tx.Exec(`DELETE FROM words WHERE log = $1`, log); err != nil {
				return err
			}
			return j.enroll(tx, r)
		})
		if err != nil {
			return erased, err
		}
		for ; from < to; from += page {
			n, err := j.erase(ctx, log, from, min(from+page, to))
			erased += n
			if err != nil {
				return erased, err
			}
		}
	}
	// Scrub even if nothing was erased: an earlier scrub may have failed.
	return erased, j.db.Scrub(ctx)
}

// Erasure is a signed statement that the journal itself erased records. Without the
// signature, any process that can write to the store could erase records and append a
// record of the erasure.
type Erasure struct {
	Key string `json:"key"`
	// By is a signature over the extent of the erasure and all earlier content of log 0:
	// the statement is invalid at another place or in another journal.
	By []byte `json:"by"`
}

func (e *Erasure) text(of *Roster, before *edge) []byte {
	return fmt.Appendf(nil, "ambit journal erasure v1\n%s\n%d\n%d\n%d\n%s\n",
		e.Key, of.Log, of.Size, before.size, before.root())
}

// erasure signs that a log was erased up to a size.
func (j *Journal) erasure(of *Roster, before *edge) *Erasure {
	e := &Erasure{Key: j.key.String()}
	e.By = ed25519.Sign(j.signer, e.text(of, before))
	return e
}

// check returns the key if its signature is valid.
func (e *Erasure) check(of *Roster, before *edge) (Key, error) {
	if e == nil {
		return Key{}, errors.New("the erasure is not signed")
	}
	key, err := ParseKey(e.Key)
	if err == nil && !ed25519.Verify(key.public, e.text(of, before), e.By) {
		err = errors.New("the erasure is not signed by its key, or not at this place")
	}
	return key, err
}

// erasureRecord is an erasure that log 0 records.
type erasureRecord struct {
	of  Roster
	key Key
	at  int64
}

// acceptErasures accepts the erasures that log 0 records, if each was signed by a key
// that was in force at the time.
func (r *roster) acceptErasures(k *keyring) error {
	for _, e := range r.erasures {
		if !k.inForce(e.key, 0, e.at+1) {
			return faultAt(0, e.at, "record %d of log 0 is an erasure that no key in force at the time signed", e.at)
		}
		r.erased[e.of.Log] = max(r.erased[e.of.Log], e.of.Size)
	}
	return nil
}

// older finds the records of a log that have content and precede the first newer record.
// from equals to if there are none. A record that does not match its hash counts as
// newer: it was changed, and Verify must still find it.
func (j *Journal) older(ctx context.Context, log, end int64, before time.Time) (from, to int64, err error) {
	from = -1
	for at := int64(0); at < end; at += page {
		over := false
		err := j.db.Read(ctx, func(tx state.Tx) error {
			return readRows(tx, log, at, min(at+page, end), func(r row) error {
				if over || r.record == nil || isRoster(log, r) {
					return nil
				}
				var one struct{ Time time.Time }
				if hash := tlog.RecordHash(r.record); !bytes.Equal(hash[:], r.hash) ||
					json.Unmarshal(r.record, &one) != nil || !one.Time.Before(before) {
					over = true
					return nil
				}
				if from < 0 {
					from = r.seq
				}
				to = r.seq + 1
				return nil
			})
		})
		if err != nil || over {
			return max(from, 0), to, err
		}
	}
	return max(from, 0), to, nil
}

// isRoster reports whether a record belongs to the roster, which is never erased.
func isRoster(log int64, r row) bool {
	return log == 0 && bytes.HasPrefix(r.record, append(appendHead(nil, log, r.seq), kindPrefix...))
}

// erase removes the content of a page of records.
func (j *Journal) erase(ctx context.Context, log, from, to int64) (n int64, err error) {
	err = j.db.Write(ctx, func(tx state.Tx) error {
		n = 0
		stays := []int64{}
		err := readRows(tx, log, from, to, func(r row) error {
			if isRoster(log, r) {
				stays = append(stays, r.seq)
			}
			return nil
		})
		if err != nil {
			return err
		}
		next := from
		for _, stay := range append(stays, to) {
			rows, err := tx.Exec(`UPDATE leaves SET record = NULL WHERE place >= $1 AND place < $2
				AND record IS NOT NULL`, place(log, next), place(log, stay))
			if err != nil {
				return err
			}
			n += rows
			next = stay + 1
		}
		return reindex(tx, log, from/blockSize, (to+blockSize-1)/blockSize)
	})
	return n, err
}
