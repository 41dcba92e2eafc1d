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

// Report is what a verification found.
type Report struct {
	OK bool `json:"ok"`
	// Records is how many were checked, all logs together.
	Records int64 `json:"records"`
	// Erased is how many of them have only their hash left.
	Erased int64 `json:"erased,omitempty"`
	// Signed is how many of them a checkpoint covers.
	Signed int64 `json:"signed"`
	Logs   int   `json:"logs"`
	// FirstBad is the first record that is not as it was. Where records and
	// all hashes of them were changed together, it is the first one that no
	// checkpoint vouches for any more.
	FirstBad *Position `json:"first_bad"`
	Problem  string    `json:"problem,omitempty"`
	// Key is what checkpoints were checked with.
	Key Key `json:"-"`
}

// fault is what is wrong, and where.
type fault struct {
	at      Position
	problem string
}

func (f *fault) Error() string { return f.problem }

func faultAt(log, seq int64, format string, args ...any) *fault {
	return &fault{Position{log, seq}, fmt.Sprintf(format, args...)}
}

// finish makes a fault part of the report; other errors stay errors.
func (r *Report) finish(err error) (Report, error) {
	if f, ok := errors.AsType[*fault](err); ok {
		r.FirstBad, r.Problem = &f.at, f.problem
		return *r, nil
	}
	r.OK = err == nil
	return *r, err
}

// vow is a root that somebody vouched for.
type vow struct {
	size int64
	root tlog.Hash
	// by says who: it completes "… tells of 5 records".
	by string
	// signed is whether it counts as a checkpoint.
	signed bool
}

// checker takes the records of one log, one by one, and holds them to their
// hashes and to every vow. It remembers no more than the edge of the tree.
type checker struct {
	log    int64
	vows   []vow // sorted, those still to come
	held   int64 // the size of the last vow that held
	signed int64
	erased int64
	// erasable says that records without content are accepted. Otherwise the
	// roster has to tell of them, perhaps only further on.
	erasable bool
	empty    []span
	edge     edge
	roster   *roster
	// up is called for each root of a whole tile.
	up   func(level int, n int64, root tlog.Hash) error
	room []byte
}

// span are records without content.
type span struct{ from, to int64 }

func newChecker(log int64, vows []vow, erasable bool, r *roster) (*checker, error) {
	slices.SortStableFunc(vows, func(a, b vow) int { return cmp.Compare(a.size, b.size) })
	c := &checker{log: log, vows: vows, erasable: erasable, roster: r, up: func(int, int64, tlog.Hash) error { return nil }}
	return c, c.keepVows()
}

// leaf takes the next record. A nil record was erased.
func (c *checker) leaf(seq int64, hash, record []byte) error {
	next := c.edge.size
	switch {
	case seq > next:
		return faultAt(c.log, next, "record %d of log %d is missing", next, c.log)
	case seq < next:
		return faultAt(c.log, next, "record %d of log %d comes again where %d belongs", seq, c.log, next)
	case len(hash) != tlog.HashSize:
		return faultAt(c.log, seq, "the hash of record %d of log %d is not a hash", seq, c.log)
	}
	if record == nil {
		c.erased++
		if last := len(c.empty) - 1; last >= 0 && c.empty[last].to == seq {
			c.empty[last].to++
		} else if len(c.empty) > rosterLimit/16 {
			return faultAt(c.log, seq, "the content of record %d of log %d was erased, and of too many others", seq, c.log)
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

// content checks that a record has its hash and stands in its place.
func (c *checker) content(seq int64, hash, record []byte) error {
	c.room = append(append(c.room[:0], 0), record...)
	if sum := sha256.Sum256(c.room); !bytes.Equal(sum[:], hash) {
		return faultAt(c.log, seq, "record %d of log %d was changed: it does not have its hash", seq, c.log)
	}
	c.room = appendHead(c.room[:0], c.log, seq)
	if !bytes.HasPrefix(record, c.room) {
		return faultAt(c.log, seq, "record %d of log %d belongs to another place", seq, c.log)
	}
	if c.log == 0 && c.roster != nil {
		if err := c.roster.take(record, len(c.room), &c.edge); err != nil {
			return faultAt(c.log, seq, "record %d of log %d is not a record of the roster: %v", seq, c.log, err)
		}
	}
	return nil
}

// keepVows checks those for the size that has been reached.
func (c *checker) keepVows() error {
	for len(c.vows) > 0 && c.vows[0].size == c.edge.size {
		v := c.vows[0]
		if v.root != c.edge.root() {
			if v.size == c.held {
				return faultAt(c.log, v.size, "%s contradicts another of the same size, %d records of log %d", v.by, v.size, c.log)
			}
			return faultAt(c.log, c.held, "records %d to %d of log %d are not those that %s was made of", c.held, v.size-1, c.log, v.by)
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
		return faultAt(c.log, c.edge.size, "log %d ends after %d records, but %s tells of %d", c.log, c.edge.size, v.by, v.size)
	}
	for _, s := range c.empty {
		if told := c.roster.erased[c.log]; !c.erasable && s.to > told {
			seq := max(s.from, told)
			return faultAt(c.log, seq, "the content of record %d of log %d was erased, and the journal does not tell of it", seq, c.log)
		}
	}
	return nil
}

// roster is what log 0 says about the others.
type roster struct {
	born   map[int64]bool
	vows   map[int64][]vow
	erased map[int64]int64 // up to where, of those that are believed
	told   []told
	// handovers are those that log 0 tells of.
	handovers []Handover
	size      int // how many records it had
}

func newRoster() *roster {
	return &roster{born: map[int64]bool{}, vows: map[int64][]vow{}, erased: map[int64]int64{}}
}

var kindPrefix = []byte(`"kind":"log_`)

// take reads a record of the roster; it begins as every record does, for n bytes.
// Before is what log 0 holds before it.
func (r *roster) take(record []byte, n int, before *edge) error {
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
		r.vows[ro.Log] = append(r.vows[ro.Log], vow{size: ro.Size, root: *ro.Root, by: "the roster in log 0", signed: true})
	case rec.Kind == kindHandover && rec.Handover != nil:
		h := rec.Handover
		if _, _, err := h.check(); err != nil {
			return err
		}
		r.handovers = append(r.handovers, *h)
		r.vows[h.Log] = append(r.vows[h.Log], vow{size: h.Size, root: h.Root, by: "the hand-over to another key", signed: true})
	case rec.Kind == kindErased:
		key, err := rec.Erasure.check(ro, before)
		if err != nil {
			return err
		}
		r.told = append(r.told, told{*ro, key, before.size})
	default:
		return fmt.Errorf("its kind is %q", rec.Kind)
	}
	return nil
}

// missing checks that the logs are those of the roster. logs holds every log
// that has records.
func (r *roster) missing(logs map[int64]bool) error {
	for _, log := range slices.Sorted(maps.Keys(r.born)) {
		if !logs[log] {
			return faultAt(log, 0, "log %d is gone: the roster in log 0 tells of its birth", log)
		}
	}
	for _, log := range slices.Sorted(maps.Keys(logs)) {
		if log != 0 && logs[log] && !r.born[log] {
			return faultAt(log, 0, "log %d is not in the roster in log 0", log)
		}
	}
	return nil
}
