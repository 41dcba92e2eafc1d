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
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// TestProgress checks two calls with the same progress token. Each call receives only its own progress, with that
// token.
func TestProgress(t *testing.T) {
	play(t, Options{OnNotification: func(n Notification) {
		if n.Method != "notifications/message" && n.Method != methodProgress {
			t.Errorf("OnNotification received an unexpected %s %s", n.Method, n.Params)
		}
	}}, legacy(func(f *fake) {
		var all []message
		for range 2 {
			all = append(all, f.expect(methodCallTool))
		}
		for step := range 3 {
			for _, m := range all {
				var p struct {
					Name string
					Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
				}
				if err := json.Unmarshal(m.Params, &p); err != nil {
					t.Error(err)
				}
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{ "x":1.0,"progressToken" : %s , "progress":%d,"message":"%s"}}`,
					p.Meta.ProgressToken, step, p.Name))
			}
		}
		f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ambit-99","progress":1}}`) // stray
		f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)          // this token did not come from the client
		f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"log"}}`)
		for _, m := range all {
			f.answer(m, `{}`)
		}
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			wg.Go(func() {
				var got []string
				_, err := c.CallTool(t.Context(), ToolCall{
					Name: name, Meta: []byte(`{"progressToken":"mine"}`),
					OnNotification: func(n Notification) { got = append(got, string(n.Params)) },
				})
				if err != nil {
					t.Error(err)
				}
				var want []string
				for step := range 3 {
					want = append(want, fmt.Sprintf(`{ "x":1.0,"progressToken" : "mine" , "progress":%d,"message":"%s"}`, step, name))
				}
				if !slices.Equal(got, want) {
					t.Errorf("call %s received %q, want %q", name, got, want)
				}
			})
		}
		wg.Wait()
		if got := c.Stats(); got.Stray != 1 || got.Dropped != 0 {
			t.Errorf("stats = %+v, want Stray 1 and Dropped 0", got)
		}
	})
}

// TestNoToken checks that a call without OnNotification requests no progress.
func TestNoToken(t *testing.T) {
	play(t, Options{}, legacy(func(f *fake) {
		m := f.expect(methodCallTool)
		if strings.Contains(m.line, "progressToken") {
			t.Errorf("the client sent %s, want no progressToken", m.line)
		}
		f.answer(m, `{}`)
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		if _, err := c.CallTool(t.Context(), ToolCall{Name: "x", Meta: []byte(`{"progressToken":1,"a":2}`)}); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowCallback checks a call whose callback blocks. The call loses its oldest notifications, but does not delay
// other calls.
func TestSlowCallback(t *testing.T) {
	const sent = 3 * maxNotes
	play(t, Options{}, legacy(func(f *fake) {
		slow := f.expect(methodCallTool)
		for i := range sent {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ambit-%s","progress":%d}}`, slow.ID, i))
		}
		f.answer(f.expect(methodCallTool), `{"quick":true}`)
		f.answer(slow, `{"slow":true}`)
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		release, done := make(chan struct{}), make(chan struct{})
		var got []string
		go func() {
			defer close(done)
			_, err := c.CallTool(t.Context(), ToolCall{Name: "slow", OnNotification: func(n Notification) {
				<-release
				got = append(got, string(n.Params))
			}})
			if err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		mustCall(t, c, "quick", `{}`, `{"quick":true}`)
		close(release)
		<-done
		dropped := int(c.Stats().Dropped)
		if len(got)+dropped != sent || dropped == 0 || !strings.Contains(got[len(got)-1], fmt.Sprint(sent-1)) {
			t.Errorf("received %d and dropped %d of %d notifications; the last one is %s", len(got), dropped, sent, got[len(got)-1])
		}
	})
}

