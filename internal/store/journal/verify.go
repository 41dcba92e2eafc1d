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

// Check contains options of a verification.
type Check struct {
	// Checkpoints are notes that were stored elsewhere. The journal must match them.
	Checkpoints [][]byte
	// Key verifies an export. Without it, an export is verified with its own key, which
	// proves only that it is consistent.
	Key Key
	// Erased accepts all call records without content. Otherwise each needs an erasure in
	// the journal: any process that can write to the store can remove content.
	Erased bool
	// Progress is called now and then with the number of checked records and their total.
	// The total is 0 if it is not known.
	Progress func(done, of int64)
}

// page is the number of records in one read.
const page = 4 << 10

// Verify reads the whole journal and checks every record, hash and checkpoint. The report
// contains the problem; an error means that the journal could not be read.
func (j *Journal) Verify(ctx context.Context, want Check) (Report, error) {
	posted := j.Post(ctx)
	v := &verification{j: j, want: want, roster: newRoster()}
	v.report.Key = j.key
	report, err := v.report.finish(v.run(ctx))
	if err == nil && report.OK {
		err = posted // a damaged journal makes posting fail, and the report is more useful
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

// outline describes a log in one snapshot of the store.
type outline struct {
	head
	last int64 // the number of its last record, or -1
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
		given[c.Log] = append(given[c.Log], c.vow("the given checkpoint"))
	}
	// Everything that may grow is read in one snapshot. Records before a head never
	// change, so they are read page by page.
	var logs []outline
	err := v.j.db.Read(ctx, func(tx state.Tx) (err error) { logs, err = v.outlines(tx); return err })
	if err != nil {
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
	if err := v.roster.missing(there); err != nil { // there may be no log 0
		return err
	}
	for log, vows := range given {
		if vows[0].size > 0 {
			return faultAt(log, 0, "there is no log %d, but the given checkpoint covers %d records of it", log, vows[0].size)
		}
	}
	return nil
}

// readKeys reads the keys that may have signed the checkpoints.
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

// vows returns the hand-overs of log 0. The roster contains those of the other logs.
func (v *verification) vows(log int64) (list []vow) {
	for _, h := range v.handed {
		if h.Log == log && log == 0 {
			list = append(list, h.vow())
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
		const query = `SELECT place FROM leaves WHERE place >= $1 AND place < $2 ORDER BY place DESC LIMIT 1`
		err := tx.Query(query, []any{place(h.log, 0), place(h.log+1, 0)}, func(r state.Row) error {
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
		shift int // the number of bits below the log in the selected value
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
	// A roster of several logs is never erased: whole logs could disappear with it.
	c, err := newChecker(o.log, vows, v.want.Erased && (o.log != 0 || v.j.db.Log() == 0), v.roster)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	pages := v.pages(ctx, o)
	defer func() {
		stop()
		for range pages { // wait until the reading goroutine has ended
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
		if err := v.roster.acceptErasures(v.keys); err != nil {
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

// marks reads the stored checkpoints of a log and checks their signatures, and that none
// is missing.
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
			return faultAt(h.log, max(0, size-1),
				"the stored checkpoint of %d records of log %d was changed, or signed with another key", size, h.log)
		}
		if size == next {
			next += stride
		}
		vows = append(vows, c.vow("a stored checkpoint"))
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

// checkHead compares the head with the tree of the records.
func checkHead(o outline, c *checker) error {
	var e edge
	if e.read(o.size, o.edge) != nil {
		return faultAt(o.log, c.held, "the head of log %d is damaged", o.log)
	}
	from := int64(0)
	for i, root := range e.roots {
		if root != c.edge.roots[i] {
			first := max(from, c.held)
			return faultAt(o.log, first, "records %d to %d of log %d, or its head, were changed", first, o.size-1, o.log)
		}
		from += 1 << (63 - bits.LeadingZeros64(uint64(o.size-from)))
	}
	return nil
}

type row struct {
	seq          int64
	hash, record []byte
	// odd is set if a column has the wrong type. SQLite stores values of any type.
	odd bool
}

// pageOf is a run of records with the tiles that they complete and their index.
type pageOf struct {
	rows  []row
	tiles map[[2]int64][]byte
	index indexPage
	err   error
}

// pages reads a log ahead of the checker.
func (v *verification) pages(ctx context.Context, o outline) <-chan pageOf {
	out := make(chan pageOf, 2)
	go func() {
		defer close(out)
		for from := int64(0); from < o.size; {
			to := min(from+page, o.size)
			var p pageOf
			p.err = v.j.db.Read(ctx, func(tx state.Tx) (err error) {
				if p.tiles, err = readTiles(tx, o.log, from, to); err != nil {
					return err
				}
				if p.index, err = readIndex(tx, o.log, from, to); err != nil {
					return err
				}
				p.rows, err = collectRows(tx, o.log, from, to)
				return err
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
	const query = `SELECT place, hash, record FROM leaves WHERE place >= $1 AND place < $2 ORDER BY place`
	return tx.Query(query, []any{place(log, from), place(log, to)}, func(r state.Row) error {
		var one row
		if err := r.Scan(&one.seq, &one.hash, &one.record); err != nil {
			one.odd = true // the number was read: it is the key of the table
		}
		one.seq &= maxSeq
		return each(one)
	})
}

func collectRows(tx state.Tx, log, from, to int64) ([]row, error) {
	rows := make([]row, 0, to-from)
	err := readRows(tx, log, from, to, func(r row) error { rows = append(rows, r); return nil })
	return rows, err
}

func (j *Journal) rows(ctx context.Context, log, from, to int64) (rows []row, err error) {
	err = j.db.Read(ctx, func(tx state.Tx) (err error) { rows, err = collectRows(tx, log, from, to); return err })
	return rows, err
}

// readTiles reads the tiles whose hashes are completed by records from…to.
func readTiles(tx state.Tx, log, from, to int64) (map[[2]int64][]byte, error) {
	tiles := map[[2]int64][]byte{}
	const query = `SELECT n, hashes FROM tiles WHERE log = $1 AND level = $2 AND n >= $3 AND n <= $4`
	for level := int64(0); to>>(level*tileHeight) > 0; level++ {
		first, last := from>>(level*tileHeight), (to-1)>>(level*tileHeight) // numbers of hashes
		err := tx.Query(query, []any{log, level, first / tileWidth, last / tileWidth}, func(r state.Row) error {
			var n int64
			var hashes []byte
			if err := r.Scan(&n, &hashes); err != nil {
				return err
			}
			tiles[[2]int64{level, n}] = hashes
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return tiles, nil
}

// tileChecker compares tiles with their records.
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
		return nil // the newest leaves have no tile yet; up reports other missing tiles
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
		return faultAt(t.log, first, "records %d to %d of log %d and their hashes were changed, or a tile was", first, last, t.log)
	}
	return nil
}
