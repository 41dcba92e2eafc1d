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

// Erase removes the content of records that are older than the cutoff time and returns the number of erased records. In
// each log, it starts at the first record and stops at the first record that is not older. The hashes of erased records
// are kept, so that proofs of all other records remain possible. Before the erasure, Erase appends a record to log 0
// that contains the erased range and the principal who requested the erasure. After the erasure, no file of the store
// contains the content, except the write-ahead logs of other processes, which are removed within an hour.
func (j *Journal) Erase(ctx context.Context, cutoff time.Time, principal string) (erased int64, err error) {
	// Start a new write-ahead log file, because the current file may contain the records and cannot be removed while it
	// is in use.
	j.rotateWAL()
	ends, err := j.Ends(ctx)
	if err != nil {
		return 0, err
	}
	for log, end := range ends {
		from, to, err := j.eraseRange(ctx, log, end, cutoff)
		if err != nil {
			return erased, err
		}
		if from == to {
			continue
		}
		r := &Record{Kind: kindErased, Time: j.now(), Principal: principal, Roster: &Roster{Log: log, Size: to}}
		err = j.db.Write(ctx, func(tx state.Tx) error {
			if err := j.InForce(tx); err != nil {
				return err
			}
			// Older versions of ambit used this table as an index. Delete the hashes that it contains for this log.
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
	// Scrub even if nothing was erased, because the scrub after an earlier erasure may have failed.
	return erased, j.db.Scrub(ctx)
}

// Erasure is a signed statement that Erase removed the content of records. Without the signature, any process with
// write access to the store could forge an erasure.
type Erasure struct {
	Key string `json:"key"`
	// By is a signature over the erased range and over the size and root of log 0 before this record. The statement is
	// therefore invalid at any other position and in any other journal.
	By []byte `json:"by"`
}

func (e *Erasure) text(target *Roster, before *edge) []byte {
	return fmt.Appendf(nil, "ambit journal erasure v1\n%s\n%d\n%d\n%d\n%s\n",
		e.Key, target.Log, target.Size, before.size, before.root())
}

// signErasure returns a signed statement that a log is erased up to a size. The second parameter describes log 0
// as it was before the record of the erasure was added.
func (j *Journal) signErasure(target *Roster, before *edge) *Erasure {
	e := &Erasure{Key: j.key.String()}
	e.By = ed25519.Sign(j.signer, e.text(target, before))
	return e
}

// check returns the key that signed the erasure. It returns an error if the signature is invalid.
func (e *Erasure) check(target *Roster, before *edge) (Key, error) {
	if e == nil {
		return Key{}, errors.New("the erasure is not signed")
	}
	key, err := ParseKey(e.Key)
	if err == nil && !ed25519.Verify(key.public, e.text(target, before), e.By) {
		err = errors.New("the signature on the erasure is invalid, or is for another position")
	}
	return key, err
}

// erasureRecord is an erasure that is recorded in log 0.
type erasureRecord struct {
	of  Roster
	key Key   // the key that signed the erasure
	at  int64 // the sequence number of the record in log 0
}

// acceptErasures accepts the erasures that are recorded in log 0. It fails if an erasure is not signed with the key
// that the journal used at that time.
func (r *roster) acceptErasures(k *keyring) error {
	for _, e := range r.erasures {
		if !k.inForce(e.key, 0, e.at+1) {
			return faultAt(0, e.at, "the erasure in record %d of log 0 is signed with the wrong key", e.at)
		}
		r.erased[e.of.Log] = max(r.erased[e.of.Log], e.of.Size)
	}
	return nil
}

// eraseRange returns the range of records to erase in a log. The range begins with the first record that has content.
// It ends before the first record that is not older than the limit. It also ends before a record that does not match
// its hash, because Verify must still be able to report that record.
func (j *Journal) eraseRange(ctx context.Context, log, end int64, limit time.Time) (from, to int64, err error) {
	from = -1
	s := &j.scanned
	s.Lock()
	defer s.Unlock()
	if s.before == nil {
		s.before = map[int64]int64{}
	}
	for at := s.before[log]; at < end; at += page {
		over := false
		err := j.db.Read(ctx, func(tx state.Tx) error {
			return readRows(tx, log, at, min(at+page, end), func(r row) error {
				if over || r.record == nil || isRoster(log, r) {
					return nil
				}
				var one struct{ Time time.Time }
				if hash := tlog.RecordHash(r.record); !bytes.Equal(hash[:], r.hash) ||
					json.Unmarshal(r.record, &one) != nil || !one.Time.Before(limit) {
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
		if from < 0 && at+page <= end {
			s.before[log] = at + page
		}
	}
	return max(from, 0), to, nil
}

// isRoster reports whether a record belongs to the roster, which is never erased.
func isRoster(log int64, r row) bool {
	return log == 0 && bytes.HasPrefix(r.record, append(appendHead(nil, log, r.seq), kindPrefix...))
}

// erase removes the content of the records in [from, to), except roster records. It returns the number of erased
// records.
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
