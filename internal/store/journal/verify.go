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

// Check contains the options of a verification.
type Check struct {
	// Checkpoints contains checkpoints that were kept outside the store. The journal must match them.
	Checkpoints [][]byte
	// Key verifies an export. If Key is zero, the key in the export is used. The result then shows only that the parts
	// of the export match each other.
	Key Key
	// If Erased is set, all call records without content are accepted. If Erased is not set, a call record without
	// content is accepted only if the journal records its erasure, because any process with write access to the store
	// can remove content.
	Erased bool
	// Progress is called from time to time with the number of checked records and the total number. The total is 0 if
	// it is unknown. Progress may be nil.
	Progress func(done, of int64)
}

// page is the number of records that are read at a time.
const page = 4 << 10

// Verify reads the whole journal and checks every record, hash and checkpoint. If the journal was modified, the
// report contains the first problem. An error means that the journal could not be read.
func (j *Journal) Verify(ctx context.Context, want Check) (Report, error) {
	posted := j.Post(ctx)
	v := &verification{j: j, want: want, roster: newRoster()}
	v.report.Key = j.key
	report, err := v.report.finish(v.run(ctx))
	if err == nil && report.OK {
		err = posted // if the report shows damage, the report matters more than the error from Post
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
	last   int64   // the sequence number of the last record, or -1
	claims []claim // the statements of the stored checkpoints
}

func (v *verification) run(ctx context.Context) error {
	given := map[int64][]claim{}
	if err := v.readKeys(ctx); err != nil {
		return err
	}
	for _, text := range v.want.Checkpoints {
		c, err := v.keys.open(text)
		if err != nil {
			return fmt.Errorf("the given checkpoint cannot be used: %w", err)
		}
		given[c.Log] = append(given[c.Log], c.claim("the given checkpoint"))
	}
	// Read the heads and checkpoints in one snapshot, because they can change at any time. The records up to a head
	// never change and are read page by page.
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
		claims := slices.Concat(given[o.log], v.roster.claims[o.log], o.claims, v.claims(o.log))
		delete(given, o.log)
		if err := v.checkLog(ctx, o, claims); err != nil {
			return err
		}
		if o.log == 0 {
			if err := v.roster.checkLogs(there); err != nil {
				return err
			}
			if err := v.roster.checkHandovers(v.keys, v.handed); err != nil {
				return err
			}
		}
	}
	if err := v.roster.checkLogs(there); err != nil { // the loop calls checkLogs only if log 0 exists
		return err
	}
	for log, claims := range given {
		if claims[0].size > 0 {
			return faultAt(log, 0, "log %d is missing, but the given checkpoint covers %d records", log, claims[0].size)
		}
	}
	return nil
}

// readKeys reads the handovers and determines which keys could have signed the checkpoints.
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
		err = faultAt(0, 0, "the handovers between keys were changed: %v", wrong)
	}
	return err
}

