package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// scrubTime bounds how long a scrub waits for readers; it blocks writers meanwhile. Tests
// make it shorter.
var scrubTime = 2 * time.Second

var errRead = errors.New("deleted data is still in the store's write-ahead log, because a process is reading it")

// Scrub truncates SQLite's write-ahead log, which contains old versions of pages. In the
// store file itself, deleted data is overwritten with zeros at once.
func (s *store) Scrub(ctx context.Context) error {
	var result error
	err := s.group.Write(ctx, func(state.Tx) error {
		s.scrubs = append(s.scrubs, &result)
		return nil
	})
	return errors.Join(err, result)
}

// scrub truncates the log if a member of the committed batch asked for it. The caller
// holds the lock, so scrub waits only for readers.
func (s *store) scrub(committed bool) {
	requests := s.scrubs
	s.scrubs = nil
	if len(requests) == 0 || !committed {
		return
	}
	s.writer.SetBusyTimeout(scrubTime)
	defer s.writer.SetBusyTimeout(busyTime)
	busy, err := s.writer.ask(`PRAGMA wal_checkpoint(TRUNCATE)`)
	if err == nil && busy != 0 {
		err = errRead
	}
	if err == nil && s.commits >= manyCommits {
		s.growLog()
	}
	for _, result := range requests {
		*result = explain(err)
	}
}
