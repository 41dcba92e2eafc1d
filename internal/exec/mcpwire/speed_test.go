package mcpwire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// responder is a server that answers every request immediately. It allocates no memory for a request, so the
// benchmarks measure only the client.
func responder(r io.Reader, w io.Writer) {
	buf := make([]byte, 64<<10)
	out := make([]byte, 0, 4<<10)
	for n := 0; ; {
		k, err := r.Read(buf[n:])
		if err != nil {
			return
		}
		n += k
		for {
			end := bytes.IndexByte(buf[:n], '\n')
			if end < 0 {
				break
			}
			out = out[:0]
			if _, rest, ok := bytes.Cut(buf[:end], []byte(`"id":`)); ok {
				id := rest[:bytes.IndexByte(rest, ',')]
				result := `{"content":[{"type":"text","text":"hello"}]}`
				if bytes.Contains(rest, []byte(`"initialize"`)) {
					result = initializeResult
				}
				out = append(append(out, `{"jsonrpc":"2.0","id":`...), id...)
				out = append(append(append(out, `,"result":`...), result...), '}', '\n')
			}
			n = copy(buf, buf[end+1:n])
			if _, err := w.Write(out); err != nil {
				return
			}
		}
	}
}

func quickConn(tb testing.TB) *Conn {
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	go responder(serverIn, serverOut)
	c := New(Stdio(clientIn, clientOut), Options{Legacy: true})
	tb.Cleanup(func() { c.Close() })
	if _, err := c.Negotiate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestCallAllocations(t *testing.T) {
	noLeaks(t)
	c := quickConn(t)
	call := ToolCall{Name: "echo", Arguments: []byte(`{"message":"hello"}`)}
	n := testing.AllocsPerRun(1000, func() {
		if _, err := c.CallTool(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	})
	if n > 5 { // usually one or two allocations, but more with the race detector
		t.Errorf("a call allocates memory %v times, want at most 5", n)
	}
}

func BenchmarkCallTool(b *testing.B) {
	c := quickConn(b)
	call := ToolCall{Name: "echo", Arguments: []byte(`{"message":"hello"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.CallTool(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for name, text := range map[string]string{"ASCII": "hello ", "Unicode": "héllo ", "escapes": `h\u00e9\n`} {
		msg := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"%s"}]}}`, strings.Repeat(text, 1000))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(msg)))
			for b.Loop() {
				if _, _, problem := readEnvelope(msg); problem != "" {
					b.Fatal(problem)
				}
			}
		})
	}
}

// TestStress checks that every call gets its own answer or an error. Many callers cancel their calls. The server
// answers in any order, late and twice.
func TestStress(t *testing.T) {
	noLeaks(t)
	c, f := pair(t, Options{Legacy: true})
	served := make(chan struct{})
	go func() {
		defer close(served)
		f.greetLegacy()
		var held []message
		for m := f.recv(); m.line != ""; m = f.recv() {
			if m.Method != methodCallTool {
				continue
			}
			held = append(held, m)
			for len(held) > rand.IntN(4) {
				i := rand.IntN(len(held))
				var p struct{ Arguments json.RawMessage }
				if err := json.Unmarshal(held[i].Params, &p); err != nil {
					t.Error(err)
				}
				for range 1 + rand.IntN(2) {
					f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ambit-%s","for":%s}}`, held[i].ID, p.Arguments))
					f.answer(held[i], string(p.Arguments))
				}
				held = append(held[:i], held[i+1:]...)
			}
		}
	}()
	negotiate(t, c)
	var wg sync.WaitGroup
	for caller := range 16 {
		wg.Go(func() {
			for i := range 100 {
				arguments := fmt.Sprintf(`{"caller":%d,"call":%d,"pad":"%s"}`, caller, i, strings.Repeat("x", rand.IntN(2000)))
				call := ToolCall{Name: "echo", Arguments: []byte(arguments)}
				if i%3 == 0 {
					call.OnNotification = func(n Notification) {
						if !strings.Contains(string(n.Params), arguments) {
							t.Errorf("caller %d received a notification of another call: %s", caller, n.Params)
						}
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
				result, err := c.CallTool(ctx, call)
				cancel()
				if err == nil && string(result) != arguments {
					t.Errorf("caller %d sent %s and got %s", caller, arguments, result)
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("caller %d: %v", caller, err)
				}
			}
		})
	}
	wg.Wait()
	c.Close()
	f.exit()
	<-served
	t.Logf("%+v", c.Stats())
}
