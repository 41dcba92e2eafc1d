package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An error that already says that nothing was sent does not say it twice.
func TestNotSentOnce(t *testing.T) {
	once := notSent(errors.New("the pipe is full"))
	if got := notSent(fmt.Errorf("tools/call: %w", once)).Error(); strings.Count(got, "not sent") != 1 {
		t.Errorf("got %q", got)
	}
}

// TestNoise checks that OnNoise receives a copy of the beginning of each line that is not a message.
func TestNoise(t *testing.T) {
	var heard diary
	var kept []byte
	o := Options{OnNoise: func(line []byte) {
		heard.write(string(line))
		kept = line
	}}
	play(t, o, legacy(func(f *fake) {
		m := f.recv()
		f.say("hello")
		f.say(strings.Repeat("x", 2*maxNoiseLine))
		f.answer(m, `{}`)
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		mustCall(t, c, "tool", `{}`, `{}`)
		heard.want(t, "hello", strings.Repeat("x", maxNoiseLine))
		if strings.Trim(string(kept), "x") != "" {
			t.Errorf("the line that OnNoise received has changed: %.20q", kept)
		}
	})
}

// TestSentences checks that the messages of errors name the fix, and that they quote and shorten text from the server.
func TestSentences(t *testing.T) {
	evil := "\x1b[2J\u202e" + strings.Repeat("x", 1000)
	for _, err := range []error{
		&RPCError{Code: 1, Message: evil},
		malformed("no", []byte(evil)),
		&VersionError{Server: []string{evil}},
		&HTTPError{Status: 500, Sample: evil},
		&HTTPError{Status: 500, RPC: &RPCError{Message: evil}},
		&RedirectError{Status: 307, Location: evil},
		&closedError{&RPCError{Message: evil}},
	} {
		if s := err.Error(); strings.ContainsAny(s, "\x1b\u202e") || len(s) > 600 {
			t.Errorf("%T prints %q, which is not quoted or too long", err, s)
		}
	}
	for err, want := range map[error]string{
		ErrSSEOnly:                            "HTTP+SSE",
		ErrRespawnLegacy:                      "start the server again",
		&TooLargeError{Limit: 5}:              "limit of 5 bytes",
		&HTTPError{Status: 503}:               "HTTP status 503",
		&closedError{}:                        "closed",
		&VersionError{Server: []string{"x"}}:  `supports "x", and ambit supports 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 and 2026-07-28`,
		&RedirectError{307, "https://b.test"}: `to "https://b.test", but redirects are not followed`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%T prints %q, want %q in it", err, err, want)
		}
	}
}

// TestHundredMegabyteLine checks that the limit for messages also bounds the memory that a huge line uses.
func TestHundredMegabyteLine(t *testing.T) {
	var before, after runtime.MemStats
	play(t, Options{MaxMessage: 4 << 20}, legacy(func(f *fake) {
		m := f.recv()
		fmt.Fprintf(f.out, `{"jsonrpc":"2.0","id":%s,"result":{"text":"`, m.ID)
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range 100 {
			if _, err := f.out.Write(chunk); err != nil {
				return
			}
		}
		t.Error("the client read 100 MB instead of stopping at its limit")
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := callTool(t, c, "tool", `{}`)
		runtime.ReadMemStats(&after)
		wantError(t, err, ErrClosed)
		var large *TooLargeError
		if !errors.As(err, &large) || large.Limit != 4<<20 {
			t.Errorf("error = %v, want a TooLargeError with a limit of 4 MiB", err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 40<<20 { // the buffer grows in steps
			t.Errorf("the client allocated %d bytes with a limit of 4 MiB", used)
		}
	})
}

// TestBacklog checks a server that does not read its input. The queue of messages to this server is bounded.
// Calls that do not fit in the queue return ErrNotSent.
func TestBacklog(t *testing.T) {
	big := `{"x":"` + strings.Repeat("x", 600<<10) + `"}`
	play(t, Options{MaxMessage: 1 << 20}, legacy(func(f *fake) { <-f.dead() }), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		results := make(chan error, 4)
		for range cap(results) {
			go func() {
				_, err := callTool(t, c, "tool", big)
				results <- err
			}()
		}
		unsent := 0
		for range cap(results) {
			err := <-results
			wantError(t, err, context.DeadlineExceeded)
			if errors.Is(err, ErrNotSent) {
				unsent++
			}
		}
		// One call is being written and one is queued. The queue has no space for the other two.
		if unsent != 2 {
			t.Errorf("%d calls were not sent, want 2", unsent)
		}
		_, err := callTool(t, c, "tool", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
		wantError(t, err, ErrNotSent, new(*TooLargeError))
	})
}

// TestBacklogDrains checks that calls waiting for the queue are sent when the server reads again.
func TestBacklogDrains(t *testing.T) {
	big := `{"x":"` + strings.Repeat("x", 600<<10) + `"}`
	play(t, Options{MaxMessage: 1 << 20}, legacy(func(f *fake) {
		time.Sleep(10 * time.Second) // in fake time, every call is waiting by then
		for m := f.recv(); m.line != ""; m = f.recv() {
			f.answer(m, `{"size":`+fmt.Sprint(len(m.line))+`}`)
		}
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		results := make(chan error, 20)
		for range cap(results) {
			go func() {
				_, err := callTool(t, c, "tool", big)
				results <- err
			}()
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestMaxPending(t *testing.T) {
	play(t, Options{MaxPending: 3}, legacy((*fake).idle), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 3)
		for range cap(results) {
			go func() {
				_, err := c.CallTool(ctx, ToolCall{Name: "tool"})
				results <- err
			}()
		}
		synctest.Wait()
		_, err := callTool(t, c, "tool", `{}`)
		wantError(t, err, ErrTooManyPending, ErrNotSent)
		cancel()
		for range cap(results) {
			wantError(t, <-results, context.Canceled)
		}
	})
}

// TestCloseEndsEveryCall checks that Close ends all waiting calls with ErrClosed.
func TestCloseEndsEveryCall(t *testing.T) {
	play(t, Options{}, legacy((*fake).idle), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		results := make(chan error, 100)
		for range cap(results) {
			go func() {
				_, err := c.CallTool(t.Context(), ToolCall{Name: "tool", OnNotification: func(Notification) {}})
				results <- err
			}()
		}
		synctest.Wait()
		c.Close()
		for range cap(results) {
			wantError(t, <-results, ErrClosed)
		}
		if _, err := c.CallTool(t.Context(), ToolCall{Name: "tool"}); !errors.Is(err, ErrNotSent) {
			t.Errorf("error of a call after Close = %v, want ErrNotSent", err)
		}
	})
}
