package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/fnv"
	"slices"

	"github.com/ambit-run/ambit/internal/store/state"
)

// A block is the unit of the index. It consists of the records of one tile.
const (
	blockSize = tileWidth
	// backfillBlocks is the number of blocks that backfill indexes in one transaction.
	backfillBlocks = 16
)

// These are the kinds of indexed values. Several record fields can have the same kind. For example, Filter.Agent can
// be a name, an id or a digest.
const (
	kindCall = iota
	kindAgent
	kindPrincipal
	kindTool
	kindDecision
	kindCode
)

// indexedFields lists the record fields that filters compare, in the order in which appendBody writes them.
var indexedFields = [...]struct {
	kind     byte
	key      []byte
	optional bool
}{
	{kindCall, []byte(`,"call":`), false},
	{kindAgent, []byte(`,"agent":`), false},
	{kindAgent, []byte(`,"id":`), false},
	{kindAgent, []byte(`,"digest":`), false},
	{kindPrincipal, []byte(`,"principal":`), false},
	{kindTool, []byte(`,"tool":`), false},
	{kindTool, []byte(`,"uri":`), true},
	{kindDecision, []byte(`,"decision":`), false},
	{kindCode, []byte(`,"code":`), true},
}

// fieldValues contains the values of one record's indexedFields, as JSON.
type fieldValues [len(indexedFields)][]byte

// read finds the values in a record without decoding the JSON. It searches for each key together with the quotes around
// it. No JSON string contains a quoted key, because quotes inside a JSON string are escaped. The arguments could
// contain the same keys, but they come after the indexed fields. An optional field, if present, directly follows the
// previous indexed field.
func (v *fieldValues) read(record []byte) {
	rest := record
	for i, f := range indexedFields {
		v[i] = nil
		if f.optional && !bytes.HasPrefix(rest, f.key) {
			continue
		}
		at := bytes.Index(rest, f.key)
		if at >= 0 {
			v[i], rest = cutString(rest[at+len(f.key):])
		}
		if v[i] == nil {
			v.decode(record)
			return
		}
	}
}

// decode finds the values in a record that does not have the format of appendBody.
func (v *fieldValues) decode(record []byte) {
	var r Record
	*v = fieldValues{}
	if json.Unmarshal(record, &r) != nil {
		return // a record that cannot be decoded has no indexed values
	}
	for i, s := range []string{r.Call, r.Agent, r.ID, r.Digest, r.Principal, r.Tool, r.URI, string(r.Decision), r.Code} {
		if s != "" {
			v[i] = appendString(nil, s)
		}
	}
}

// cutString splits b into a JSON string and the bytes after that string. The first result is nil if b does not begin
// with a complete JSON string.
func cutString(b []byte) (text, rest []byte) {
	if len(b) == 0 || b[0] != '"' {
		return nil, b
	}
	for end := 1; end < len(b); end++ {
		switch b[end] {
		case '\\':
			end++
		case '"':
			return b[:end+1], b[end+1:]
		}
	}
	return nil, b
}

// valueSum returns a hash of a value. Two values can have the same hash. In that case, a search reads a block
// unnecessarily, but never misses a record.
func valueSum(kind byte, value []byte) int64 {
	h := fnv.New64a()
	h.Write([]byte{kind})
	h.Write(value)
	return int64(h.Sum64())
}

func callSum(value []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(valueSum(kindCall, value)))
}

// addToIndex adds a newly completed block to the index. The indexed blocks of a log form one contiguous range. If an
// older version of ambit appended blocks without indexing them, the range is replaced: the new range starts with this
// block.
func addToIndex(tx state.Tx, log, block int64, rows []row) error {
	if err := indexBlock(tx, log, block, rows); err != nil {
		return err
	}
	n, err := tx.Exec(`UPDATE journal_indexed SET next = $1 WHERE log = $2 AND next = $3`, block+1, log, block)
	if err != nil || n == 1 {
		return err
	}
	return setIndexed(tx, log, block, block+1)
}

func setIndexed(tx state.Tx, log, first, next int64) error {
	_, err := tx.Exec(`INSERT INTO journal_indexed (log, first, next) VALUES ($1, $2, $3)
		ON CONFLICT (log) DO UPDATE SET first = excluded.first, next = excluded.next`, log, first, next)
	return err
}

