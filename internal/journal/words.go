package journal

import (
	"github.com/ambit-run/ambit/internal/journal/words"
	"github.com/ambit-run/ambit/internal/state"
)

// A row of words of level 0 is about a block, which are the records of a tile; one of
// each level above is about fan rows of the level below. A row that is not there says
// nothing: then the rows below it, and in the end the records, are looked at.
const (
	blockSize = tileWidth
	fan       = 16
)

// width is how many records a row of a level is about.
func width(level int) int64 {
	w := int64(blockSize)
	for range level {
		w *= fan
	}
	return w
}

// take adds the words of a record; of one that was erased there are none.
func take(s *words.Set, r *row) {
	switch {
	case r.odd:
		s.Anything()
	case r.record != nil:
		s.Record(r.record)
	}
}

// addWords keeps the words of a block that is complete, reading its records where they
// are not known, and of the rows above that are complete with it. What is known may
// be of records that were erased since, by whatever process: then they are read too.
func addWords(tx state.Tx, log, n int64, known words.Row) (err error) {
	if known != nil {
		gone, err := anyErased(tx, log, n)
		if err != nil {
			return err
		}
		if gone {
			known = nil
		}
	}
	if known == nil {
		_, err = makeWords(tx, log, n)
	} else {
		err = putWords(tx, log, 0, n, known)
	}
	if err != nil || (n+1)%fan != 0 {
		return err
	}
	return raise(tx, log, 1, n/fan)
}

// anyErased reports whether a record of a block has no content.
func anyErased(tx state.Tx, log, n int64) (gone bool, err error) {
	err = tx.Query(`SELECT 1 FROM leaves WHERE place >= $1 AND place < $2 AND record IS NULL LIMIT 1`, []any{place(log, n*blockSize), place(log, (n+1)*blockSize)},
		func(state.Row) error { gone = true; return nil })
	return gone, err
}

// makeWords keeps the words of a block from its records, if it is complete.
func makeWords(tx state.Tx, log, n int64) (complete bool, err error) {
	var s words.Set
	count := 0
	err = readRows(tx, log, n*blockSize, (n+1)*blockSize, func(r row) error { count++; take(&s, &r); return nil })
	if err != nil || count < blockSize {
		return false, err
	}
	return true, putWords(tx, log, 0, n, s.Keep())
}

// raise keeps a row of words over those below it, if they are all there, and then
// tries the one above.
func raise(tx state.Tx, log, level, n int64) error {
	for ; ; level, n = level+1, n/fan {
		rows, err := readWords(tx, log, level-1, n*fan, (n+1)*fan)
		if err != nil || len(rows) < fan {
			return err
		}
		var s words.Set
		for _, r := range rows {
			s.Row(r)
		}
		if err := putWords(tx, log, level, n, s.Keep()); err != nil {
			return err
		}
	}
}

// forgetWords makes the words of records anew that were erased: their sums would still
// answer whoever guesses.
func forgetWords(tx state.Tx, log, from, to int64) error {
	for n := from / blockSize; n*blockSize < to; n++ {
		complete, err := makeWords(tx, log, n)
		if err != nil || !complete {
			return err
		}
		if last := (n+1)*blockSize >= to; last || (n+1)%fan == 0 {
			if err := raise(tx, log, 1, n/fan); err != nil {
				return err
			}
		}
	}
	return nil
}

func putWords(tx state.Tx, log, level, n int64, r words.Row) error {
	_, err := tx.Exec(`INSERT INTO words (log, level, n, sums) VALUES ($1, $2, $3, $4) ON CONFLICT (log, level, n) DO UPDATE SET sums = excluded.sums`,
		log, level, n, []byte(r))
	return err
}

const wordsOf = `SELECT n, sums FROM words WHERE log = $1 AND level = $2 AND n >= $3 AND n < $4`

// readWords reads those rows from…to of a level that are there.
func readWords(tx state.Tx, log, level, from, to int64) (map[int64]words.Row, error) {
	rows := make(map[int64]words.Row, to-from)
	err := tx.Query(wordsOf, []any{log, level, from, to}, func(r state.Row) error {
		var n int64
		var sums []byte
		if err := r.Scan(&n, &sums); err != nil {
			sums = words.Anything // the number is that of the key, and was read
		}
		rows[n] = sums
		return nil
	})
	return rows, err
}

// wordRow is the place of a row of words.
type wordRow struct {
	level int
	n     int64
}

// readEnding reads the rows of words that are complete with records from…to.
func readEnding(tx state.Tx, log, from, to int64) (map[wordRow]words.Row, error) {
	out := map[wordRow]words.Row{}
	for level := 0; to >= width(level); level++ {
		w := width(level)
		if from/w == to/w {
			continue
		}
		rows, err := readWords(tx, log, int64(level), from/w, to/w)
		if err != nil {
			return nil, err
		}
		for n, r := range rows {
			out[wordRow{level, n}] = r
		}
	}
	return out, nil
}

// wordChecker holds rows of words to the records they are about: one that leaves out
// a word could hide a record from a filter. Words too many hide nothing.
type wordChecker struct {
	log    int64
	have   map[wordRow]words.Row
	levels []words.Set // what the rows to come have to hold, for each level
	// wrong is the first row that leaves out something. What is wrong with records
	// comes before it.
	wrong *fault
}

func (c *wordChecker) leaf(r *row) {
	if len(c.levels) == 0 {
		c.levels = make([]words.Set, 1)
	}
	take(&c.levels[0], r)
	if (r.seq+1)%blockSize == 0 {
		c.end(0, r.seq/blockSize)
	}
}

// end checks a row whose records have all been read, and those that end with it.
func (c *wordChecker) end(level int, n int64) {
	if level+1 == len(c.levels) {
		c.levels = append(c.levels, words.Set{})
	}
	s := &c.levels[level]
	if row, there := c.have[wordRow{level, n}]; there && !row.Covers(s) && c.wrong == nil {
		first, count := n*width(level), width(level)
		c.wrong = faultAt(c.log, first, "the words of records %d to %d of log %d were changed: show could pass over some of them", first, first+count-1, c.log)
	}
	c.levels[level+1].Add(s)
	s.Reset()
	if (n+1)%fan == 0 {
		c.end(level+1, n/fan)
	}
}
