package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// scrubTime is how long a scrub waits for those who read, while nobody can write. A
// test makes it shorter.
var scrubTime = 2 * time.Second

// errRead says that somebody still reads what the log holds.
var errRead = errors.New("what was deleted is still in the store's log, for somebody reads it")

// Scrub empties the write-ahead log: it holds pages as they were. The file itself has
// zeros where something was deleted.
func (s *store) Scrub(ctx context.Context) error {
	var left error
	err := s.group.Write(ctx, func(state.Tx) error {
		s.scrubs = append(s.scrubs, &left)
		return nil
	})
	return errors.Join(err, left)
}

// scrub does what the batch that was committed asked for. It is called under the lock,
// so that only those who read have to be waited for.
func (s *store) scrub(committed bool) {
	asked := s.scrubs
	s.scrubs = nil
	if len(asked) == 0 || !committed {
		return
	}
	s.writer.SetBusyTimeout(scrubTime)
	defer s.writer.SetBusyTimeout(busyTime)
	busy, err := s.writer.ask(`PRAGMA wal_checkpoint(TRUNCATE)`)
	if err == nil && busy != 0 {
		err = errRead
	}
	if err == nil && s.commits >= manyCommits {
		s.roomForLog()
	}
	for _, left := range asked {
		*left = explain(err)
	}
}
