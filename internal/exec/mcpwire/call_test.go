package mcpwire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"
)

// odd is JSON that changes if it is decoded and encoded again: it has unusual spaces, numbers and escapes, duplicate
// keys, a lone surrogate and unknown members.
const odd = `{ "zeta" : 1.0,"alpha":1e400, "n":123456789012345678901234567890,` +
	`"content":[{"type":"hologram","beam":{"x":[ ]},"_meta":{"a/b":null}},{"type":"text","text":"\u0041\/\ud800 é\u2028"}],` +
	`"_meta":{"io.example/x":[1,2 , 3]},"dup":1,"dup":2,"isError":false}`

func TestLossless(t *testing.T) {
	for _, era := range []struct {
		name  string
		greet func(func(*fake)) func(*fake)
	}{{"legacy", legacy}, {"modern", modern}} {
		t.Run(era.name, func(t *testing.T) {
			play(t, Options{}, era.greet(func(f *fake) {
				m := f.expect(methodCallTool)
				if !strings.Contains(m.line, `,"arguments":`+odd) {
					t.Errorf("the arguments have changed: %s", m.line)
				}
				for _, want := range []string{`"io.example/trace":{ "id" : 1.50 }`, `"requestState":"s\u0020"`} {
					if !strings.Contains(m.line, want) {
						t.Errorf("%s is missing in %s", want, m.line)
					}
				}
				f.answer(m, odd)
				m = f.expect("x/custom")
				if !strings.Contains(m.line, `"zeta":1.0`) {
					t.Errorf("the params have changed: %s", m.line)
				}
				f.answer(m, odd)
				m = f.expect(methodListTools)
				f.answer(m, `{"tools":[{"description" : "é", "name":"on\u0065","execution":{"x":1}} , {"name":"two"}],"nextCursor":"c\u0031"}`)
				m = f.expect(methodListTools)
				if !strings.Contains(m.line, `"cursor":"c\u0031"`) {
					t.Errorf("the cursor has changed: %s", m.line)
				}
				f.answer(m, `{"tools":[{"name":"three"}],"nextCursor":null}`)
				f.idle()
			}), func(t *testing.T, c *Conn) {
				negotiate(t, c)
				got, err := c.CallTool(t.Context(), ToolCall{
					Name: "tool", Arguments: []byte(" " + odd + "\n"),
					Meta: []byte(`{"io.example/trace":{ "id" : 1.50 }}`),
					More: []byte(`{"requestState":"s\u0020"}`),
				})
				if err != nil || string(got) != odd {
					t.Errorf("CallTool = %s, %v", got, err)
				}
				if got, err := c.Call(t.Context(), "x/custom", jsontext.Value(`{"zeta":1.0}`)); err != nil || string(got) != odd {
					t.Errorf("Call = %s, %v", got, err)
				}
				tools, err := c.ListTools(t.Context())
				want := []Tool{
					{Name: "one", Raw: []byte(`{"description" : "é", "name":"on\u0065","execution":{"x":1}}`)},
					{Name: "two", Raw: []byte(`{"name":"two"}`)},
					{Name: "three", Raw: []byte(`{"name":"three"}`)},
				}
				if err != nil || !slices.EqualFunc(tools, want, func(a, b Tool) bool { return a.Name == b.Name && string(a.Raw) == string(b.Raw) }) {
					t.Errorf("ListTools = %s, %v", tools, err)
				}
			})
		})
	}
}

// TestLosslessLarge checks that messages larger than the read buffers arrive unchanged, even if several calls run
// concurrently.
func TestLosslessLarge(t *testing.T) {
	play(t, Options{}, legacy(func(f *fake) {
		for m := f.recv(); m.line != ""; m = f.recv() {
			var p struct{ Arguments json.RawMessage }
			if err := json.Unmarshal(m.Params, &p); err != nil {
				t.Error(err)
			}
			f.answer(m, string(p.Arguments))
		}
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		var wg sync.WaitGroup
		for i, size := range []int{0, 1, 100, readSize - 40, readSize, readSize + 1, 3 * readSize, 1 << 20} {
			wg.Go(func() {
				arguments := fmt.Sprintf(`{"i":%d,"x":"%s"}`, i, strings.Repeat("é", size/2))
				for range 3 {
					mustCall(t, c, "echo", arguments, arguments)
				}
			})
		}
		wg.Wait()
	})
}

// TestNewlines checks that line breaks in the arguments do not end the line of the message.
func TestNewlines(t *testing.T) {
	play(t, Options{}, legacy(func(f *fake) {
		m := f.expect(methodCallTool)
		if want := `"arguments":{  "a":  "\n" }`; !strings.Contains(m.line, want) {
			t.Errorf("sent %q, want %s in it", m.line, want)
		}
		f.answer(m, `{}`)
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		mustCall(t, c, "tool", "{\r\n\"a\":\n\r\"\\n\"\n}", `{}`)
	})
}

func TestBadInput(t *testing.T) {
	play(t, Options{}, legacy((*fake).idle), func(t *testing.T, c *Conn) {
		if _, err := c.CallTool(t.Context(), ToolCall{Name: "tool"}); !errors.Is(err, ErrNotNegotiated) {
			t.Errorf("error before Negotiate = %v, want ErrNotNegotiated", err)
		}
		negotiate(t, c)
		for name, call := range map[string]ToolCall{
			"arguments that close the envelope": {Arguments: []byte(`{}},"method":"tools/list","x":{"y":{}`)},
			"arguments that are not an object":  {Arguments: []byte(`[]`)},
			"arguments that are not UTF-8":      {Arguments: []byte("{\"a\":\"\xff\"}")},
			"two values":                        {Arguments: []byte(`{}{}`)},
			"meta that is not an object":        {Meta: []byte(`1`)},
			"a second name":                     {More: []byte(`{"nam\u0065":"other"}`)},
		} {
			if _, err := c.CallTool(t.Context(), call); !errors.Is(err, ErrNotSent) {
				t.Errorf("%s: error = %v, want ErrNotSent", name, err)
			}
		}
		if _, err := c.Call(t.Context(), "x", []byte(`[1]`)); !errors.Is(err, ErrNotSent) {
			t.Errorf("params that are an array: error = %v, want ErrNotSent", err)
		}
	})
}

// TestOutOfOrder checks that every call gets its own answer. The server answers the calls in reverse order and
// answers each call twice.
func TestOutOfOrder(t *testing.T) {
	const calls = 50
	play(t, Options{}, legacy(func(f *fake) {
		var all []message
		for range calls {
			all = append(all, f.expect(methodCallTool))
		}
		for _, m := range slices.Backward(all) {
			result := fmt.Sprintf(`{"to":%s}`, m.Params)
			f.answer(m, result)
			f.answer(m, `{"again":true}`)
		}
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				name := fmt.Sprintf("tool-%d", i)
				mustCall(t, c, name, `{}`, `{"to":{"name":"`+name+`","arguments":{}}}`)
			})
		}
		wg.Wait()
		synctest.Wait()
		if got := c.Stats().Stray; got != calls {
			t.Errorf("%d stray answers, want %d", got, calls)
		}
	})
}