// claims returns the claims in the stored handovers of log 0. For any other log, it returns nil, because the roster
// already contains those claims.
func (v *verification) claims(log int64) (list []claim) {
	for _, h := range v.handed {
		if h.Log == log && log == 0 {
			list = append(list, h.claim())
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
		if logs[i].claims, err = v.readCheckpoints(tx, h); err != nil {
			return nil, err
		}
	}
	// Find records and checkpoints of logs that have no head.
	for _, next := range []struct {
		query string
		shift int // how many bits to shift the selected value to get the log number
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

// checkLog checks the records of one log.
func (v *verification) checkLog(ctx context.Context, o outline, claims []claim) error {
	// If there are several logs, every erasure in log 0 must be recorded, even if Erased is set. Without this rule, an
	// attacker could remove a whole log and erase its roster records.
	c, err := newChecker(o.log, claims, v.want.Erased && (o.log != 0 || v.j.db.Log() == 0), v.roster)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	pages := v.readPages(ctx, o)
	defer func() {
		stop()
		for range pages { // wait until the reading goroutine has returned
		}
	}()
	tiles, index := &tileChecker{log: o.log}, &indexChecker{log: o.log}
	c.tiles = tiles
	done := v.report.Records
	for p := range pages {
		if p.err != nil {
			return p.err
		}
		tiles.have, index.indexPage = p.tiles, p.index
		for i := range p.rows {
			row := &p.rows[i]
			if row.odd {
				return faultAt(o.log, row.seq, "record %d of log %d was replaced with a value of a different type", row.seq, o.log)
			}
			if err := tiles.checkLeaf(row); err != nil {
				return err
			}
			if err := c.checkLeaf(row.seq, row.hash, row.record); err != nil {
				return err
			}
			index.checkLeaf(row)
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
		return faultAt(o.log, o.size, "record %d of log %d was added after the end of the log", o.last, o.log)
	}
	if o.log == 0 {
		if err := v.roster.acceptErasures(v.keys); err != nil {
			return err
		}
	}
	if err := c.checkEnd(); err != nil {
		return err
	}
	if err := checkHead(o, c); err != nil || index.firstFault == nil {
		return err
	}
	return index.firstFault
}

// readCheckpoints reads the stored checkpoints of a log and checks their signatures. It fails if a required checkpoint
// is missing.
func (v *verification) readCheckpoints(tx state.Tx, h head) ([]claim, error) {
	var claims []claim
	next := int64(stride)
	const query = `SELECT size, note FROM checkpoints WHERE log = $1 ORDER BY size`
	err := tx.Query(query, []any{h.log}, func(r state.Row) error {
		var size int64
		var text []byte
		if err := r.Scan(&size, &text); err != nil {
			return err
		}
		c, err := v.keys.open(text)
		if err != nil || c.Log != h.log || c.Size != size {
			return faultAt(h.log, max(0, size-1),
				"the stored checkpoint of the first %d records of log %d was changed, or is signed with another key", size, h.log)
		}
		if size == next {
			next += stride
		}
		claims = append(claims, c.claim("a stored checkpoint"))
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case next <= h.size:
		return nil, faultAt(h.log, next-1, "the stored checkpoint of the first %d records of log %d is missing", next, h.log)
	case h.size > 0 && len(claims) == 0:
		return nil, faultAt(h.log, 0, "log %d has records but no checkpoint", h.log)
	}
	return claims, nil
}

// checkHead compares the head of a log with the tree that the checker has built from the records.
func checkHead(o outline, c *checker) error {
	var e edge
	if e.read(o.size, o.edge) != nil {
		return faultAt(o.log, c.held, "the head of log %d is damaged", o.log)
	}
	from := int64(0)
	for i, root := range e.roots {
		if root != c.edge.roots[i] {
			first := max(from, c.held)
			return faultAt(o.log, first, "records %d to %d of log %d were changed, or the head of the log was changed",
				first, o.size-1, o.log)
		}
		from += 1 << (63 - bits.LeadingZeros64(uint64(o.size-from)))
	}
	return nil
}

type row struct {
	seq          int64
	hash, record []byte
	odd          bool // whether a column has the wrong type; SQLite stores values of any type
}

// logPage is a page of records with their tiles and index entries.
type logPage struct {
	rows  []row
	tiles map[[2]int64][]byte
	index indexPage
	err   error
}

// readPages reads a log in another goroutine, so that it can read ahead of the checker.
func (v *verification) readPages(ctx context.Context, o outline) <-chan logPage {
	out := make(chan logPage, 2)
	go func() {
		defer close(out)
		for from := int64(0); from < o.size; {
			to := min(from+page, o.size)
			var p logPage
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
			one.odd = true // seq is still valid, because the primary key always has the right type
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

// readTiles reads the tiles of the records in [from, to), on all levels.
func readTiles(tx state.Tx, log, from, to int64) (map[[2]int64][]byte, error) {
	tiles := map[[2]int64][]byte{}
	const query = `SELECT n, hashes FROM tiles WHERE log = $1 AND level = $2 AND n >= $3 AND n <= $4`
	for level := int64(0); to>>(level*tileHeight) > 0; level++ {
		first, last := from>>(level*tileHeight), (to-1)>>(level*tileHeight) // these are numbers of hashes
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

// tileChecker compares tiles with the records below them.
type tileChecker struct {
	log   int64
	have  map[[2]int64][]byte
	whole []byte // the tile of the records that are being read
	n     int64  // the tile number plus one
}

func (t *tileChecker) checkLeaf(r *row) error {
	if n := r.seq/tileWidth + 1; n != t.n {
		t.n, t.whole = n, t.have[[2]int64{0, n - 1}]
	}
	if t.whole == nil {
		return nil // the newest leaves have no tile yet; checkRoot reports any other missing tile
	}
	at := int(r.seq%tileWidth) * tlog.HashSize
	if len(t.whole) != tileWidth*tlog.HashSize || !bytes.Equal(t.whole[at:at+tlog.HashSize], r.hash) {
		return faultAt(t.log, r.seq, "the hash of record %d of log %d differs from the hash in its tile", r.seq, t.log)
	}
	return nil
}

func (t *tileChecker) checkRoot(root tileRoot) error {
	level, n := root.level, root.n
	first := n << (level * tileHeight)
	if level == 1 && t.have[[2]int64{0, n}] == nil {
		return faultAt(t.log, first, "the tile of records %d to %d of log %d is missing", first, first+tileWidth-1, t.log)
	}
	tile, at := t.have[[2]int64{int64(level), n / tileWidth}], int(n%tileWidth)*tlog.HashSize
	if len(tile) < at+tlog.HashSize || !bytes.Equal(tile[at:at+tlog.HashSize], root.hash[:]) {
		last := (n+1)<<(level*tileHeight) - 1
		return faultAt(t.log, first, "records %d to %d of log %d and their hashes were changed, or a tile was changed",
			first, last, t.log)
	}
	return nil
}
