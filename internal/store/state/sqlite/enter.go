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

// lockTime is how long a write waits while another process holds the store lock. A batch holds the store lock for
// milliseconds, and a migration for seconds. A process that holds the store lock for longer may be suspended and might
// never release it. Tests make lockTime shorter.
var lockTime = 20 * time.Second

// rejectInterval is the interval at which rejectWaiting rejects the writes that have arrived since the last rejection.
const rejectInterval = time.Second

// enter waits without a time limit until this process has the store lock. Only the goroutine that begins a batch
// calls enter. After lockTime, the members that wait for the batch get an error.
func (s *store) enter() error {
	s.entering.Store(true)
	defer s.entering.Store(false)
	since, entered := time.Now(), make(chan struct{})
	timer := time.AfterFunc(lockTime, func() { s.rejectWaiting(since, entered) })
	defer func() {
		timer.Stop()
		close(entered)
	}()
	return enter(s.turnFile, s.lock)
}

// rejectWaiting makes all waiting members fail. It does so immediately, and then again once per rejectInterval. It
// returns when lockHeld is closed. The channel is closed when the wait for the store lock ends.
func (s *store) rejectWaiting(since time.Time, lockHeld <-chan struct{}) {
	pause := time.NewTicker(rejectInterval)
	defer pause.Stop()
	for {
		err := s.locked(since)
		select {
		case <-lockHeld:
			return
		default:
			s.group.Fail(err)
		}
		select {
		case <-lockHeld:
			return
		case <-pause.C:
		}
	}
}

// enterFirst is the variant of enter for Open. It fails after lockTime or when ctx is done. In that case, a background
// goroutine waits until it has the store lock and then closes both files.
func (s *store) enterFirst(ctx context.Context) (err error) {
	turnFile, file := s.turnFile, s.lock
	since, entered := time.Now(), make(chan error, 1)
	go func() { entered <- enter(turnFile, file) }()
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
	s.turnFile, s.lock = nil, nil
	go func() {
		<-entered
		file.Close()
		turnFile.Close()
	}()
	return err
}

// enter waits for the store lock. It first locks turnFile, and keeps turnFile locked until it has the store lock. The
// waiting process therefore gets the store lock next, even if the last holder immediately tries to lock it again.
func enter(turnFile, file *os.File) error {
	if err := home.Lock(turnFile); err != nil {
		return err
	}
	return errors.Join(home.Lock(file), home.Unlock(turnFile))
}

// tryEnter is like enter, but does not wait. The first result reports whether this process has the store lock.
func (s *store) tryEnter() (bool, error) {
	ok, err := home.TryLock(s.turnFile)
	if err != nil || !ok {
		return false, err
	}
	ok, err = home.TryLock(s.lock)
	return ok, errors.Join(err, home.Unlock(s.turnFile))
}

// locked returns an error that wraps ErrLocked. The error message names the process that holds the store lock. If that
// process cannot be found, the message names the process that has locked turnFile. If no other process can be found,
// the message names only the lock file.
func (s *store) locked(since time.Time) error {
	from := since.Format(time.TimeOnly)
	for _, file := range []string{s.file + ".lock", s.file + ".turn"} {
		h, ok := findHolder(file)
		if !ok || h.pid == os.Getpid() { // this process has locked turnFile while it waits
			continue
		}
		fix := "Wait until the process finishes, or terminate it. Then try again"
		if h.stopped {
			fix = fmt.Sprintf("The process is suspended. Resume it (kill -CONT %d) or terminate it. Then try again", h.pid)
		}
		return fmt.Errorf("%w: process %d (%s) has held the lock since %s or earlier. %s",
			state.ErrLocked, h.pid, h.name, from, fix)
	}
	return fmt.Errorf("%w: another process has held the lock %s.lock since %s or earlier. "+
		"Find the other processes that use this store, and check whether one of them is suspended or hangs",
		state.ErrLocked, s.file, from)
}

// holder is a process that holds a lock.
type holder struct {
	pid     int
	name    string
	stopped bool
}
