package mcpwire

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestHostile makes one call to each of several servers that violate the protocol. The function play checks that
// no goroutine is left.
func TestHostile(t *testing.T) {
	echo := func(f *fake) {
		for m := f.recv(); m.line != ""; m = f.recv() {
			f.answer(m, `{"content":[]}`)
		}
	}
	for _, tc := range []struct {
		name    string
		options Options
		server  func(*fake)
		want    string // the expected result; empty for an error
		errors  []any
		fails   bool // whether the connection must have ended after the call
		stats   Stats
	}{
		{
			name:   "silent",
			server: legacy((*fake).idle),
			errors: []any{context.DeadlineExceeded},
		},
		{
			name:   "exits",
			server: legacy(func(f *fake) { f.recv(); f.exit() }),
			errors: []any{ErrClosed, io.EOF}, fails: true,
		},
		{
			name:   "closes only its output",
			server: legacy(func(f *fake) { f.recv(); f.w.Close(); f.idle() }),
			errors: []any{ErrClosed, io.EOF}, fails: true,
		},
		{
			name:   "closes only its input", // the client notices this when it cancels the call
			server: legacy(func(f *fake) { f.recv(); f.r.Close() }),
			errors: []any{context.DeadlineExceeded}, fails: true,
		},
		{
			name: "exits in the middle of its answer",
			server: legacy(func(f *fake) {
				m := f.recv()
				fmt.Fprintf(f.out, `{"jsonrpc":"2.0","id":%s,"resu`, m.ID)
				f.exit()
			}),
			errors: []any{ErrClosed, new(*MalformedError)}, fails: true,
		},
		{
			name: "exits after an answer without a line end",
			server: legacy(func(f *fake) {
				m := f.recv()
				fmt.Fprintf(f.out, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
				f.exit()
			}),
			want: `{}`, fails: true,
		},
		{
			name: "prints noise before it answers",
			server: legacy(func(f *fake) {
				m := f.recv()
				f.say("Server listening on stdio")
				f.say(`{"level":30,"msg":"started","method":"GET"}`)
				f.say("{'python': True}")
				f.say("\x1b[31mred\x1b[0m \xff")
				f.say("")
				f.answer(m, `{"ok":1}`)
				f.idle()
			}),
			want: `{"ok":1}`, stats: Stats{Noise: 4},
		},
		{
			name:    "prints only noise",
			options: Options{MaxNoise: 50},
			server: legacy(func(f *fake) {
				f.recv()
				for {
					if _, err := io.WriteString(f.out, "still starting\n"); err != nil {
						return
					}
				}
			}),
			errors: []any{ErrClosed, new(*MalformedError)}, fails: true, stats: Stats{Noise: 51},
		},
		{
			name: "answers with invalid JSON",
			server: legacy(func(f *fake) {
				m := f.recv()
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"a":}}`, m.ID))
				f.idle()
			}),
			errors: []any{ErrClosed, new(*MalformedError)}, fails: true,
		},
		{
			name: "answers with text that is not UTF-8",
			server: legacy(func(f *fake) {
				m := f.recv()
				f.answer(m, "{\"text\":\"\xff\xfe\"}")
				f.answer(f.recv(), `{}`)
				f.idle()
			}),
			errors: []any{new(*MalformedError)},
		},
		{
			name: "logs text that is not UTF-8",
			server: legacy(func(f *fake) {
				m := f.recv()
				f.say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"\xff\"}}")
				f.answer(m, `{}`)
				f.idle()
			}),
			want: `{}`, stats: Stats{Noise: 1},
		},
		{
			name: "nests a million deep",
			server: legacy(func(f *fake) {
				m := f.recv()
				f.answer(m, strings.Repeat("[", 1e6)+strings.Repeat("]", 1e6))
				f.idle()
			}),
			errors: []any{ErrClosed, new(*MalformedError)}, fails: true,
		},
		{
			name:    "sends a line that exceeds the limit",
			options: Options{MaxMessage: 1 << 20},
			server: legacy(func(f *fake) {
				m := f.recv()
				f.answer(m, `{"text":"`+strings.Repeat("x", 1<<20)+`"}`)
				f.idle()
			}),
			errors: []any{ErrClosed, new(*TooLargeError)}, fails: true,
		},
		{
			name: "answers with both members, one null",
			server: legacy(func(f *fake) {
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","error":null,"result":{"a":1},"id":%s}`, f.recv().ID))
				f.idle()
			}),
			want: `{"a":1}`,
		},
		{
			name: "answers with two results in one message",
			server: legacy(func(f *fake) {
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"a":1},"resul\u0074":{"a":2}}`, f.recv().ID))
				f.idle()
			}),
			errors: []any{ErrClosed, new(*MalformedError)}, fails: true,
		},
		{
			name: "answers unknown ids",
			server: legacy(func(f *fake) {
				m := f.recv()
				for _, id := range []string{"0", "-1", "999999", `"3"`, "1.5", "1e0", "123456789012345678901234567890", `"x"`} {
					f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"forged":true}}`)
				}
				f.say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`)
				f.answer(m, `{"real":true}`)
				f.idle()
			}),
			want: `{"real":true}`, stats: Stats{Stray: 8, Noise: 1},
		},
		{
			name: "answers a message in a batch",
			server: legacy(func(f *fake) {
				m := f.recv()
				f.say(fmt.Sprintf(` [{"jsonrpc":"2.0","method":"notifications/message"}, {"jsonrpc":"2.0","id":%s,"result":{"b":2}}] `, m.ID))
				f.idle()
			}),
			want: `{"b":2}`,
		},
		{
			name: "sends a broken batch",
			server: legacy(func(f *fake) {
				m := f.recv()
				f.say(fmt.Sprintf(`[{"jsonrpc":"2.0","id":%s,"result":{"b":2}},]`, m.ID))
				f.idle()
			}),
			errors: []any{ErrClosed, new(*MalformedError)}, fails: true,
		},
		{
			name: "answers with an invalid error object",
			server: legacy(func(f *fake) {
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":"x"}}`, f.recv().ID))
				f.idle()
			}),
			errors: []any{new(*MalformedError)},
		},
		{
			name: "floods with notifications before it answers",
			server: legacy(func(f *fake) {
				m := f.recv()
				note := []byte(strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}`+"\n", 100))
				for range 500 {
					f.out.Write(note)
				}
				f.answer(m, `{"flood":"over"}`)
				f.idle()
			}),
			want: `{"flood":"over"}`,
		},
		{
			name: "floods with pings and reads no answer",
			server: legacy(func(f *fake) {
				for range 2000 {
					f.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				}
				m := f.recv()
				for ; m.Method != methodCallTool; m = f.recv() {
				}
				f.answer(m, `{"ping":"pong"}`)
				f.idle()
			}),
			want: `{"ping":"pong"}`,
		},
		{
			name:   "never reads its input",
			server: legacy(func(f *fake) { <-f.dead() }),
			errors: []any{context.DeadlineExceeded},
		},
		{
			name:   "follows the protocol, for comparison",
			server: legacy(echo),
			want:   `{"content":[]}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play(t, tc.options, tc.server, func(t *testing.T, c *Conn) {
				negotiate(t, c)
				got, err := callTool(t, c, "tool", `{}`)
				if tc.want != got {
					t.Errorf("result = %q, want %q", got, tc.want)
				}
				if (err == nil) != (tc.errors == nil) {
					t.Errorf("error = %v, want an error: %v", err, tc.errors != nil)
				}
				wantError(t, err, tc.errors...)
				synctest.Wait()
				if failed := c.Err() != nil; failed != tc.fails {
					t.Errorf("the error of the connection is %v, want an error: %v", c.Err(), tc.fails)
				}
				if tc.fails {
					_, err := callTool(t, c, "tool", `{}`)
					wantError(t, err, ErrClosed, ErrNotSent)
				}
				if got := c.Stats(); got != tc.stats {
					t.Errorf("stats = %+v, want %+v", got, tc.stats)
				}
			})
		})
	}
}

