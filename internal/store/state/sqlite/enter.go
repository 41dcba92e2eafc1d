package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// lockTime is how long a write waits for the lock of another process. A batch
// takes milliseconds, and a step of the schema seconds; who keeps the lock for
// longer may be stopped, and would keep it for ever. A test makes it shorter.
var lockTime = 20 * time.Second

// againTime is how long whoever comes after that waits.
const againTime = time.Second

// enter waits until this process may write, however long that takes. Only the
// committing goroutine does: those who wait for its batch are refused when their
// time is over.
func (s *store) enter() error {
	s.entering.Store(true)
	defer s.entering.Store(false)
	since, entered := time.Now(), make(chan struct{})
	timer := time.AfterFunc(lockTime, func() { s.refuse(since, entered) })
	defer func() {
		timer.Stop()
		close(entered)
	}()
	return enter(s.turns, s.lock)
}

// refuse fails those who wait, again and again, until the lock is there.
func (s *store) refuse(since time.Time, entered <-chan struct{}) {
	pause := time.NewTicker(againTime)
	defer pause.Stop()
	for {
		why := s.locked(since)
		select {
		case <-entered:
			return
		default:
			s.group.Fail(why)
		}
		select {
		case <-entered:
			return
		case <-pause.C:
		}
	}
}

// enterFirst is enter while the store is being opened, when nobody else waits.
// What cannot be had in time is closed when it is there, or with this process.
func (s *store) enterFirst(ctx context.Context) (err error) {
	turns, file := s.turns, s.lock
	since, entered := time.Now(), make(chan error, 1)
	go func() { entered <- enter(turns, file) }()
	timer := time.NewTimer(lockTime)
	defer timer.Stop()
	select {
	case err := <-entered:
		return err
	case <-timer.C:
		err = s.locked(since)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.turns, s.lock = nil, nil
	go func() {
		<-entered
		file.Close()
		turns.Close()
	}()
	return err
}

// enter waits for the lock. Whoever wants to write first takes the turn and keeps
// it until he has the lock: so one who has just written cannot take the lock again
// before those who wait.
func enter(turns, file *os.File) error {
	if err := lock(turns); err != nil {
		return err
	}
	return errors.Join(lock(file), unlock(turns))
}

// tryEnter is enter where nobody has to be waited for.
func (s *store) tryEnter() (bool, error) {
	ok, err := tryLock(s.turns)
	if err != nil || !ok {
		return false, err
	}
	ok, err = tryLock(s.lock)
	return ok, errors.Join(err, unlock(s.turns))
}

// locked says who keeps the lock, as far as can be told. Who has only the turn
// counts as well: he may have been stopped while he waited.
func (s *store) locked(since time.Time) error {
	from := since.Format(time.TimeOnly)
	for _, file := range []string{s.file + ".lock", s.file + ".turn"} {
		by, ok := holder(file)
		switch {
		case !ok, by.pid == os.Getpid(): // who waits has the turn
		case by.stopped:
			return fmt.Errorf("%w: process %d (%s) has kept it locked since %s or longer, and is stopped. Let it go on with kill -CONT %[2]d, or end it, and try again",
				state.ErrLocked, by.pid, by.name, from)
		default:
			return fmt.Errorf("%w: process %d (%s) has kept it locked since %s or longer. Wait until it has done its work, or end it, and try again",
				state.ErrLocked, by.pid, by.name, from)
		}
	}
	return fmt.Errorf("%w: another process has kept %s.lock since %s or longer. See which other programs use this store, and whether one of them is stopped",
		state.ErrLocked, s.file, from)
}

// keeper is a process that has a lock.
type keeper struct {
	pid     int
	name    string
	stopped bool
}
