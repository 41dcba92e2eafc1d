package journal

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Report is the result of a verification.
type Report struct {
	OK bool `json:"ok"`
	// Records is the number of checked records in all logs.
	Records int64 `json:"records"`
	// Erased is the number of erased records. Only the hash of an erased record is left.
	Erased int64 `json:"erased,omitempty"`
	// Signed is the number of records that a checkpoint covers.
	Signed int64 `json:"signed"`
	Logs   int   `json:"logs"`
	// FirstBad is the position of the first modified record. If an attacker changed records together with their
	// hashes, FirstBad is the position of the first record that no checkpoint confirms.
	FirstBad *Position `json:"first_bad"`
	Problem  string    `json:"problem,omitempty"`
	// Key is the key with which the checkpoints were verified.
	Key Key `json:"-"`
}

// fault is a problem at a position in the journal.
type fault struct {
	at      Position
	problem string
}

func (f *fault) Error() string { return f.problem }

func faultAt(log, seq int64, format string, args ...any) *fault {
	return &fault{Position{log, seq}, fmt.Sprintf(format, args...)}
}

// finish returns the report. A fault becomes part of the report. Any other error is returned.
func (r *Report) finish(err error) (Report, error) {
	if f, ok := errors.AsType[*fault](err); ok {
		r.FirstBad, r.Problem = &f.at, f.problem
		return *r, nil
	}
	r.OK = err == nil
	return *r, err
}

// claim is a statement about the root hash that a log had at a certain size.
type claim struct {
	size   int64
	root   tlog.Hash
	by     string // the source of the claim, for messages
	signed bool   // whether Report.Signed includes the records that the claim covers
}

// checker checks the records of one log in order. It compares each record with its hash, and the tree of the records
// with every claim. Only the edge of the tree is kept in memory.
type checker struct {
	log    int64
	claims []claim // the claims about sizes that are not reached yet, sorted by size
	held   int64   // the size of the last confirmed claim
	signed int64   // the number of records that a checkpoint covers
	erased int64   // the number of records without content
	// If erasable is set, every record without content is accepted. Otherwise, the roster must list the erasure of each
	// record without content. In log 0, the checker reads an erased record before it reads the erasure.
	erasable bool
	empty    []span // the ranges of records without content
	edge     edge
	roster   *roster
	tiles    *tileChecker // nil for an export, which has no tiles
	buffer   []byte
}

// span is the range [from, to) of consecutive records without content.
type span struct{ from, to int64 }

func newChecker(log int64, claims []claim, erasable bool, r *roster) (*checker, error) {
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Compare(a.size, b.size) })
	c := &checker{log: log, claims: claims, erasable: erasable, roster: r}
	return c, c.checkClaims()
}

// checkLeaf checks the next record. A record without content is passed as nil.
func (c *checker) checkLeaf(seq int64, hash, record []byte) error {
	next := c.edge.size
	switch {
	case seq > next:
		return faultAt(c.log, next, "record %d of log %d is missing", next, c.log)
	case seq < next:
		return faultAt(c.log, next, "record %d of log %d appears again where record %d should be", seq, c.log, next)
	case len(hash) != tlog.HashSize:
		return faultAt(c.log, seq, "the hash of record %d of log %d has the wrong length", seq, c.log)
	}
	if record == nil {
		c.erased++
		if last := len(c.empty) - 1; last >= 0 && c.empty[last].to == seq {
			c.empty[last].to++
		} else if len(c.empty) > rosterLimit/16 {
			return faultAt(c.log, seq,
				"too many ranges of records have no content: the limit is exceeded at record %d of log %d", seq, c.log)
		} else {
			c.empty = append(c.empty, span{seq, seq + 1})
		}
	} else if err := c.checkContent(seq, hash, record); err != nil {
		return err
	}
	for _, root := range c.edge.add(tlog.Hash(hash)) {
		if c.tiles == nil {
			break
		}
		if err := c.tiles.checkRoot(root); err != nil {
			return err
		}
	}
	return c.checkClaims()
}

// checkContent checks that a record matches its hash and contains its own position.
func (c *checker) checkContent(seq int64, hash, record []byte) error {
	c.buffer = append(append(c.buffer[:0], 0), record...)
	if sum := sha256.Sum256(c.buffer); !bytes.Equal(sum[:], hash) {
		return faultAt(c.log, seq, "record %d of log %d was changed: it does not match its hash", seq, c.log)
	}
	c.buffer = appendHead(c.buffer[:0], c.log, seq)
	if !bytes.HasPrefix(record, c.buffer) {
		return faultAt(c.log, seq, "record %d of log %d was moved: its content names a different position", seq, c.log)
	}
	if c.log == 0 && c.roster != nil {
		if err := c.roster.add(record, len(c.buffer), &c.edge); err != nil {
			return faultAt(c.log, seq, "record %d of log %d is not a valid roster record: %v", seq, c.log, err)
		}
	}
	return nil
}

