package credential

import (
	"errors"
	"sync"
	"time"
)

const (
	// keyringWait is long enough for a person to unlock the keyring.
	keyringWait = 30 * time.Second
	// keyringPause is how long a keyring is left alone after it has refused.
	keyringPause = 5 * time.Second
	// keyringLost is when an unanswered request is abandoned and made again.
	keyringLost = time.Hour
)

// boundedKeyring bounds the wait for a keyring that may wait for a person forever.
// Every scan of a call needs the key, so concurrent callers share one request: the
// person sees one prompt, and no caller waits longer than keyringWait. After that,
// callers get an error at once until the request is answered.
type boundedKeyring struct {
	keyring

	mu       sync.Mutex
	requests map[string]*keyRequest // by account
}

type keyRequest struct {
	begun time.Time
	done  chan struct{}
	// The fields below are valid once done is closed.
	ended time.Time
	text  string
	err   error
}

func newBoundedKeyring(k keyring) *boundedKeyring {
	return &boundedKeyring{keyring: k, requests: map[string]*keyRequest{}}
}

func (b *boundedKeyring) get(account string) (string, error) {
	b.mu.Lock()
	r := b.requests[account]
	if r == nil || r.stale() {
		r = startRequest(func() (string, error) { return b.keyring.get(account) })
		b.requests[account] = r
	}
	b.mu.Unlock()
	return r.wait()
}

func (b *boundedKeyring) set(account, text string) error {
	_, err := startRequest(func() (string, error) { return "", b.keyring.set(account, text) }).wait()
	return err
}

func startRequest(do func() (string, error)) *keyRequest {
	r := &keyRequest{begun: time.Now(), done: make(chan struct{})}
	go func() {
		r.text, r.err = do()
		r.ended = time.Now()
		close(r.done)
	}()
	return r
}

// stale reports whether the next caller makes a new request.
func (r *keyRequest) stale() bool {
	select {
	case <-r.done:
		return r.err == nil || time.Since(r.ended) >= keyringPause
	default:
		return time.Since(r.begun) >= keyringLost
	}
}

func (r *keyRequest) wait() (string, error) {
	timeout := time.NewTimer(keyringWait - time.Since(r.begun))
	defer timeout.Stop()
	select {
	case <-r.done:
		return r.text, r.err
	case <-timeout.C:
		return "", errors.New("the keyring did not answer; unlock it and try again")
	}
}