func TestRPCError(t *testing.T) {
	raw := `{"message":"no \u0074ool","code":-32602,"data":{ "x":1.0 },"extra":[]}`
	play(t, Options{}, legacy(func(f *fake) {
		f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, f.recv().ID, raw))
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		_, err := callTool(t, c, "tool", `{}`)
		var e *RPCError
		if !errors.As(err, &e) || e.Code != -32602 || e.Message != "no tool" || string(e.Data) != `{ "x":1.0 }` || string(e.Raw) != raw {
			t.Errorf("error = %#v", err)
		}
		if errors.Is(err, ErrNotSent) {
			t.Error("the error wraps ErrNotSent, although the server answered")
		}
	})
}

func TestCancel(t *testing.T) {
	play(t, Options{}, legacy(func(f *fake) {
		m := f.expect(methodCallTool)
		cancelled := f.expect(methodCancelled)
		if want := fmt.Sprintf(`{"requestId":%s,`, m.ID); !strings.HasPrefix(string(cancelled.Params), want) {
			t.Errorf("sent %s, want %s", cancelled.Params, want)
		}
		f.answer(m, `{"late":true}`) // after the call was cancelled
		f.answer(f.expect(methodCallTool), `{"next":true}`)
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := c.CallTool(ctx, ToolCall{Name: "tool"})
			done <- err
		}()
		synctest.Wait()
		cancel()
		wantError(t, <-done, context.Canceled)
		mustCall(t, c, "tool", `{}`, `{"next":true}`)
		if got := c.Stats().Stray; got != 1 {
			t.Errorf("%d stray answers, want 1 (the late answer)", got)
		}
	})
}

func TestListToolsBounds(t *testing.T) {
	for name, tc := range map[string]struct {
		page func(i int) string
		want string
	}{
		"a cycle":                 {func(i int) string { return fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, i%3) }, "repeats a page"},
		"no end":                  {func(i int) string { return fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, i) }, "more than 1000 pages"},
		"large pages without end": {func(i int) string { return fmt.Sprintf(`{"tools":[{"name":"%09999d"}],"nextCursor":"%d"}`, i, i) }, "larger than the limit"},
		"no list":                 {func(int) string { return `{}` }, "no list"},
		"no object":               {func(int) string { return `[]` }, "not an object"},
		"no name":                 {func(int) string { return `{"tools":[{"title":"x"}]}` }, "no name"},
		"two names":               {func(int) string { return `{"tools":[{"name":"a","n\u0061me":"b"}]}` }, "two names"},
		"a number as name":        {func(int) string { return `{"tools":[{"name":1}]}` }, "no name"},
		"half a character":        {func(int) string { return `{"tools":[{"name":"\ud800"}]}` }, "no name"},
		"null":                    {func(int) string { return `{"tools":[null]}` }, "not an object"},
		"two lists":               {func(int) string { return `{"tools":[],"tools":[{"name":"x"}]}` }, "twice"},
		"input required":          {func(int) string { return `{"resultType":"input_required","tools":[]}` }, "input_required"},
		"a cursor object":         {func(int) string { return `{"tools":[],"nextCursor":{}}` }, "cursor"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{MaxMessage: 1 << 20}, legacy(func(f *fake) {
				for i := 0; ; i++ {
					m := f.recv()
					if m.line == "" {
						return
					}
					f.answer(m, tc.page(i))
				}
			}), func(t *testing.T, c *Conn) {
				negotiate(t, c)
				_, err := c.ListTools(t.Context())
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error = %v, want %q in it", err, tc.want)
				}
			})
		})
	}
}
