package limit

import (
	"fmt"
	"io"
	"sync"
)

// Bytes limits the total size of the requests that a process handles at the same time, for each principal and for all
// principals together. Without the limit, a few callers with many large requests could use all memory, because a
// request stays in memory until it is answered.
type Bytes struct {
	// Each is the limit of one principal, and All is the limit of the process.
	Each, All int64

	mu  sync.Mutex
	all int64
	by  map[string]int64
}

// NewBytes returns the limits of a process for requests. One principal can use a quarter of the process's limit.
func NewBytes() *Bytes { return &Bytes{Each: 64 << 20, All: 256 << 20} }

// NewAnswerBytes returns the limits of a process for answers, so that a result of 64 MiB can be sent.
func NewAnswerBytes() *Bytes { return &Bytes{Each: 80 << 20, All: 320 << 20} }

// RetryHint is for requests that were refused with a BusyError before they were carried out.
const RetryHint = "send the request again when one of them is answered"

// BusyError means that a request must wait until other requests are answered.
type BusyError struct {
	// All is true if the process has reached its limit, and false if the principal has.
	All   bool
	Limit int64
}

func (e *BusyError) Error() string {
	whose := "your requests in progress"
	if e.All {
		whose = "the requests in progress of all callers"
	}
	return fmt.Sprintf("%s exceed %d MiB", whose, e.Limit>>20)
}

// add counts n more bytes for a principal. It returns a BusyError if that would exceed a limit.
func (b *Bytes) add(principal string, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.by[principal]+n > b.Each:
		return &BusyError{Limit: b.Each}
	case b.all+n > b.All:
		return &BusyError{All: true, Limit: b.All}
	}
	if b.by == nil {
		b.by = map[string]int64{}
	}
	b.all += n
	b.by[principal] += n
	return nil
}

func (b *Bytes) remove(principal string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.by[principal] -= n; b.by[principal] == 0 {
		delete(b.by, principal)
	}
}

// Take counts n bytes for a principal until the returned function is called. It returns a BusyError if that would
// exceed a limit.
func (b *Bytes) Take(principal string, n int64) (release func(), err error) {
	if err := b.add(principal, n); err != nil {
		return nil, err
	}
	return func() { b.remove(principal, n) }, nil
}

// Body counts the bytes that are read from the body of a request.
type Body struct {
	io.ReadCloser
	bytes     *Bytes
	principal string
	read      int64
}

// Body returns a body whose bytes are counted until Release is called.
func (b *Bytes) Body(principal string, body io.ReadCloser) *Body {
	return &Body{ReadCloser: body, bytes: b, principal: principal}
}

// Read returns a BusyError if the limits do not allow more bytes.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		if busy := b.bytes.add(b.principal, int64(n)); busy != nil {
			return 0, busy
		}
		b.read += int64(n)
	}
	return n, err
}

// Release stops counting the bytes of the body, which must not be read after that.
func (b *Body) Release() { b.bytes.remove(b.principal, b.read) }
