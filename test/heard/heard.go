// Package heard keeps what a program says, for tests that read it while the program
// runs on.
package heard

import (
	"bytes"
	"sync"
)

// Text is all that was said so far.
type Text struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
