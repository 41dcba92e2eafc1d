package mcpwire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"
)

// readSize is the size of the pooled read buffers.
const readSize = 32 << 10

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readSize) }}

// lineReader splits a stream into lines with a maximum length.
type lineReader struct {
	*bufio.Reader
	limit int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	b := readers.Get().(*bufio.Reader)
	b.Reset(r)
	return &lineReader{b, limit}
}

// release returns the buffer to the pool. Lines in the buffer must not be used after that.
func (l *lineReader) release() {
	l.Reset(nil)
	readers.Put(l.Reader)
}

// nextLine returns the next line without its line ending. The last line of a stream needs no line ending. The second
// result reports whether the caller can keep the line. If it is false, the line is valid only until the next call.
func (l *lineReader) nextLine() (line []byte, owned bool, err error) {
	line, err = l.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		owned = true
		var long []byte
		for err == bufio.ErrBufferFull && len(long) <= l.limit {
			long = l.add(long, line)
			line, err = l.ReadSlice('\n')
		}
		line = l.add(long, line)
	}
	if whole, ended := bytes.CutSuffix(line, []byte("\n")); ended {
		line = bytes.TrimSuffix(whole, []byte("\r"))
	} else if err == io.EOF && len(line) > 0 {
		err = nil
	}
	if len(line) > l.limit {
		return nil, false, &TooLargeError{Limit: l.limit}
	}
	return line, owned, err
}

// add appends a part to a line.
func (l *lineReader) add(line, part []byte) []byte {
	if len(line)+len(part) > cap(line) {
		line = grown(line, 0, l.limit+2*readSize)
	}
	return append(line, part...)
}

// grown returns a copy of b with a larger capacity. The size is the final size of the text, or 0 if it is unknown. A
// text of unknown size soon gets a capacity of one byte more than the limit: the kernel provides memory only for the
// part that is used, and all copies together remain small.
func grown(b []byte, size, limit int) []byte {
	if size <= cap(b) {
		size = 4 * max(cap(b), readSize)
		if size > limit/4 {
			size = limit
		}
	}
	return append(make([]byte, 0, size+1), b...)
}

// eventReader reads a text/event-stream whose lines end in LF or CRLF. It does not support a lone CR as a line
// ending, which the HTML standard also allows, because no server sends it.
type eventReader struct {
	lines  *lineReader
	limit  int           // the maximum size of an event's data in bytes
	lastID string        // the id of the last event, for resuming the stream
	retry  time.Duration // how long the server asks clients to wait before they resume
	begun  bool          // set after the first line was read
}

// maxEventID is the maximum length of an event id. The client sends the id back in a header.
const maxEventID = 4 << 10

func newEventReader(r io.Reader, limit int) *eventReader {
	// A line can be longer than its data, because it begins with the name of the field.
	return &eventReader{lines: newLineReader(r, limit+len("data: ")), limit: limit}
}

func (r *eventReader) release() { r.lines.release() }

// nextEvent returns the name and the data of the next event that has data. The caller can keep the data. An incomplete
// event at the end of the stream is dropped, as the HTML standard requires.
func (r *eventReader) nextEvent() (name string, data []byte, err error) {
	for {
		line, owned, err := r.lines.nextLine()
		if _, large := errors.AsType[*TooLargeError](err); large || len(data) > r.limit {
			return "", nil, &TooLargeError{Limit: r.limit}
		}
		if err != nil {
			return "", nil, err
		}
		if !r.begun {
			r.begun = true
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			if len(data) > 0 {
				return name, data, nil
			}
			name, data = "", nil
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if data == nil && owned {
				data = value
			} else if data == nil {
				data = append([]byte{}, value...)
			} else {
				data = append(append(data, '\n'), value...)
			}
		case "event":
			name = string(value)
		case "id":
			if len(value) <= maxEventID && isPrintable(value) {
				r.lastID = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// isPrintable reports whether a text consists only of printable ASCII characters, so that it is safe in a header.
func isPrintable[T string | []byte](text T) bool {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c > 0x7e {
			return false
		}
	}
	return true
}
