package journal

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Check says what to hold a journal to, besides itself.
type Check struct {
	// Checkpoints are notes that were kept elsewhere.
	Checkpoints [][]byte
	// Key checks an export. Without one, an export is checked with the key
	// that it carries, which proves only that it is whole.
	Key Key
	// Erased accepts every record of a call whose content was erased. Without it
	// one of which the journal does not tell is bad: anybody who can write to the
	// store can erase.
	Erased bool
	// Progress is told now and then how many records were checked, and of how
	// many, or of 0 where that is not known.
	Progress func(done, of int64)
}

// page is how many records are read at once.
const page = 4 << 10

// Verify reads the whole journal and checks every record, hash and checkpoint.
// What is wrong is in the report; an error says that it could not be read.
func (j *Journal) Verify(ctx context.Context, want Check) (Report, error) {
	posted := j.Post(ctx)
	v := &verification{j: j, want: want, roster: newRoster()}
	v.report.Key = j.key
	report, err := v.report.finish(v.run(ctx))
	if err == nil && report.OK {
		err = posted // in a damaged journal nothing can be posted
	}
	return report, err
}

type verification struct {
	j      *Journal
	want   Check
	roster *roster
	total  int64
	report Report
	keys   *keyring
	handed []Handover
}

// outline is what one snapshot of the store says about a log.
type outline struct {
	head
	last int64 // its last record's number, -1 if there is none
	vows []vow // the stored checkpoints
}

func (v *verification) run(ctx context.Context) error {
	given := map[int64][]vow{}
	if err := v.readKeys(ctx); err != nil {
		return err
	}
	for _, text := range v.want.Checkpoints {
		c, err := v.keys.open(text)
		if err != nil {
			return fmt.Errorf("the given checkpoint cannot be used: %w", err)
		}
		given[c.Log] = append(given[c.Log], vow{size: c.Size, root: c.Root, by: "the given checkpoint", signed: true})
	}
	// All that may grow is read on one snapshot. What lies before a head never
	// changes, so that it can be read bit by bit.
	var logs []outline
	if err := v.j.db.Read(ctx, func(tx state.Tx) (err error) { logs, err = v.outlines(tx); return err }); err != nil {
		return err
	}
	there := map[int64]bool{}
	for _, o := range logs {
		there[o.log] = o.size > 0
		v.total += o.size
	}
	v.report.Logs = len(logs)
	for _, o := range logs {
		vows := slices.Concat(given[o.log], v.roster.vows[o.log], o.vows, v.vows(o.log))
		delete(given, o.log)
		if err := v.log(ctx, o, vows); err != nil {
			return err
		}
		if o.log == 0 {
			if err := v.roster.missing(there); err != nil {
				return err
			}
			if err := v.roster.handedOver(v.keys, v.handed); err != nil {
				return err
			}
		}
	}
	if err := v.roster.missing(there); err != nil { // also where there is no log 0
		return err
	}
	for log, vows := range given {
		if vows[0].size > 0 {
			return faultAt(log, 0, "there is no log %d, but the given checkpoint tells of %d records", log, vows[0].size)
		}
	}
	return nil
}

// readKeys finds out which keys the checkpoints may be signed with.
func (v *verification) readKeys(ctx context.Context) error {
	var wrong error
	err := v.j.db.Read(ctx, func(tx state.Tx) (err error) {
		wrong = nil
		if v.handed, err = readHandovers(tx); err == nil {
			v.keys, wrong = newKeyring(v.j.key, v.handed)
		}
		return err
	})
	if err == nil && wrong != nil {
		err = faultAt(0, 0, "the hand-overs from key to key were changed: %v", wrong)
	}
	return err
}

// vows are what the keys said of a log when one took over from another. Those of
// other logs than 0 are also in the roster.
func (v *verification) vows(log int64) (list []vow) {
	for _, h := range v.handed {
		if h.Log == log && log == 0 {
			list = append(list, vow{size: h.Size, root: h.Root, by: "the hand-over to another key", signed: true})
		}
	}
	return list
}

