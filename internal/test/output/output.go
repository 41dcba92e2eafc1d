// Package output captures what a program prints, for tests that read it while the program runs.
package output

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer that is safe for one goroutine to write while another reads.
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