// indexBlock writes the index entries of a block. Erased records have no entries.
func indexBlock(tx state.Tx, log, block int64, rows []row) error {
	var values, last fieldValues
	var sums []int64
	calls, any := make([]byte, 4*blockSize), false
	for i := range rows {
		if rows[i].record == nil {
			continue
		}
		values.read(rows[i].record)
		for f, value := range values {
			switch kind := indexedFields[f].kind; {
			case value == nil || bytes.Equal(value, last[f]): // consecutive records often have the same values
			case kind == kindCall:
				copy(calls[4*(rows[i].seq%blockSize):], callSum(value))
				any = true
			default:
				sums = append(sums, valueSum(kind, value))
				last[f] = value
			}
		}
	}
	slices.Sort(sums)
	for _, sum := range slices.Compact(sums) {
		_, err := tx.Exec(`INSERT INTO journal_values (log, sum, block) VALUES ($1, $2, $3)
			ON CONFLICT (log, sum, block) DO NOTHING`, log, sum, block)
		if err != nil {
			return err
		}
	}
	if !any {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO journal_calls (log, block, calls) VALUES ($1, $2, $3)
		ON CONFLICT (log, block) DO UPDATE SET calls = excluded.calls`, log, block, calls)
	return err
}

// reindex replaces the index entries of the blocks in [from, to). The entries of erased records must not remain,
// because an attacker could use the hashes to confirm a guess about the erased content.
func reindex(tx state.Tx, log, from, to int64) error {
	for _, table := range []string{"journal_values", "journal_calls"} {
		_, err := tx.Exec(`DELETE FROM `+table+` WHERE log = $1 AND block >= $2 AND block < $3`, log, from, to)
		if err != nil {
			return err
		}
	}
	for block := from; block < to; block++ {
		rows, err := collectRows(tx, log, block*blockSize, (block+1)*blockSize)
		if err != nil {
			return err
		}
		if len(rows) == blockSize {
			if err := indexBlock(tx, log, block, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// indexedBlocks returns the range [first, next) of indexed blocks of a log.
func indexedBlocks(tx state.Tx, log int64) (first, next int64, err error) {
	err = tx.Query(`SELECT first, next FROM journal_indexed WHERE log = $1`, []any{log},
		func(r state.Row) error { return r.Scan(&first, &next) })
	return first, next, err
}

var errIndexed = errors.New("every block is indexed")

// backfill indexes some of the blocks that an older version of ambit wrote. If the newest complete block is not
// indexed, backfill indexes the newest blocks. If it is indexed, backfill indexes the blocks before the first indexed
// block. If all blocks are indexed, backfill returns errIndexed. After each transaction, the index is complete for the
// range in journal_indexed.
func (j *Journal) backfill(ctx context.Context, log int64) error {
	return j.db.Write(ctx, func(tx state.Tx) error {
		first, next, err := indexedBlocks(tx, log)
		if err != nil {
			return err
		}
		var size int64
		err = tx.Query(`SELECT size FROM heads WHERE log = $1`, []any{log},
			func(r state.Row) error { return r.Scan(&size) })
		if err != nil {
			return err
		}
		if complete := size / blockSize; next < complete {
			first, next = complete, complete
		}
		from := max(0, first-backfillBlocks)
		if from == first {
			return errIndexed
		}
		for block := from; block < first; block++ {
			rows, err := collectRows(tx, log, block*blockSize, (block+1)*blockSize)
			if err != nil {
				return err
			}
			if err := indexBlock(tx, log, block, rows); err != nil {
				return err
			}
		}
		return setIndexed(tx, log, from, next)
	})
}

// lookup contains the values to search for in the index.
type lookup struct {
	sums []int64
	call []byte // nil if the filter has no call id
}

func (f *Filter) lookup() (l lookup) {
	for kind, s := range map[byte]string{
		kindAgent: f.Agent, kindPrincipal: f.Principal, kindTool: f.Tool,
		kindDecision: string(f.Decision), kindCode: f.Code,
	} {
		if s != "" {
			l.sums = append(l.sums, valueSum(kind, appendString(nil, s)))
		}
	}
	if f.Call != "" {
		l.call = callSum(appendString(nil, f.Call))
	}
	return l
}

func (l *lookup) empty() bool { return len(l.sums) == 0 && l.call == nil }

// lastBlock returns the last block in [from, to) that contains every value, according to the index. It returns -1 if
// there is no such block.
func (l *lookup) lastBlock(tx state.Tx, log, from, to int64) (int64, error) {
	keys := len(l.sums)
	if l.call != nil {
		keys++
	}
	for agreed, i := 0, 0; agreed < keys; i++ {
		var block int64
		var err error
		if i%keys == len(l.sums) {
			block, err = lastCall(tx, log, l.call, from, to)
		} else {
			block, err = lastValue(tx, log, l.sums[i%keys], from, to)
		}
		switch {
		case err != nil || block < 0:
			return -1, err
		case block == to-1:
			agreed++
		default:
			agreed, to = 1, block+1
		}
	}
	return to - 1, nil
}

const lastValueQuery = `SELECT block FROM journal_values
	WHERE log = $1 AND sum = $2 AND block >= $3 AND block < $4 ORDER BY block DESC LIMIT 1`

func lastValue(tx state.Tx, log, sum, from, to int64) (block int64, err error) {
	block = -1
	err = tx.Query(lastValueQuery, []any{log, sum, from, to}, func(r state.Row) error { return r.Scan(&block) })
	return block, err
}

const callsQuery = `SELECT block, calls FROM journal_calls WHERE log = $1 AND block >= $2 AND block < $3`

func lastCall(tx state.Tx, log int64, call []byte, from, to int64) (found int64, err error) {
	found = -1
	errFound := errors.New("found")
	const query = callsQuery + ` ORDER BY block DESC`
	err = tx.Query(query, []any{log, from, to}, func(r state.Row) error {
		var block int64
		var calls []byte
		if err := r.Scan(&block, &calls); err != nil {
			calls = call // the column has the wrong type, so the block may contain the call
		}
		for ; len(calls) >= 4; calls = calls[4:] {
			if bytes.Equal(calls[:4], call) {
				found = block
				return errFound
			}
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return found, err
}

// indexPage contains the index entries for the records of one page.
type indexPage struct {
	first, next int64
	values      map[[2]int64]bool // the keys are pairs of block and sum
	calls       map[int64][]byte
}

func readIndex(tx state.Tx, log, from, to int64) (p indexPage, err error) {
	if p.first, p.next, err = indexedBlocks(tx, log); err != nil {
		return p, err
	}
	p.values, p.calls = map[[2]int64]bool{}, map[int64][]byte{}
	blocks := []any{log, from / blockSize, to / blockSize}
	const query = `SELECT block, sum FROM journal_values WHERE log = $1 AND block >= $2 AND block < $3`
	err = tx.Query(query, blocks, func(r state.Row) error {
		var entry [2]int64
		err := r.Scan(&entry[0], &entry[1])
		p.values[entry] = true
		return err
	})
	if err != nil {
		return p, err
	}
	err = tx.Query(callsQuery, blocks, func(r state.Row) error {
		var block int64
		var calls []byte
		if err := r.Scan(&block, &calls); err != nil {
			calls = nil // the column has the wrong type, so the entry is treated as missing
		}
		p.calls[block] = calls
		return nil
	})
	return p, err
}

// indexChecker checks that the index has all entries for the records. A missing entry would hide a record from a
// filter. Extra entries are accepted, because they hide nothing.
type indexChecker struct {
	indexPage
	log          int64
	values, last fieldValues
	block        int64 // the block of the previous record
	// firstFault describes the first missing entry. Verify reports it only if the records themselves have no fault.
	firstFault *fault
}

func (c *indexChecker) checkLeaf(r *row) {
	block := r.seq / blockSize
	if r.record == nil || block < c.first || block >= c.next || c.firstFault != nil {
		return
	}
	if block != c.block {
		c.block, c.last = block, fieldValues{}
	}
	c.values.read(r.record)
	for f, value := range c.values {
		switch kind := indexedFields[f].kind; {
		case value == nil || bytes.Equal(value, c.last[f]):
		case kind == kindCall && c.hasCall(r.seq, value):
		case kind != kindCall && c.indexPage.values[[2]int64{block, valueSum(kind, value)}]:
			c.last[f] = value
		default:
			c.firstFault = faultAt(c.log, r.seq,
				"the index lacks an entry for record %d of log %d, so a search could miss the record", r.seq, c.log)
			return
		}
	}
}

func (c *indexChecker) hasCall(seq int64, value []byte) bool {
	calls := c.calls[seq/blockSize]
	return len(calls) == 4*blockSize && bytes.Equal(calls[4*(seq%blockSize):][:4], callSum(value))
}
