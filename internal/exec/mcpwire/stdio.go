package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Stdio makes a transport of a server's standard streams: r is its output, w its
// input. One message is one line. Closing r and w must end a Read and a Write
// that are under way, as it does for the pipes of os/exec, sockets and io.Pipe.
//
// Two goroutines serve it. One reads; one writes, so that a server that does not
// read its input blocks nobody but itself. What waits to be written is one
// buffer: messages that come while a write is under way leave in the next one
// together.
func Stdio(r io.ReadCloser, w io.WriteCloser) Transport {
	return &stdioTransport{
		r: r, w: w,
		wake: make(chan struct{}, 1),
		room: make(chan struct{}, 1),
		over: make(chan struct{}),
	}
}

type stdioTransport struct {
	r    io.ReadCloser
	w    io.WriteCloser
	conn *Conn

	mu    sync.Mutex
	queue []byte // whole lines that wait for the writer
	spare []byte // the buffer that was written last

	wake chan struct{} // holds a token when the queue is not empty
	room chan struct{} // holds a token when the queue may have room again
	over chan struct{}
	once sync.Once
}

var _ Transport = (*stdioTransport)(nil)

// keepSpare is the largest write buffer that is kept for the next write.
const keepSpare = 1 << 20

func (t *stdioTransport) start(c *Conn) {
	t.conn = c
	go t.read()
	go t.write()
}

func (t *stdioTransport) shut() {
	t.once.Do(func() {
		close(t.over)
		t.w.Close()
		t.r.Close()
	})
}

func (t *stdioTransport) send(ctx context.Context, m outgoing) error {
	if len(m.body) > t.conn.opts.MaxMessage {
		return notSent(&TooLargeError{Limit: t.conn.opts.MaxMessage})
	}
	for !t.enqueue(m.body) {
		if m.droppable {
			return notSent(errBacklog)
		}
		select {
		case <-t.room:
		case <-ctx.Done():
			return notSent(ctx.Err())
		case <-t.over:
			return notSent(ErrClosed)
		}
	}
	return nil
}

// enqueue adds a line to the queue, unless there is no room. A message always
// finds room in an empty queue.
func (t *stdioTransport) enqueue(body []byte) bool {
	t.mu.Lock()
	start := len(t.queue)
	if start > 0 && start+len(body) > t.conn.opts.MaxMessage {
		t.mu.Unlock()
		return false
	}
	t.queue = append(t.queue, body...)
	oneLine(t.queue[start:])
	t.queue = append(t.queue, '\n')
	t.mu.Unlock()
	signal(t.wake)
	return true
}

// oneLine takes the line ends out of a message. JSON has them only as white
// space, between its tokens.
func oneLine(b []byte) {
	for _, end := range [...]byte{'\n', '\r'} {
		rest := b
		for i := bytes.IndexByte(rest, end); i >= 0; i = bytes.IndexByte(rest, end) {
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (t *stdioTransport) write() {
	for {
		select {
		case <-t.wake:
		case <-t.over:
			return
		}
		t.mu.Lock()
		lines := t.queue
		t.queue, t.spare = t.spare[:0], nil
		t.mu.Unlock()
		if len(lines) == 0 {
			continue
		}
		signal(t.room)
		if _, err := t.w.Write(lines); err != nil {
			t.conn.fail(err)
			return
		}
		if cap(lines) <= keepSpare {
			t.mu.Lock()
			t.spare = lines
			t.mu.Unlock()
		}
	}
}

func (t *stdioTransport) read() {
	lines := newLineReader(t.r, t.conn.opts.MaxMessage)
	defer lines.release()
	noise := 0
	for {
		line, owned, err := lines.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errEnded
			}
			t.conn.fail(err)
			return
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if _, err := t.conn.deliver(line, owned, sharedStream); err == nil {
			noise = 0
			continue
		} else if looksLikeMessage(line) {
			// Somebody waits for what this was to be.
			t.conn.fail(err)
			return
		} else if noise++; noise > t.conn.opts.MaxNoise {
			t.conn.hear(line)
			t.conn.fail(err)
			return
		}
		t.conn.hear(line)
	}
}

var errEnded = fmt.Errorf("the server ended its output: %w", io.EOF)