// TestServerRequests covers the requests of a legacy server.
func TestServerRequests(t *testing.T) {
	handler := func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
		switch method {
		case "echo":
			return params, nil
		case "refuse":
			return nil, &RPCError{Code: 7, Message: "no", Data: []byte(`[1.0]`)}
		case "hang":
			<-ctx.Done()
			return nil, ctx.Err()
		default:
			return nil, errors.New("a secret")
		}
	}
	ask := func(f *fake, id, method, want string) {
		f.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"a" : 1}}`)
		if got := f.recv().line; got != `{"jsonrpc":"2.0","id":`+id+`,`+want+`}` {
			t.Errorf("the answer to %s is %s, want %s", method, got, want)
		}
	}
	t.Run("no handler", func(t *testing.T) {
		play(t, Options{}, legacy(func(f *fake) {
			m := f.recv()
			ask(f, `"a\u0062"`, "ping", `"result":{}`)
			ask(f, `7`, "roots/list", `"error":{"code":-32601,"message":"method not found"}`)
			f.answer(m, `{}`)
			f.idle()
		}), func(t *testing.T, c *Conn) {
			negotiate(t, c)
			mustCall(t, c, "tool", `{}`, `{}`)
		})
	})
	t.Run("handler", func(t *testing.T) {
		play(t, Options{OnRequest: handler}, legacy(func(f *fake) {
			m := f.recv()
			ask(f, `1`, "echo", `"result":{"a" : 1}`)
			ask(f, `2`, "refuse", `"error":{"code":7,"message":"no","data":[1.0]}`)
			ask(f, `3`, "fail", `"error":{"code":-32603,"message":"internal error"}`)
			synctestWait()
			for i := range sideJobs {
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"h%d","method":"hang"}`, i))
			}
			ask(f, `4`, "echo", `"error":{"code":-32603,"message":"too many requests at once"}`)
			f.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h3"}}`)
			synctestWait()
			ask(f, `5`, "echo", `"result":{"a" : 1}`)
			f.answer(m, `{}`)
			f.idle()
		}), func(t *testing.T, c *Conn) {
			negotiate(t, c)
			mustCall(t, c, "tool", `{}`, `{}`)
		})
	})
	t.Run("requests of modern servers are ignored", func(t *testing.T) {
		play(t, Options{OnRequest: handler}, modern(func(f *fake) {
			m := f.recv()
			f.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			f.answer(m, `{}`)
			f.idle()
		}), func(t *testing.T, c *Conn) {
			negotiate(t, c)
			mustCall(t, c, "tool", `{}`, `{}`)
			if c.Stats().Stray != 1 {
				t.Errorf("stats = %+v, want Stray 1", c.Stats())
			}
		})
	})
}

// synctestWait waits until all other goroutines of the synctest bubble are blocked.
func synctestWait() { time.Sleep(time.Millisecond) }

func TestNotifications(t *testing.T) {
	var heard diary
	play(t, Options{OnNotification: func(n Notification) { heard.write(n.Method + " " + string(n.Params)) }}, legacy(func(f *fake) {
		f.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"a":1.0}}}`)
		f.say(`{"jsonrpc":"2.0","method":"notifications/unheard_of"}`)
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		synctest.Wait()
		heard.want(t, MethodToolsChanged+` {"_meta":{"a":1.0}}`, "notifications/unheard_of ")
	})
}

// TestLargeNotifications checks that a notification that is too large reaches neither its call nor the callback.
func TestLargeNotifications(t *testing.T) {
	large := strings.Repeat("x", MaxNotification+1)
	var heard, dropped diary
	o := Options{
		OnNotification:      func(n Notification) { heard.write(fmt.Sprintf("%.100s", n.Method)) },
		OnLargeNotification: func(size int) { dropped.write(fmt.Sprint(size > MaxNotification)) },
	}
	play(t, o, legacy(func(f *fake) {
		asked := f.expect(methodCallTool)
		f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"` + large + `"}}`)
		f.say(`{"jsonrpc":"2.0","method":"` + large + `"}`)
		f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ambit-%s","progress":1,"x":"%s"}}`, asked.ID, large))
		f.say(`{"jsonrpc":"2.0","method":"notifications/small"}`)
		f.answer(asked, `{}`)
		f.idle()
	}), func(t *testing.T, c *Conn) {
		negotiate(t, c)
		_, err := c.CallTool(t.Context(), ToolCall{Name: "t", OnNotification: func(n Notification) { t.Errorf("the call got %s", n.Method) }})
		if err != nil {
			t.Fatal(err)
		}
		heard.want(t, "notifications/small")
		dropped.want(t, "true", "true", "true")
	})
}
