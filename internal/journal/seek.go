package journal

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/journal/words"
	"github.com/ambit-run/ambit/internal/state"
)

// seeker finds the blocks of a log that may hold what a filter asks for, without
// reading the others.
type seeker struct {
	j   *Journal
	log int64
	// words are what a record must hold, rare those of them that stand above level 0.
	words, rare []words.Sum
	// stuck says that words which are missing cannot be kept. Then records are read.
	stuck bool
}

func (f *Filter) words() (all, rare []words.Sum) {
	for kind, s := range []string{
		words.Agent: f.Agent, words.Tool: f.Tool, words.Principal: f.Principal, words.Code: f.Code, words.Decision: string(f.Decision), words.Call: f.Call,
	} {
		if s == "" {
			continue
		}
		w := words.Of(words.Kind(kind), appendString(nil, s))
		all = append(all, w)
		if w < words.Calls {
			rare = append(rare, w)
		}
	}
	return all, rare
}

// hole is a row of level 1 that is not there, although its records are: they were
// appended by an ambit that kept no words.
type hole struct{ n int64 }

func (hole) Error() string { return "words are missing" }

// before finds the last block before n that may hold the words, or -1.
func (s *seeker) before(ctx context.Context, n int64) (found int64, err error) {
	for {
		err = s.j.db.Read(ctx, func(tx state.Tx) (err error) { found, err = s.climb(tx, n); return err })
		missing, ok := errors.AsType[hole](err)
		if !ok {
			return found, err
		}
		made, err := s.j.fillWords(ctx, s.log, missing.n)
		s.stuck = err != nil || !made
	}
}

// climb looks at rows of ever higher levels, going back from block n.
func (s *seeker) climb(tx state.Tx, n int64) (int64, error) {
	for level := int64(0); n > 0; level, n = level+1, n/fan {
		if found, err := s.last(tx, level, n-n%fan, n); found >= 0 || err != nil {
			return found, err
		}
	}
	return -1, nil
}

// last finds the last such block below the rows from…to of a level, or -1.
func (s *seeker) last(tx state.Tx, level, from, to int64) (int64, error) {
	if from == to {
		return -1, nil
	}
	rows, err := readWords(tx, s.log, level, from, to)
	if err != nil {
		return -1, err
	}
	asked := s.rare
	if level == 0 {
		asked = s.words
	}
	for i := to - 1; i >= from; i-- {
		row, there := rows[i]
		switch {
		case there && !row.May(asked):
			continue
		case level == 0:
			return i, nil
		case level == 1 && !there && !s.stuck:
			return -1, hole{i}
		}
		if found, err := s.last(tx, level-1, i*fan, (i+1)*fan); found >= 0 || err != nil {
			return found, err
		}
	}
	return -1, nil
}

// fillWords keeps the words below a row of level 1, which are 4096 records, and the
// row itself. That is not made where records are missing.
func (j *Journal) fillWords(ctx context.Context, log, n int64) (made bool, err error) {
	err = j.db.Write(ctx, func(tx state.Tx) error {
		made = true
		rows, err := readWords(tx, log, 0, n*fan, (n+1)*fan)
		if err != nil {
			return err
		}
		for i := n * fan; i < (n+1)*fan; i++ {
			if _, there := rows[i]; there {
				continue
			}
			complete, err := makeWords(tx, log, i)
			if err != nil {
				return err
			}
			made = made && complete
		}
		return raise(tx, log, 1, n)
	})
	return made, err
}

// end finds how many records of a log, of the first n, may not be too new. It goes back
// and looks at the last record of each block. To halve the log would be quicker, and
// wrong once a clock was ahead: what follows such records need not be too new.
func (c *chosen) end(tx state.Tx, log, n int64) (int64, error) {
	if c.Until.IsZero() {
		return n, nil
	}
	newest := c.Until.Add(late)
	end := n
	for at := n; at > 0; at = (at - 1) / blockSize * blockSize {
		var r struct{ Time time.Time }
		err := readRows(tx, log, at-1, at, func(one row) error {
			// One that cannot be read counts as old, and is looked at.
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
		end = at // those before it, down to the next that is looked at, may be older
	}
	return end, nil
}
