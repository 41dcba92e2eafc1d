// Package output captures the output of a program for tests that read the output while the program runs.
package output

import (
	"bytes"
	"sync"
)

// Buffer is a buffer to which one goroutine can write while another goroutine reads.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