// checkClaims checks the claims whose size is the number of records checked so far. It removes the confirmed claims
// from c.claims.
func (c *checker) checkClaims() error {
	for len(c.claims) > 0 && c.claims[0].size == c.edge.size {
		v := c.claims[0]
		if v.root != c.edge.root() {
			if v.size == c.held {
				return faultAt(c.log, v.size, "%s differs from another checkpoint of the first %d records of log %d",
					v.by, v.size, c.log)
			}
			return faultAt(c.log, c.held, "records %d to %d of log %d do not match %s", c.held, v.size-1, c.log, v.by)
		}
		c.held = v.size
		if v.signed {
			c.signed = v.size
		}
		c.claims = c.claims[1:]
	}
	return nil
}

// checkEnd must be called after the last record. It checks that no claim covers more records than the log has, and that
// all erasures are recorded.
func (c *checker) checkEnd() error {
	if len(c.claims) > 0 {
		v := c.claims[len(c.claims)-1]
		return faultAt(c.log, c.edge.size, "log %d ends after %d records, but %s covers %d records",
			c.log, c.edge.size, v.by, v.size)
	}
	for _, s := range c.empty {
		if end := c.roster.erased[c.log]; !c.erasable && s.to > end {
			seq := max(s.from, end)
			return faultAt(c.log, seq, "record %d of log %d has no content, but the journal does not record its erasure",
				seq, c.log)
		}
	}
	return nil
}

// roster contains the information that log 0 stores about all logs.
type roster struct {
	born      map[int64]bool    // the logs with a log_born record
	claims    map[int64][]claim // the checkpoints and handovers of each log
	erased    map[int64]int64   // for each log, the size up to which erasures are accepted
	erasures  []erasureRecord
	handovers []Handover
	size      int // the number of roster records
}

func newRoster() *roster {
	return &roster{born: map[int64]bool{}, claims: map[int64][]claim{}, erased: map[int64]int64{}}
}

var kindPrefix = []byte(`"kind":"log_`)

// add reads a record of log 0. It ignores records that are not roster records. The first n bytes of the record are its
// head. The last parameter represents the tree of all earlier records in log 0.
func (r *roster) add(record []byte, n int, before *edge) error {
	if !bytes.HasPrefix(record[n:], kindPrefix) {
		return nil
	}
	var rec Record
	if err := json.Unmarshal(record, &rec); err != nil {
		return err
	}
	r.size++
	switch ro := rec.Roster; {
	case ro == nil:
		return errors.New("the record does not contain a log number")
	case rec.Kind == kindBorn:
		r.born[ro.Log] = true
	case rec.Kind == kindCheckpoint && ro.Root != nil:
		v := claim{size: ro.Size, root: *ro.Root, by: "the roster in log 0", signed: true}
		r.claims[ro.Log] = append(r.claims[ro.Log], v)
	case rec.Kind == kindHandover && rec.Handover != nil:
		h := rec.Handover
		if _, _, err := h.check(); err != nil {
			return err
		}
		r.handovers = append(r.handovers, *h)
		r.claims[h.Log] = append(r.claims[h.Log], h.claim())
	case rec.Kind == kindErased:
		key, err := rec.Erasure.check(ro, before)
		if err != nil {
			return err
		}
		r.erasures = append(r.erasures, erasureRecord{*ro, key, before.size})
	default:
		return fmt.Errorf("the kind %q is unknown, or the record lacks fields that this kind requires", rec.Kind)
	}
	return nil
}

// checkLogs checks that the roster lists exactly the logs that have records.
func (r *roster) checkLogs(logs map[int64]bool) error {
	for _, log := range slices.Sorted(maps.Keys(r.born)) {
		if !logs[log] {
			return faultAt(log, 0, "log %d is missing, but the roster in log 0 lists it", log)
		}
	}
	for _, log := range slices.Sorted(maps.Keys(logs)) {
		if log != 0 && logs[log] && !r.born[log] {
			return faultAt(log, 0, "log %d is not listed in the roster of log 0", log)
		}
	}
	return nil
}
