package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Stdio returns a transport that reads from a server's output and writes to the server's input. Each message is one
// line. Closing a stream must unblock a pending Read or Write, as it does for the pipes of os/exec, for sockets and
// for io.Pipe.
//
// One goroutine reads and another goroutine writes, so the transport still reads the output of a server that does not
// read its input. Messages that wait for the writer are sent together in the next write.
func Stdio(r io.ReadCloser, w io.WriteCloser) Transport {
	return &stdioTransport{
		r: r, w: w,
		wake:  make(chan struct{}, 1),
		space: make(chan struct{}, 1),
		over:  make(chan struct{}),
	}
}

type stdioTransport struct {
	r    io.ReadCloser
	w    io.WriteCloser
	conn *Conn

	mu    sync.Mutex
	queue []byte // complete lines that the writer has not sent yet

	wake  chan struct{} // contains a value if the queue may not be empty
	space chan struct{} // contains a value if the queue may have space again
	over  chan struct{} // closed by the method close
	once  sync.Once
}

var _ Transport = (*stdioTransport)(nil)

func (t *stdioTransport) start(c *Conn) {
	t.conn = c
	go t.read()
	go t.write()
}

func (t *stdioTransport) close() {
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
		case <-t.space:
		case <-ctx.Done():
			return notSent(ctx.Err())
		case <-t.over:
			return notSent(ErrClosed)
		}
	}
	return nil
}

// enqueue adds a message to the queue as one line. It returns false if the queue is full. An empty queue accepts every
// message. If enqueue returns true, the transport owns the body.
func (t *stdioTransport) enqueue(body []byte) bool {
	t.mu.Lock()
	if len(t.queue) > 0 && len(t.queue)+len(body) > t.conn.opts.MaxMessage {
		t.mu.Unlock()
		return false
	}
	OneLine(body)
	if body = append(body, '\n'); len(t.queue) == 0 {
		t.queue = body
	} else {
		t.queue = append(t.queue, body...)
	}
	t.mu.Unlock()
	signal(t.wake)
	return true
}

// OneLine replaces the line breaks in a message with spaces. In valid JSON, line breaks occur only between tokens.
func OneLine(b []byte) {
	for _, end := range []byte("\r\n") {
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
		t.queue = nil
		t.mu.Unlock()
		if len(lines) == 0 {
			continue
		}
		signal(t.space)
		if _, err := t.w.Write(lines); err != nil {
			t.conn.fail(err)
			return
		}
		if cap(lines) <= readSize {
			bodies.Put(&lines)
		}
	}
}

func (t *stdioTransport) read() {
	lines := newLineReader(t.r, t.conn.opts.MaxMessage)
	defer lines.release()
	defer t.conn.contain(nil)
	noise := 0
	for {
		line, owned, err := lines.nextLine()
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
			// A call may be waiting for this message, so close the connection.
			t.conn.fail(err)
			return
		} else if noise++; noise > t.conn.opts.MaxNoise {
			t.conn.reportNoise(line)
			t.conn.fail(err)
			return
		}
		t.conn.reportNoise(line)
	}
}

var errEnded = fmt.Errorf("the server closed its output: %w", io.EOF)
