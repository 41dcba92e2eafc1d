package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Stdio returns a transport over a server's standard streams: r is its output, w its input. One message is
// one line. Closing r and w must end a pending Read and Write, as it does for the pipes of os/exec, sockets
// and io.Pipe.
//
// One goroutine reads and one writes, so a server that does not read its input blocks only itself. Waiting
// messages share one buffer and leave together in the next write.
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
	queue []byte // whole lines for the writer
	spare []byte // the buffer written last

	wake  chan struct{} // holds a token when the queue is not empty
	space chan struct{} // holds a token when the queue may have space again
	over  chan struct{}
	once  sync.Once
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
		case <-t.space:
		case <-ctx.Done():
			return notSent(ctx.Err())
		case <-t.over:
			return notSent(ErrClosed)
		}
	}
	return nil
}

// enqueue adds a line to the queue and reports whether there was space. An empty queue accepts every
// message.
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

// oneLine replaces the line ends in a message. JSON contains them only as white space between tokens.
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
		signal(t.space)
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
			// A call may wait for this message.
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
