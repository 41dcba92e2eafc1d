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
	// Records counts the checked records of all logs.
	Records int64 `json:"records"`
	// Erased counts the records of which only the hash is left.
	Erased int64 `json:"erased,omitempty"`
	// Signed counts the records that a checkpoint covers.
	Signed int64 `json:"signed"`
	Logs   int   `json:"logs"`
	// FirstBad is the first modified record. If records were changed together with all of
	// their hashes, it is the first record that no checkpoint confirms.
	FirstBad *Position `json:"first_bad"`
	Problem  string    `json:"problem,omitempty"`
	// Key is the key that checkpoints were checked with.
	Key Key `json:"-"`
}

// fault is a problem with its position.
type fault struct {
	at      Position
	problem string
}

func (f *fault) Error() string { return f.problem }

func faultAt(log, seq int64, format string, args ...any) *fault {
	return &fault{Position{log, seq}, fmt.Sprintf(format, args...)}
}

// finish adds a fault to the report. It returns other errors unchanged.
func (r *Report) finish(err error) (Report, error) {
	if f, ok := errors.AsType[*fault](err); ok {
		r.FirstBad, r.Problem = &f.at, f.problem
		return *r, nil
	}
	r.OK = err == nil
	return *r, err
}

// vow is a signed statement about the root of a log at some size.
type vow struct {
	size int64
	root tlog.Hash
	by   string // what made the statement, for messages
	// signed is whether it counts as a checkpoint.
	signed bool
}

// checker checks the records of one log, one by one, against their hashes and every vow.
// It keeps only the edge of the tree in memory.
type checker struct {
	log    int64
	vows   []vow // sorted; those not reached yet
	held   int64 // the size of the last vow that was confirmed
	signed int64
	erased int64
	// erasable accepts all records without content. Otherwise the roster must contain
	// their erasure, possibly in a later record.
	erasable bool
	empty    []span
	edge     edge
	roster   *roster
	// up is called for each root of a whole tile.
	up     func(level int, n int64, root tlog.Hash) error
	buffer []byte
}

// span is a range of records without content.
type span struct{ from, to int64 }

func newChecker(log int64, vows []vow, erasable bool, r *roster) (*checker, error) {
	slices.SortStableFunc(vows, func(a, b vow) int { return cmp.Compare(a.size, b.size) })
	up := func(int, int64, tlog.Hash) error { return nil }
	c := &checker{log: log, vows: vows, erasable: erasable, roster: r, up: up}
	return c, c.keepVows()
}

// leaf checks the next record. A nil record was erased.
func (c *checker) leaf(seq int64, hash, record []byte) error {
	next := c.edge.size
	switch {
	case seq > next:
		return faultAt(c.log, next, "record %d of log %d is missing", next, c.log)
	case seq < next:
		return faultAt(c.log, next, "record %d of log %d is repeated in place of record %d", seq, c.log, next)
	case len(hash) != tlog.HashSize:
		return faultAt(c.log, seq, "the hash of record %d of log %d is not a hash", seq, c.log)
	}
	if record == nil {
		c.erased++
		if last := len(c.empty) - 1; last >= 0 && c.empty[last].to == seq {
			c.empty[last].to++
		} else if len(c.empty) > rosterLimit/16 {
			return faultAt(c.log, seq, "record %d of log %d and too many others have no content", seq, c.log)
		} else {
			c.empty = append(c.empty, span{seq, seq + 1})
		}
	} else if err := c.content(seq, hash, record); err != nil {
		return err
	}
	if err := c.edge.add(tlog.Hash(hash), c.up); err != nil {
		return err
	}
	return c.keepVows()
}

