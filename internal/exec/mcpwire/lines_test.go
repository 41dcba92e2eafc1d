package mcpwire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("0123456789", readSize/5) // two buffers
	for _, tc := range []struct {
		name  string
		input string
		limit int
		want  []string
		large bool
	}{
		{name: "nothing", input: ""},
		{name: "lines", input: "a\nb\r\n\nc\n", want: []string{"a", "b", "", "c"}},
		{name: "no end", input: "a\nb", want: []string{"a", "b"}},
		{name: "a bare carriage return", input: "a\rb\n", want: []string{"a\rb"}},
		{name: "long", input: "x\n" + long + "\ny\n" + long + "\n\nz", want: []string{"x", long, "y", long, "", "z"}},
		{name: "several long lines", input: long + "\n" + long + "\n" + long[:readSize] + "\nx\n", want: []string{long, long, long[:readSize], "x"}},
		{name: "at the limit", input: "12345\n12345\n", limit: 5, want: []string{"12345", "12345"}},
		{name: "beyond the limit", input: "1\n123456\n", limit: 5, want: []string{"1"}, large: true},
		{name: "beyond the limit without end", input: "1\n123456", limit: 5, want: []string{"1"}, large: true},
		{name: "far beyond the limit", input: long + long, limit: len(long), large: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, reader := range map[string]io.Reader{
				"at once":                  strings.NewReader(tc.input),
				"byte by byte":             iotest.OneByteReader(strings.NewReader(tc.input)),
				"in halves":                iotest.HalfReader(strings.NewReader(tc.input)),
				"a line with its line end": iotest.DataErrReader(strings.NewReader(tc.input)),
			} {
				limit := tc.limit
				if limit == 0 {
					limit = 1 << 20
				}
				l := newLineReader(reader, limit)
				var got []string
				var kept [][]byte
				var err error
				for {
					var line []byte
					var owned bool
					if line, owned, err = l.nextLine(); err != nil {
						break
					}
					got = append(got, string(line))
					if owned {
						kept = append(kept, line)
					}
				}
				l.release()
				if !slices.Equal(got, tc.want) {
					t.Errorf("%s: %d lines, want %d", name, len(got), len(tc.want))
				}
				for _, line := range kept { // lines that the caller owns must not change
					if !slices.Contains(tc.want, string(line)) {
						t.Errorf("%s: a line that the caller owns has changed", name)
					}
				}
				if _, large := errors.AsType[*TooLargeError](err); large != tc.large || !large && err != io.EOF {
					t.Errorf("%s: error %v", name, err)
				}
			}
		})
	}
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("0123456789", readSize/5)
	for _, tc := range []struct {
		name, input string
		want        []string
		large       bool
	}{
		{name: "a large line and more", input: "data: " + long + "\ndata: b\n\ndata: c\n\n", want: []string{long + "\nb", "c"}},
		{name: "more and a large line", input: "data: a\ndata: " + long + "\n\n", want: []string{"a\n" + long}},
		{name: "several large events", input: strings.Repeat("data: "+long+"\n\n", 3), want: []string{long, long, long}},
		{name: "too large", input: "data: " + strings.Repeat(long, 20) + "\n\n", large: true},
		{name: "an event whose lines together are too large", input: strings.Repeat("data: "+long+"\n", 20) + "\n", large: true},
		{name: "a large comment", input: ":" + long + "\ndata: x\n\n", want: []string{"x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newEventReader(strings.NewReader(tc.input), 10*readSize)
			defer r.release()
			var got []string
			var err error
			for {
				var data []byte
				if _, data, err = r.nextEvent(); err != nil {
					break
				}
				got = append(got, string(data))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%d events, want %d", len(got), len(tc.want))
			}
			if e, large := errors.AsType[*TooLargeError](err); large != tc.large || large && e.Limit != 10*readSize || !large && err != io.EOF {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestLinesNoProgress(t *testing.T) {
	l := newLineReader(silent{}, 10)
	defer l.release()
	if _, _, err := l.nextLine(); err != io.ErrNoProgress {
		t.Errorf("error = %v, want io.ErrNoProgress", err)
	}
}

// silent is a reader that always returns 0 bytes and no error.
type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

// FuzzEvents compares the event reader with referenceEvents. The function referenceEvents reads the whole stream
// at once. The event reader gets the stream in pieces, and the size of the pieces must not matter.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"data: x\n\n", "\ufeffevent: a\rdata:1\rdata: 2\r\r", "id: 7\r\nretry: 10\r\ndata\r\n\r\n:c\n\ndata:  y\n\n",
		"data: a\n\r\ndata: b\r\n\rdata: c", "data:\ndata:\n\n", "event: x\n\ndata: y\n\n", "id: \x00\ndata: z\n\n",
	} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		const limit = 1 << 20
		want := referenceEvents(stream)
		r := newEventReader(&pieces{rest: stream, size: max(1, piece%64)}, limit)
		defer r.release()
		var got []string
		for {
			name, data, err := r.nextEvent()
			if err != nil {
				if err != io.EOF {
					t.Fatalf("error %v", err)
				}
				break
			}
			got = append(got, fmt.Sprintf("%q %q %q", name, data, r.lastID))
		}
		if !slices.Equal(got, want) {
			t.Errorf("events of %q:\n%s, want\n%s", stream, got, want)
		}
	})
}

