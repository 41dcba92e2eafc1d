package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
)

// lockTime bounds how long a write waits for the lock of another process. A batch takes
// milliseconds and a schema step seconds. A process that holds the lock for longer may be
// stopped, and would hold it for ever. Tests make lockTime shorter.
var lockTime = 20 * time.Second

// againTime bounds the wait of writes that arrive after lockTime has passed.
const againTime = time.Second

// enter waits without limit until this process may write. Only the committing goroutine
// calls it. Members that wait for its batch are refused after lockTime.
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

// refuse fails all waiting members every againTime, until the lock is acquired.
func (s *store) refuse(since time.Time, entered <-chan struct{}) {
	pause := time.NewTicker(againTime)
	defer pause.Stop()
	for {
		err := s.locked(since)
		select {
		case <-entered:
			return
		default:
			s.group.Fail(err)
		}
		select {
		case <-entered:
			return
		case <-pause.C:
		}
	}
}

// enterFirst is enter for Open, when there are no members yet. If the wait times out,
// the files are closed once the lock is acquired, or when this process ends.
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

// enter waits for the lock. A writer takes the turn first and holds it until it has the
// lock, so a process that has just written cannot overtake the waiting ones.
func enter(turns, file *os.File) error {
	if err := home.Lock(turns); err != nil {
		return err
	}
	return errors.Join(home.Lock(file), home.Unlock(turns))
}

// tryEnter is enter without waiting.
func (s *store) tryEnter() (bool, error) {
	ok, err := home.TryLock(s.turns)
	if err != nil || !ok {
		return false, err
	}
	ok, err = home.TryLock(s.lock)
	return ok, errors.Join(err, home.Unlock(s.turns))
}

// locked names the process that holds the lock, if it can be found. A process that holds
// only the turn counts as well: it may have been stopped while it waited.
func (s *store) locked(since time.Time) error {
	from := since.Format(time.TimeOnly)
	for _, file := range []string{s.file + ".lock", s.file + ".turn"} {
		by, ok := findHolder(file)
		if !ok || by.pid == os.Getpid() { // this process holds the turn while it waits
			continue
		}
		fix := "Wait until it finishes or end it, then try again"
		if by.stopped {
			fix = fmt.Sprintf("The process is stopped: continue it with kill -CONT %d or end it, then try again", by.pid)
		}
		return fmt.Errorf("%w: process %d (%s) has held the lock since %s or longer. %s",
			state.ErrLocked, by.pid, by.name, from, fix)
	}
	return fmt.Errorf("%w: another process has held %s.lock since %s or longer. "+
		"Check which other programs use this store, and whether one of them is stopped", state.ErrLocked, s.file, from)
}

// holder is a process that holds a lock.
type holder struct {
	pid     int
	name    string
	stopped bool
}