func (v *verification) outlines(tx state.Tx) ([]outline, error) {
	heads, err := readHeads(tx)
	if err != nil {
		return nil, err
	}
	known := map[int64]bool{}
	logs := make([]outline, len(heads))
	for i, h := range heads {
		known[h.log] = true
		logs[i] = outline{head: h, last: -1}
		err := tx.Query(`SELECT place FROM leaves WHERE place >= $1 AND place < $2 ORDER BY place DESC LIMIT 1`, []any{place(h.log, 0), place(h.log+1, 0)},
			func(r state.Row) error {
				err := r.Scan(&logs[i].last)
				logs[i].last &= maxSeq
				return err
			})
		if err != nil {
			return nil, err
		}
		if logs[i].vows, err = v.marks(tx, h); err != nil {
			return nil, err
		}
	}
	// Records or checkpoints of a log without a head.
	for _, next := range []struct {
		query string
		shift int // what is asked for holds the log above so many bits
	}{
		{`SELECT place FROM leaves WHERE place >= $1 ORDER BY place LIMIT 1`, seqBits},
		{`SELECT log FROM checkpoints WHERE log >= $1 ORDER BY log LIMIT 1`, 0},
	} {
		for log, more := int64(-1), true; more; {
			more = false
			err := tx.Query(next.query, []any{(log + 1) << next.shift}, func(r state.Row) error {
				more = true
				err := r.Scan(&log)
				log >>= next.shift
				return err
			})
			if err != nil {
				return nil, err
			}
			if more && !known[log] {
				return nil, faultAt(log, 0, "log %d has no head", log)
			}
		}
	}
	return logs, nil
}

