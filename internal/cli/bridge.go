package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/front"
)

// bridge passes messages between a client and a daemon. It never sends a message twice. If the daemon ends, the bridge
// answers the requests that the daemon has not answered, and an agent in this process continues to serve the client.
type bridge struct {
	out io.Writer

	mu   sync.Mutex
	open map[string]mcpwire.Message // the requests that have no answer yet, by id
	// asked contains the ids of the daemon's questions that the client has not answered.
	asked map[string]bool
	// state contains the client's requests that the next session repeats, so that it has the same settings and
	// subscriptions as this session. The session repeats them in the order of their keys. The client does not get the
	// answers.
	state map[string]mcpwire.Message
}

func newBridge(out io.Writer) *bridge {
	return &bridge{
		out: out, open: map[string]mcpwire.Message{}, asked: map[string]bool{}, state: map[string]mcpwire.Message{},
	}
}

const (
	// maxLine is the maximum size of a client's message. The daemon has the same limit.
	maxLine = 32 << 20
	// maxState is the maximum number of requests that the next session repeats. It is larger than the number of resources
	// that a client can watch.
	maxState = 1100
)

// pass passes messages until the client has left or the daemon has ended. If the daemon has ended first, pass answers
// the open requests and returns the rest of the client's input. Otherwise, rest is nil, and err is the reason if the input
// could not be read.
func (b *bridge) pass(ctx context.Context, in io.Reader, conn *daemon.Joined) (rest io.Reader, err error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	lines, ended := make(chan []byte), make(chan struct{})
	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 64<<10), maxLine+1)
	go func() {
		defer close(lines)
		for scan.Scan() {
			lines <- append(bytes.Clone(scan.Bytes()), '\n')
		}
	}()
	go func() {
		defer close(ended)
		b.receive(conn)
	}()
	from := lines
	for {
		select {
		case line, more := <-from:
			if !more {
				_ = conn.CloseWrite() // the daemon answers the open requests and then closes the connection
				from = nil
				if err = scan.Err(); errors.Is(err, bufio.ErrTooLong) {
					err = errors.New("a message is larger than 32 MiB")
					fmt.Fprintln(b.out, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is larger than 32 MiB"}}`)
				}
				continue
			}
			b.sent(line)
			_, _ = conn.Write(line) // if this fails, the daemon has ended
		case <-ended:
			b.lost()
			if ctx.Err() != nil || from == nil && err == nil {
				return nil, nil
			}
			if from == nil {
				return nil, inputError(err)
			}
			return &lineReader{lines: lines}, nil
		}
	}
}

// sent remembers a message of the client, before it is sent.
func (b *bridge) sent(line []byte) {
	m, problem := mcpwire.ReadMessage(line)
	if problem != "" {
		return // the daemon answers it with an error
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case m.Method == "notifications/cancelled":
		delete(b.open, string(rawjson.Lookup(m.Params, "requestId"))) // a cancelled request gets no answer
		return
	case m.Method == "":
		delete(b.asked, string(m.ID))
		return
	case m.ID == nil:
		return
	}
	b.open[string(m.ID)] = m
	switch m.Method {
	case "initialize":
		b.state["0"] = m
	case "logging/setLevel":
		b.state["1"] = m
	case "resources/subscribe":
		if len(b.state) < maxState {
			b.state["2"+string(m.Params)] = m
		}
	case "resources/unsubscribe":
		delete(b.state, "2"+string(m.Params))
	}
}

// receive passes messages of the daemon to the client until the daemon closes the connection.
func (b *bridge) receive(conn *daemon.Joined) {
	for {
		line, err := conn.Lines.ReadBytes('\n')
		if err != nil {
			return // the rest of an unfinished message is dropped
		}
		m, _ := mcpwire.ReadMessage(line)
		b.mu.Lock()
		switch {
		case m.Method == "notifications/cancelled":
			delete(b.asked, string(rawjson.Lookup(m.Params, "requestId")))
		case m.Method == "":
			delete(b.open, string(m.ID))
		case m.ID != nil:
			b.asked[string(m.ID)] = true
		}
		b.mu.Unlock()
		if _, err := b.out.Write(line); err != nil {
			return
		}
	}
}

// changesNothing reports whether the next session can answer a request that the daemon has not answered.
func changesNothing(method string) bool {
	return method == "initialize" || method == "server/discover" || method == "ping" || strings.HasSuffix(method, "/list")
}

// lost answers the open requests, and cancels the daemon's questions to the client. Requests that change nothing remain
// for the next session.
func (b *bridge) lost() {
	r := call.Refuse("act", call.OutcomeUnknown,
		"the connection to the daemon ended before the answer arrived; the call may have been made")
	r.Hint = "before you repeat a call that changes something, check whether it was made: ambit journal show --unknown"
	for id, m := range b.open {
		if !changesNothing(m.Method) {
			_, _ = b.out.Write(front.NewUnanswered(m).Answer(r)) // if this fails, the client has left
			delete(b.open, id)
		}
	}
	for id := range b.asked {
		fmt.Fprintf(b.out, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`+"\n", id)
	}
}

// carryOn returns the input and output of the next session. The input begins with the requests in b.state, and then
// contains the rest of the client's input. The output drops the answers to the requests in b.state.
func (b *bridge) carryOn(rest io.Reader) (in io.Reader, out io.Writer) {
	var again bytes.Buffer
	for _, m := range b.open {
		if m.Method == "initialize" {
			b.state = nil // the client has not seen this session yet, so it needs no other one
			fmt.Fprintf(&again, `{"jsonrpc":"2.0","id":%s,"method":"initialize","params":%s}`+"\n", m.ID, params(m))
			delete(b.open, string(m.ID))
			break
		}
	}
	prefix := `{"jsonrpc":"2.0","id":"` + rand.Text()
	for i, key := range slices.Sorted(maps.Keys(b.state)) {
		m := b.state[key]
		fmt.Fprintf(&again, `%s-%d","method":%s,"params":%s}`+"\n", prefix, i, strconv.Quote(m.Method), params(m))
	}
	for id, m := range b.open {
		fmt.Fprintf(&again, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`+"\n", id, strconv.Quote(m.Method), params(m))
	}
	if len(b.state) > 0 { // only for the older protocol: in the newer one, the client must repeat its subscription anyway
		fmt.Fprintln(b.out, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
	return io.MultiReader(&again, rest), &dropping{out: b.out, prefix: []byte(prefix), left: len(b.state)}
}

func params(m mcpwire.Message) []byte {
	if m.Params == nil {
		return []byte("{}")
	}
	return m.Params
}

// dropping is a writer of lines. It drops the next lines that begin with the prefix.
type dropping struct {
	out    io.Writer
	prefix []byte
	left   int
	line   []byte
}

func (d *dropping) Write(p []byte) (int, error) {
	if d.left == 0 {
		return d.out.Write(p)
	}
	d.line = append(d.line, p...)
	if d.line[len(d.line)-1] != '\n' { // a message is written in one or several parts; the last one ends the line
		return len(p), nil
	}
	line := d.line
	d.line = nil
	if bytes.HasPrefix(line, d.prefix) {
		d.left--
		return len(p), nil
	}
	if _, err := d.out.Write(line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// lineReader reads the lines that arrive on a channel.
type lineReader struct {
	lines <-chan []byte
	line  []byte
}

func (r *lineReader) Read(p []byte) (int, error) {
	if len(r.line) == 0 {
		line, more := <-r.lines
		if !more {
			return 0, io.EOF
		}
		r.line = line
	}
	n := copy(p, r.line)
	r.line = r.line[n:]
	return n, nil
}
