package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Filter selects records. Empty fields match every record.
type Filter struct {
	// Agent is the name, id or digest of an agent. Tool is the name or URI of a tool.
	Agent, Tool, Principal, Call, Code string
	Decision                           Decision
	Since, Until                       time.Time
	// If Unknown is set, the filter matches only calls whose outcome is still unknown.
	Unknown bool
	// Limit is the maximum number of records to return. Zero means 100.
	Limit int
	// If Before is not nil, only the first Before[log] records of each log can match.
	Before Ends
}

// Ends contains the number of records in each log.
type Ends map[int64]int64

const (
	defaultLimit = 100
	// Records can be out of order by at most maxSkew, for example because the clocks of two machines differ.
	maxSkew = 24 * time.Hour
)

// matcher matches records against a filter.
type matcher struct {
	Filter
	// texts are the JSON strings that a matching record must contain. Searching for the strings is faster than
	// decoding the record.
	texts  [][]byte
	lookup lookup
	// If calls is not nil, the filter matches only calls with these ids.
	calls map[string]bool
}

func (f Filter) compile() *matcher {
	c := &matcher{Filter: f, lookup: f.lookup()}
	for _, s := range []string{f.Agent, f.Tool, f.Principal, f.Call, f.Code, string(f.Decision)} {
		if s != "" {
			c.texts = append(c.texts, appendString(nil, s))
		}
	}
	return c
}

// entry decodes a record. The second result reports whether the filter matches the record.
func (c *matcher) entry(log int64, r row) (e Entry, ok bool) {
	e = Entry{Record: Record{Log: log, Seq: r.seq}, Erased: r.record == nil && !r.odd}
	if len(r.hash) == tlog.HashSize {
		e.Hash = tlog.Hash(r.hash)
	}
	if e.Erased {
		return e, len(c.texts) == 0 && c.calls == nil && c.Since.IsZero() && c.Until.IsZero()
	}
	for _, t := range c.texts {
		if !bytes.Contains(r.record, t) {
			return e, false
		}
	}
	if r.odd || json.Unmarshal(r.record, &e.Record) != nil {
		// Damaged records are listed too. Verify reports the damage.
		e.Record = Record{Log: log, Seq: r.seq, Kind: kindUnreadable}
		return e, len(c.texts) == 0 && c.calls == nil
	}
	e.Log, e.Seq = log, r.seq
	shown := e.Kind == "" || e.Kind == kindErased || e.Kind == kindHandover
	return e, shown && (c.calls == nil || c.calls[e.Call]) && c.matches(&e)
}

func (f *Filter) matches(e *Entry) bool {
	return is(f.Agent, e.Agent, e.ID, e.Digest) && is(f.Tool, e.Tool, e.URI) && is(f.Principal, e.Principal) &&
		is(f.Call, e.Call) && is(f.Code, e.Code) && is(string(f.Decision), string(e.Decision)) &&
		(f.Since.IsZero() || !e.Time.Before(f.Since)) && (f.Until.IsZero() || !e.Time.After(f.Until))
}

func is(want string, have ...string) bool { return want == "" || slices.Contains(have, want) }

// Show returns the newest records that match a filter, newest first.
func (j *Journal) Show(ctx context.Context, f Filter) ([]Entry, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	if err := j.Post(ctx); err != nil {
		return nil, err
	}
	if f.Unknown {
		return j.unknownCalls(ctx, f)
	}
	return j.newest(ctx, f.compile())
}

