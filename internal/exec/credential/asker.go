package credential

import (
	"errors"
	"sync"
	"time"
)

const (
	// keyringWait is long enough for a person to unlock it.
	keyringWait = 30 * time.Second
	// keyringRest is how long one that said no is not asked again.
	keyringRest = 5 * time.Second
	// keyringLost is when an answer is not expected any more.
	keyringLost = time.Hour
)

// asker asks a keyring that may wait for a person for ever. Every scan of a call
// wants the key, so all who want it share one question: one that nobody answers
// holds up nobody for longer than keyringWait, and leaves one prompt. Until it is
// answered, whoever comes later is told at once that there is no answer.
type asker struct {
	keyring

	mu    sync.Mutex
	asked map[string]*question // by account
}

// question is one that was put to a keyring.
type question struct {
	begun time.Time
	done  chan struct{}
	// These are set when it is done.
	ended time.Time
	text  string
	err   error
}

func newAsker(k keyring) *asker { return &asker{keyring: k, asked: map[string]*question{}} }

func (a *asker) get(account string) (string, error) {
	a.mu.Lock()
	q := a.asked[account]
	if q == nil || q.over() {
		q = ask(func() (string, error) { return a.keyring.get(account) })
		a.asked[account] = q
	}
	a.mu.Unlock()
	return q.answer()
}

func (a *asker) set(account, text string) error {
	_, err := ask(func() (string, error) { return "", a.keyring.set(account, text) }).answer()
	return err
}

func ask(what func() (string, error)) *question {
	q := &question{begun: time.Now(), done: make(chan struct{})}
	go func() {
		q.text, q.err = what()
		q.ended = time.Now()
		close(q.done)
	}()
	return q
}

// over reports whether the next one who comes asks again.
func (q *question) over() bool {
	select {
	case <-q.done:
		return q.err == nil || time.Since(q.ended) >= keyringRest
	default:
		return time.Since(q.begun) >= keyringLost
	}
}

func (q *question) answer() (string, error) {
	patience := time.NewTimer(keyringWait - time.Since(q.begun))
	defer patience.Stop()
	select {
	case <-q.done:
		return q.text, q.err
	case <-patience.C:
		return "", errors.New("it did not answer; unlock it and try again")
	}
}