// dead returns a channel that is closed when the client has closed its end. It reads nothing from the client.
func (f *fake) dead() <-chan struct{} {
	ch := make(chan struct{})
	go func() {
		defer close(ch)
		for {
			if _, err := f.w.Write([]byte("\n")); err != nil {
				return
			}
			time.Sleep(time.Second) // fake time
		}
	}()
	return ch
}

// TestSampleCutsNoWord checks that an error does not cut a server's text inside a word. Secret scanners do not
// recognize half of a credential.
func TestSampleCutsNoWord(t *testing.T) {
	const secret = "hunter2-hunter2-hunter2"
	before := `{"error":"` + strings.Repeat("no luck, ", 19)
	body := before + `"token":"` + secret + `"}`
	if len(body) <= maxSample || len(before)+10 >= maxSample {
		t.Fatal("bad test: the secret must cross the limit of maxSample bytes")
	}
	for name, err := range map[string]error{
		"malformed": malformed("odd", []byte(body)),
		"status":    &HTTPError{Status: 500, Sample: cutSample(body)},
		"redirect":  &RedirectError{Status: 302, Location: body},
	} {
		if said := err.Error(); strings.Contains(said, "hunter2") || !strings.Contains(said, "no luck, ") {
			t.Errorf("%s: the error shows part of the secret, or not the text before it: %s", name, said)
		}
	}
	for text, want := range map[string]string{
		strings.Repeat("x", maxSample):   strings.Repeat("x", maxSample),
		strings.Repeat("x", maxSample+1): "",
		strings.Repeat("é", maxSample):   strings.Repeat("é", maxSample/2-1), // é does not appear in credentials, so it separates words
	} {
		if got := cutSample(text); got != want {
			t.Errorf("beginning(%q) = %q, want %q", text, got, want)
		}
	}
}