func (j *Journal) newest(ctx context.Context, c *matcher) ([]Entry, error) {
	ends, err := j.ends(ctx)
	if err != nil {
		return nil, err
	}
	var logs []*backwardReader
	for log, size := range ends {
		if c.Before != nil {
			size = min(size, c.Before[log])
		}
		err := j.db.Read(ctx, func(tx state.Tx) (err error) { size, err = c.searchEnd(tx, log, size); return err })
		if err != nil {
			return nil, err
		}
		logs = append(logs, &backwardReader{j: j, log: log, next: size, c: c})
	}
	var out []Entry
	for len(out) < c.Limit {
		var newest *backwardReader
		for _, l := range logs {
			if err := l.fill(ctx); err != nil {
				return nil, err
			}
			if len(l.found) > 0 && (newest == nil || l.found[0].Time.After(newest.found[0].Time)) {
				newest = l
			}
		}
		if newest == nil {
			break
		}
		out = append(out, newest.found[0])
		newest.found = newest.found[1:]
	}
	return out, nil
}

// backwardReader reads a log from its end to its start.
type backwardReader struct {
	j     *Journal
	log   int64
	next  int64 // the end of the records that are not read yet
	size  int64 // the number of records that were requested in the last read
	c     *matcher
	found []Entry // the matches that are not returned yet, newest first
	stuck bool    // true if the index cannot be extended; unindexed blocks must then be read
}

// fill reads records until at least one matches or no records are left.
func (b *backwardReader) fill(ctx context.Context) error {
	for len(b.found) == 0 && b.next > 0 {
		from, err := b.nextStart(ctx)
		if err != nil || from == b.next {
			return err
		}
		rows, err := b.j.rows(ctx, b.log, from, b.next)
		if err != nil {
			return err
		}
		b.next = from
		for _, r := range slices.Backward(rows) {
			if e, ok := b.c.entry(b.log, r); ok {
				b.found = append(b.found, e)
			}
		}
		if len(rows) > 0 && b.c.tooOld(rows[0].record) {
			b.next = 0
		}
	}
	return nil
}

// nextStart returns the position at which the next read starts. The read ends at b.next. nextStart first uses the index
// to move b.next back over records that cannot match. If no records are left, it returns b.next.
func (b *backwardReader) nextStart(ctx context.Context) (int64, error) {
	if b.c.lookup.empty() {
		// Begin with Limit records, and double the number with each read until enough records match.
		b.size = min(max(int64(b.c.Limit), 2*b.size), page)
		return max(0, b.next-b.size), nil
	}
	if over := b.next % blockSize; over != 0 {
		return b.next - over, nil
	}
	n := b.next / blockSize
	found, err := b.lastMatch(ctx, n)
	// While neighboring blocks match, read more blocks in each step.
	if found+1 == n {
		b.size = min(max(blockSize, 2*b.size), page)
	} else {
		b.size = blockSize
	}
	b.next = (found + 1) * blockSize
	return max(0, b.next-b.size), err
}

// lastMatch returns the last block before block n that may contain a match, or -1. It also indexes blocks that an older
// version of ambit wrote.
func (b *backwardReader) lastMatch(ctx context.Context, n int64) (found int64, err error) {
	for {
		var first, next int64
		err = b.j.db.Read(ctx, func(tx state.Tx) (err error) {
			if first, next, err = indexedBlocks(tx, b.log); err == nil && n <= next {
				found, err = b.c.lookup.lastBlock(tx, b.log, first, n)
			}
			return err
		})
		indexed := n <= next
		switch {
		case err != nil:
			return -1, err
		case indexed && (found >= 0 || first == 0):
			return found, nil
		case indexed:
			n = min(n, first)
		}
		if b.stuck {
			return n - 1, nil
		}
		b.stuck = b.j.backfill(ctx, b.log) != nil
	}
}