// pieces reads a text a few bytes at a time.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(p.size, len(b))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// referenceEvents parses a stream line by line, as the HTML standard describes.
func referenceEvents(stream []byte) (events []string) {
	text := string(bytes.TrimPrefix(stream, []byte("\ufeff")))
	text = strings.ReplaceAll(text, "\r\n", "\n")
	lines := strings.Split(text, "\n")
	var name, id, data string
	for _, line := range lines[:len(lines)-1] { // the last line has no line end, so it is incomplete
		if line == "" {
			if data != "" && data != "\n" {
				events = append(events, fmt.Sprintf("%q %q %q", name, strings.TrimSuffix(data, "\n"), id))
			}
			name, data = "", ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			data += value + "\n"
		case "id":
			if len(value) <= maxEventID && isPrintable(value) {
				id = value
			}
		}
	}
	return events
}

// A large message needs little more memory than its limit, however it arrives.
func TestMemoryOfLargeMessages(t *testing.T) {
	const limit, size = 64 << 20, 60 << 20
	text := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	stream := func(prefix, end string) io.Reader {
		return io.MultiReader(strings.NewReader(prefix), bytes.NewReader(text), strings.NewReader(end))
	}
	for name, read := range map[string]func() ([]byte, error){
		"a body": func() ([]byte, error) { return readBody(make([]byte, 0, readSize), stream("", ""), -1, limit) },
		"a body of known length": func() ([]byte, error) {
			return readBody(make([]byte, 0, readSize), stream("", ""), size, limit)
		},
		"a line": func() ([]byte, error) {
			line, _, err := newLineReader(stream("", "\n"), limit).nextLine()
			return line, err
		},
		"an event": func() ([]byte, error) {
			_, data, err := newEventReader(stream("data: ", "\n\n"), limit).nextEvent()
			return data, err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := read()
		runtime.ReadMemStats(&after)
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%s: %d bytes, error %v", name, len(got), err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > limit+limit/4 {
			t.Errorf("%s of %d MiB needs %d MiB of memory", name, size>>20, used>>20)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readBody(nil, io.LimitReader(stream("", ""), 100<<10), size, limit)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err != nil || used > 2<<20 {
		t.Errorf("a body of 100 KiB that announced %d MiB needs %d MiB of memory, error %v", size>>20, used>>20, err)
	}
	if _, err := readBody(nil, stream("", ""), -1, size-1); err == nil {
		t.Error("a body above the limit was read")
	}
}