// log checks one log.
func (v *verification) log(ctx context.Context, o outline, vows []vow) error {
	// Where logs have a roster it is never erased: whole logs could go with it.
	c, err := newChecker(o.log, vows, v.want.Erased && (o.log != 0 || v.j.db.Log() == 0), v.roster)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	pages := v.pages(ctx, o)
	defer func() {
		stop()
		for range pages { // until nobody reads any more
		}
	}()
	tiles, index := &tileChecker{log: o.log}, &indexChecker{log: o.log}
	c.up = tiles.up
	done := v.report.Records
	for p := range pages {
		if p.err != nil {
			return p.err
		}
		tiles.have, index.indexPage = p.tiles, p.index
		for i := range p.rows {
			row := &p.rows[i]
			if row.odd {
				return faultAt(o.log, row.seq, "record %d of log %d was replaced by something else", row.seq, o.log)
			}
			if err := tiles.leaf(row); err != nil {
				return err
			}
			if err := c.leaf(row.seq, row.hash, row.record); err != nil {
				return err
			}
			index.leaf(row)
		}
		v.report.Records = done + c.edge.size
		if v.want.Progress != nil {
			v.want.Progress(v.report.Records, v.total)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	v.report.Erased += c.erased
	v.report.Signed += c.signed
	switch {
	case c.edge.size < o.size:
		return faultAt(o.log, c.edge.size, "record %d of log %d is missing", c.edge.size, o.log)
	case o.last >= o.size:
		return faultAt(o.log, o.size, "record %d of log %d was added behind its head", o.last, o.log)
	}
	if o.log == 0 {
		if err := v.roster.believe(v.keys); err != nil {
			return err
		}
	}
	if err := c.end(); err != nil {
		return err
	}
	if err := checkHead(o, c); err != nil || index.wrong == nil {
		return err
	}
	return index.wrong
}

// marks reads the stored checkpoints of a log, checks their signatures, and that
// none is missing.
func (v *verification) marks(tx state.Tx, h head) ([]vow, error) {
	var vows []vow
	next := int64(stride)
	err := tx.Query(`SELECT size, note FROM checkpoints WHERE log = $1 ORDER BY size`, []any{h.log}, func(r state.Row) error {
		var size int64
		var text []byte
		if err := r.Scan(&size, &text); err != nil {
			return err
		}
		c, err := v.keys.open(text)
		if err != nil || c.Log != h.log || c.Size != size {
			return faultAt(h.log, max(0, size-1), "the stored checkpoint of %d records of log %d was changed, or signed with another key", size, h.log)
		}
		if size == next {
			next += stride
		}
		vows = append(vows, vow{size: size, root: c.Root, by: "a stored checkpoint", signed: true})
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case next <= h.size:
		return nil, faultAt(h.log, next-1, "the stored checkpoint of %d records of log %d is missing", next, h.log)
	case h.size > 0 && len(vows) == 0:
		return nil, faultAt(h.log, 0, "log %d has records and no checkpoint", h.log)
	}
	return vows, nil
}

// checkHead compares the head with what the records come to.
func checkHead(o outline, c *checker) error {
	var e edge
	if e.read(o.size, o.edge) != nil {
		return faultAt(o.log, c.held, "the head of log %d is damaged", o.log)
	}
	from := int64(0)
	for i, root := range e.roots {
		if root != c.edge.roots[i] {
			return faultAt(o.log, max(from, c.held), "records %d to %d of log %d, or its head, were changed", max(from, c.held), o.size-1, o.log)
		}
		from += 1 << (63 - bits.LeadingZeros64(uint64(o.size-from)))
	}
	return nil
}

type row struct {
	seq          int64
	hash, record []byte
	// odd says that what stands in a column is of the wrong type: SQLite keeps
	// what it is given.
	odd bool
}

// pageOf is a run of records with the tiles that they complete and their index.
type pageOf struct {
	rows  []row
	tiles map[[2]int64][]byte
	index indexPage
	err   error
}

// pages reads a log ahead of whoever checks it.
func (v *verification) pages(ctx context.Context, o outline) <-chan pageOf {
	out := make(chan pageOf, 2)
	go func() {
		defer close(out)
		for from := int64(0); from < o.size; {
			to := min(from+page, o.size)
			p := pageOf{rows: make([]row, 0, to-from)}
			p.err = v.j.db.Read(ctx, func(tx state.Tx) (err error) {
				p.rows = p.rows[:0]
				if p.tiles, err = readTiles(tx, o.log, from, to); err != nil {
					return err
				}
				if p.index, err = readIndex(tx, o.log, from, to); err != nil {
					return err
				}
				return readRows(tx, o.log, from, to, func(r row) error { p.rows = append(p.rows, r); return nil })
			})
			select {
			case out <- p:
			case <-ctx.Done():
				return
			}
			if p.err != nil {
				return
			}
			from = to
		}
	}()
	return out
}

func readRows(tx state.Tx, log, from, to int64, each func(row) error) error {
	return tx.Query(`SELECT place, hash, record FROM leaves WHERE place >= $1 AND place < $2 ORDER BY place`, []any{place(log, from), place(log, to)},
		func(r state.Row) error {
			var one row
			if err := r.Scan(&one.seq, &one.hash, &one.record); err != nil {
				one.odd = true // the number is that of the key, and was read
			}
			one.seq &= maxSeq
			return each(one)
		})
}

// readTiles reads those whose hashes are completed by records from…to.
func readTiles(tx state.Tx, log, from, to int64) (map[[2]int64][]byte, error) {
	tiles := map[[2]int64][]byte{}
	read := func(level, a, b int64) error { // a and b number its hashes
		return tx.Query(`SELECT n, hashes FROM tiles WHERE log = $1 AND level = $2 AND n >= $3 AND n <= $4`, []any{log, level, a / tileWidth, b / tileWidth},
			func(r state.Row) error {
				var n int64
				var hashes []byte
				if err := r.Scan(&n, &hashes); err != nil {
					return err
				}
				tiles[[2]int64{level, n}] = hashes
				return nil
			})
	}
	for level := int64(0); to>>(level*tileHeight) > 0; level++ {
		if err := read(level, from>>(level*tileHeight), (to-1)>>(level*tileHeight)); err != nil {
			return nil, err
		}
	}
	return tiles, nil
}

// tileChecker compares tiles with the records they stand for.
type tileChecker struct {
	log  int64
	have map[[2]int64][]byte
	// whole is the tile of leaves being read, and n its number plus one.
	whole []byte
	n     int64
}

func (t *tileChecker) leaf(r *row) error {
	if n := r.seq/tileWidth + 1; n != t.n {
		t.n, t.whole = n, t.have[[2]int64{0, n - 1}]
	}
	if t.whole == nil {
		return nil // the newest leaves, or up finds it missing
	}
	at := int(r.seq%tileWidth) * tlog.HashSize
	if len(t.whole) != tileWidth*tlog.HashSize || !bytes.Equal(t.whole[at:at+tlog.HashSize], r.hash) {
		return faultAt(t.log, r.seq, "the hash of record %d of log %d is not the one in its tile", r.seq, t.log)
	}
	return nil
}

func (t *tileChecker) up(level int, n int64, root tlog.Hash) error {
	first := n << (level * tileHeight)
	if level == 1 && t.have[[2]int64{0, n}] == nil {
		return faultAt(t.log, first, "the tile of records %d to %d of log %d is missing", first, first+tileWidth-1, t.log)
	}
	tile, at := t.have[[2]int64{int64(level), n / tileWidth}], int(n%tileWidth)*tlog.HashSize
	if len(tile) < at+tlog.HashSize || !bytes.Equal(tile[at:at+tlog.HashSize], root[:]) {
		last := (n+1)<<(level*tileHeight) - 1
		return faultAt(t.log, first, "records %d to %d of log %d were changed together with their hashes, or a tile was", first, last, t.log)
	}
	return nil
}