// searchEnd returns how many of the first n records of a log must be searched. All later records are newer than Until.
// searchEnd reads the last record of each block, newest block first. A binary search would be wrong: if a clock was
// ahead, an old record can follow a record that seems newer.
func (c *matcher) searchEnd(tx state.Tx, log, n int64) (int64, error) {
	if c.Until.IsZero() {
		return n, nil
	}
	newest := c.Until.Add(maxSkew)
	end := n
	for at := n; at > 0; at = (at - 1) / blockSize * blockSize {
		var r struct{ Time time.Time }
		err := readRows(tx, log, at-1, at, func(one row) error {
			// An unreadable record gets the zero time. The loop then ends, and Show lists the record.
			if json.Unmarshal(one.record, &r) != nil {
				r.Time = time.Time{}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		if !r.Time.After(newest) {
			break
		}
		end = at // earlier records of this block may be old enough
	}
	return end, nil
}

// tooOld reports whether a record and all records before it are older than Since.
func (c *matcher) tooOld(record []byte) bool {
	var r struct{ Time time.Time }
	return !c.Since.IsZero() && json.Unmarshal(record, &r) == nil && r.Time.Before(c.Since.Add(-maxSkew))
}

// unknownCalls returns the calls with an unknown outcome. If the journal has no record of a call, the entry comes from
// the calls table.
func (j *Journal) unknownCalls(ctx context.Context, f Filter) ([]Entry, error) {
	var open []Entry
	err := j.db.Read(ctx, func(tx state.Tx) error {
		open = open[:0]
		const query = `SELECT id, agent, digest, tool, principal, started FROM calls
			WHERE state = 'unknown' ORDER BY started DESC, id`
		return tx.Query(query, nil, func(r state.Row) error {
			e := Entry{Record: Record{Seq: -1, Decision: Unknown}}
			var started int64
			if err := r.Scan(&e.Call, &e.Agent, &e.Digest, &e.Tool, &e.Principal, &started); err != nil {
				return err
			}
			e.Time = time.UnixMicro(started).UTC()
			open = append(open, e)
			return nil
		})
	})
	if err != nil || len(open) == 0 {
		return nil, err
	}
	since := open[len(open)-1].Time.Add(-maxSkew)
	c := Filter{Decision: Unknown, Since: since, Limit: len(open), Before: f.Before}.compile()
	c.calls = make(map[string]bool, len(open))
	for _, e := range open {
		c.calls[e.Call] = true
	}
	journaled, err := j.newest(ctx, c)
	if err != nil {
		return nil, err
	}
	records := make(map[string]Entry, len(journaled))
	for _, e := range journaled {
		if _, ok := records[e.Call]; !ok {
			records[e.Call] = e
		}
	}
	var out []Entry
	for _, e := range open {
		if r, ok := records[e.Call]; ok {
			e = r
		}
		if f.matches(&e) && len(out) < f.Limit {
			out = append(out, e)
		}
	}
	return out, nil
}

// Ends returns the current end of every log.
func (j *Journal) Ends(ctx context.Context) (Ends, error) {
	if err := j.Post(ctx); err != nil {
		return nil, err
	}
	return j.ends(ctx)
}

func (j *Journal) ends(ctx context.Context) (Ends, error) {
	var ends Ends
	err := j.db.Read(ctx, func(tx state.Tx) error {
		heads, err := readHeads(tx)
		ends = make(Ends, len(heads))
		for _, h := range heads {
			ends[h.log] = h.size
		}
		return err
	})
	return ends, err
}

// Follow calls f for each matching record after the start position, oldest first. It returns when the context is done
// or f returns an error.
func (j *Journal) Follow(ctx context.Context, start Ends, filter Filter, f func(Entry) error) error {
	if err := j.Post(ctx); err != nil {
		return err
	}
	c, at := filter.compile(), Ends{}
	maps.Copy(at, start)
	for {
		ends, err := j.ends(ctx)
		if err != nil {
			return err
		}
		for log, end := range ends {
			if err := j.visitRange(ctx, log, at[log], end, c, f); err != nil {
				return err
			}
			at[log] = end
		}
		if err := j.db.Changed(ctx); err != nil {
			return err
		}
	}
}

// visitRange calls f for each matching record with a sequence number in [from, to).
func (j *Journal) visitRange(ctx context.Context, log, from, to int64, c *matcher, f func(Entry) error) error {
	for ; from < to; from += page {
		rows, err := j.rows(ctx, log, from, min(from+page, to))
		if err != nil {
			return err
		}
		for _, r := range rows {
			if e, ok := c.entry(log, r); ok {
				if err := f(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
