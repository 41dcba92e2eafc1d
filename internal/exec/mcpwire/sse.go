package mcpwire

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"
)

// event is one server-sent event.
type event struct {
	name  string
	data  []byte // valid until the next event, or for ever if owned
	owned bool
}

// eventReader reads a text/event-stream according to the HTML standard.
type eventReader struct {
	lines  *lineReader
	limit  int           // of an event's data
	joined []byte        // the data of the event being read
	lastID string        // the last event id, for resuming
	retry  time.Duration // the pause that the server requests before that
	begun  bool
}

// maxEventID bounds the event id that a server can make the client send back.
const maxEventID = 4 << 10

var eventReaders = sync.Pool{New: func() any { return new(eventReader) }}

func newEventReader(r io.Reader, limit int) *eventReader {
	e := eventReaders.Get().(*eventReader)
	*e = eventReader{joined: e.joined[:0], limit: limit}
	// The line also contains the field name.
	e.lines = newLineReader(r, limit+len("data: "))
	e.lines.bareCR = true
	return e
}

// release returns the reader's buffers. No event may be in use.
func (r *eventReader) release() {
	r.lines.release()
	if cap(r.joined) <= readSize {
		eventReaders.Put(r)
	}
}

// next returns the next event that has data. As the standard requires, it drops an incomplete event at the
// end of the stream.
func (r *eventReader) next() (event, error) {
	var e event
	parts := 0
	for {
		line, owned, err := r.lines.next()
		if err != nil {
			if _, large := errors.AsType[*TooLargeError](err); large {
				err = &TooLargeError{Limit: r.limit}
			}
			return event{}, err
		}
		if !r.begun {
			r.begun = true
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			if len(e.data) > 0 {
				return e, nil
			}
			e, parts = event{}, 0
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if e, err = r.add(e, value, owned, parts); err != nil {
				return event{}, err
			}
			parts++
		case "event":
			e.name = string(value)
		case "id":
			if len(value) <= maxEventID && printable(value) {
				r.lastID = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// add appends a data line to an event. A line is valid only until the next read, so it is copied, unless
// its buffer is owned.
func (r *eventReader) add(e event, value []byte, owned bool, parts int) (event, error) {
	switch {
	case parts == 0 && owned:
		e.data, e.owned = value, true
		return e, nil
	case parts == 0:
		r.joined = r.joined[:0]
	case e.owned:
		r.joined = append(append(r.joined[:0], e.data...), '\n')
	default:
		r.joined = append(r.joined, '\n')
	}
	r.joined = append(r.joined, value...)
	if len(r.joined) > r.limit {
		return e, &TooLargeError{Limit: r.limit}
	}
	e.data, e.owned = r.joined, false
	return e, nil
}

// printable reports whether a server's text is safe in a header.
func printable[T string | []byte](text T) bool {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c > 0x7e {
			return false
		}
	}
	return true
}