// content checks that a record matches its hash and is in its place.
func (c *checker) content(seq int64, hash, record []byte) error {
	c.buffer = append(append(c.buffer[:0], 0), record...)
	if sum := sha256.Sum256(c.buffer); !bytes.Equal(sum[:], hash) {
		return faultAt(c.log, seq, "record %d of log %d was changed: it does not match its hash", seq, c.log)
	}
	c.buffer = appendHead(c.buffer[:0], c.log, seq)
	if !bytes.HasPrefix(record, c.buffer) {
		return faultAt(c.log, seq, "record %d of log %d belongs to another place", seq, c.log)
	}
	if c.log == 0 && c.roster != nil {
		if err := c.roster.add(record, len(c.buffer), &c.edge); err != nil {
			return faultAt(c.log, seq, "record %d of log %d is not a record of the roster: %v", seq, c.log, err)
		}
	}
	return nil
}

// keepVows checks the vows for the current size.
func (c *checker) keepVows() error {
	for len(c.vows) > 0 && c.vows[0].size == c.edge.size {
		v := c.vows[0]
		if v.root != c.edge.root() {
			if v.size == c.held {
				return faultAt(c.log, v.size, "%s contradicts another one for the first %d records of log %d",
					v.by, v.size, c.log)
			}
			return faultAt(c.log, c.held, "records %d to %d of log %d do not match %s", c.held, v.size-1, c.log, v.by)
		}
		c.held = v.size
		if v.signed {
			c.signed = v.size
		}
		c.vows = c.vows[1:]
	}
	return nil
}

// end is called after the last record.
func (c *checker) end() error {
	if len(c.vows) > 0 {
		v := c.vows[len(c.vows)-1]
		return faultAt(c.log, c.edge.size, "log %d ends after %d records, but %s covers %d",
			c.log, c.edge.size, v.by, v.size)
	}
	for _, s := range c.empty {
		if end := c.roster.erased[c.log]; !c.erasable && s.to > end {
			seq := max(s.from, end)
			return faultAt(c.log, seq, "record %d of log %d has no content, and the journal contains no erasure of it",
				seq, c.log)
		}
	}
	return nil
}

// roster contains what log 0 records about the other logs.
type roster struct {
	born      map[int64]bool
	vows      map[int64][]vow
	erased    map[int64]int64 // log to the end of its accepted erasures
	erasures  []erasureRecord
	handovers []Handover
	size      int // number of records
}

func newRoster() *roster {
	return &roster{born: map[int64]bool{}, vows: map[int64][]vow{}, erased: map[int64]int64{}}
}

var kindPrefix = []byte(`"kind":"log_`)

// add reads a record of the roster. Its head has n bytes; before is the tree of log 0
// without the record.
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
		return errors.New("it names no log")
	case rec.Kind == kindBorn:
		r.born[ro.Log] = true
	case rec.Kind == kindCheckpoint && ro.Root != nil:
		v := vow{size: ro.Size, root: *ro.Root, by: "the roster in log 0", signed: true}
		r.vows[ro.Log] = append(r.vows[ro.Log], v)
	case rec.Kind == kindHandover && rec.Handover != nil:
		h := rec.Handover
		if _, _, err := h.check(); err != nil {
			return err
		}
		r.handovers = append(r.handovers, *h)
		r.vows[h.Log] = append(r.vows[h.Log], h.vow())
	case rec.Kind == kindErased:
		key, err := rec.Erasure.check(ro, before)
		if err != nil {
			return err
		}
		r.erasures = append(r.erasures, erasureRecord{*ro, key, before.size})
	default:
		return fmt.Errorf("its kind is %q", rec.Kind)
	}
	return nil
}

// missing checks that the logs with records are exactly those of the roster.
func (r *roster) missing(logs map[int64]bool) error {
	for _, log := range slices.Sorted(maps.Keys(r.born)) {
		if !logs[log] {
			return faultAt(log, 0, "log %d is missing: the roster in log 0 records its birth", log)
		}
	}
	for _, log := range slices.Sorted(maps.Keys(logs)) {
		if log != 0 && logs[log] && !r.born[log] {
			return faultAt(log, 0, "log %d is not in the roster in log 0", log)
		}
	}
	return nil
}
