package mcpwire

import (
	"bytes"
	"io"
	"sync"
)

// readSize is the size of the pooled read buffers.
const readSize = 32 << 10

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// lineReader splits a stream into lines. A line that fits the pooled buffer is a view into it. For a longer
// line the buffer grows, at most to the limit, and then belongs to that line.
type lineReader struct {
	r      io.Reader
	pooled *[readSize]byte // the pooled buffer, returned in release
	buf    []byte
	start  int // of the unread bytes
	end    int // of the buffered bytes
	seen   int // there is no line end before this offset
	limit  int
	bareCR bool // a carriage return alone ends a line too, as in event streams
	skipLF bool // the last line ended with a carriage return
	err    error
}

func newLineReader(r io.Reader, limit int) *lineReader {
	pooled := readBuffers.Get().(*[readSize]byte)
	return &lineReader{r: r, pooled: pooled, buf: pooled[:], limit: limit}
}

// release returns the pooled buffer. No line may be in use.
func (l *lineReader) release() {
	readBuffers.Put(l.pooled)
	l.pooled, l.buf, l.start, l.end, l.seen, l.err = nil, nil, 0, 0, 0, io.ErrClosedPipe
}

// next returns the next line without its end. The line is valid until the following call, or for ever if
// owned. Bytes after the last line end are a line, too.
func (l *lineReader) next() (line []byte, owned bool, err error) {
	for {
		if l.skipLF && l.start < l.end {
			l.skipLF = false
			if l.buf[l.start] == '\n' {
				l.start++
			}
			l.seen = max(l.seen, l.start)
		}
		if i := l.lineEnd(); i >= 0 {
			return l.cut(i, i+1)
		}
		if l.end-l.start > l.limit {
			return nil, false, &TooLargeError{Limit: l.limit}
		}
		if l.err != nil {
			if l.start < l.end {
				return l.cut(l.end, l.end)
			}
			return nil, false, l.err
		}
		l.fill()
	}
}

// lineEnd returns the end of the next line, or -1.
func (l *lineReader) lineEnd() int {
	fresh := l.buf[l.seen:l.end]
	i := bytes.IndexByte(fresh, '\n')
	if l.bareCR {
		within := fresh
		if i >= 0 {
			within = fresh[:i]
		}
		if k := bytes.IndexByte(within, '\r'); k >= 0 {
			i = k
		}
	}
	if i < 0 {
		l.seen = l.end
		return -1
	}
	return l.seen + i
}

// cut returns the line that ends at i; the next line starts at after.
func (l *lineReader) cut(i, after int) (line []byte, owned bool, err error) {
	if i-l.start > l.limit {
		return nil, false, &TooLargeError{Limit: l.limit}
	}
	line = l.buf[l.start:i:i]
	if l.bareCR && i < l.end && l.buf[i] == '\r' {
		l.skipLF = true
	} else if n := len(line); !l.bareCR && n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	l.start, l.seen = after, after
	if len(l.buf) > readSize {
		l.detachBuffer()
		return line, true, nil
	}
	return line, false, nil
}

// detachBuffer leaves a grown buffer to its line and moves the remaining bytes to another buffer.
func (l *lineReader) detachBuffer() {
	rest := l.buf[l.start:l.end]
	if len(rest) > readSize {
		l.buf = bytes.Clone(rest)
	} else {
		l.buf = l.pooled[:]
		copy(l.buf, rest)
	}
	l.start, l.seen, l.end = 0, 0, len(rest)
}

// fill makes space and reads more.
func (l *lineReader) fill() {
	if l.start > 0 {
		copy(l.buf, l.buf[l.start:l.end])
		l.end -= l.start
		l.seen -= l.start
		l.start = 0
	}
	if l.end == len(l.buf) {
		bigger := make([]byte, min(2*len(l.buf), max(l.limit, readSize)+readSize))
		copy(bigger, l.buf)
		l.buf = bigger
	}
	for range 100 {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if l.err = err; n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}
