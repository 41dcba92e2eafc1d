package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// scripted is a [desk] that calls a function while it opens a page.
type scripted struct {
	*desk
	open func(c *call.Call)
}

func (s *scripted) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	f.OnNotify("notifications/message", jsontext.Value(`{"level":"info","data":"`+hostile+`"}`))
	return jsontext.Value(`{}`), nil
}

func (s *scripted) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	if t.Name == "open_page" && s.open != nil {
		s.open(c)
	}
	return s.desk.Act(ctx, t, c)
}

// hearing is a client that answers every request from a server.
type hearing struct{ call.Asker }

func (hearing) Ask(context.Context, string, jsontext.Value) (jsontext.Value, error) {
	return jsontext.Value(`{"action":"decline"}`), nil
}

// A value from an untrusted page is noticed in whatever order calls, sessions and processes read it and use it.
func TestNoWayAroundByOrder(t *testing.T) {
	type setting struct {
		b       *store.Store
		connect func() *store.Store // connects to the same store as another process
		flow    *Flow
		d       *scripted
	}
	start := func(s *setting, b *store.Store, f *Flow) *Gateway {
		return newOffice(b, s.d.desk, f, func(o *Options) { o.Binding = s.d })
	}
	read := func(t *testing.T, g *Gateway) {
		t.Helper()
		if err := say(t, g, "me", "1", "open_page", page); err != nil {
			t.Fatal(err)
		}
	}
	keyed := func() *call.Call {
		return &call.Call{
			Tool: "open_page", Arguments: jsontext.Value(page), Principal: "me", IdempotencyKey: "k", Client: &call.Client{Key: "1"},
		}
	}
	forget := func(t *testing.T, s *setting) {
		t.Helper()
		if err := s.b.DB.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`DELETE FROM flow_reads`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, last := range map[string]func(t *testing.T, s *setting) error{
		"parallel calls": func(t *testing.T, s *setting) error {
			g := start(s, s.b, s.flow)
			read(t, g)
			ended := make(chan error, 8)
			for range cap(ended) {
				go func() { ended <- say(t, g, "me", "1", "send_mail", mailThem) }()
			}
			var err error
			for range cap(ended) {
				if one := <-ended; err == nil || codeOf(one) != call.ApprovalExpired {
					err = one
				}
			}
			return err
		},
		"a message of a call that still runs": func(t *testing.T, s *setting) (err error) {
			g := start(s, s.b, s.flow)
			s.d.open = func(c *call.Call) {
				c.OnNotify("notifications/progress", jsontext.Value(`{"progress":1,"message":"`+hostile+`"}`))
				err = say(t, g, "me", "1", "send_mail", mailThem)
			}
			c := keyed()
			c.IdempotencyKey, c.OnNotify = "", func(string, jsontext.Value) {}
			if _, err := g.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			return err
		},
		"a question of a call that still runs": func(t *testing.T, s *setting) (err error) {
			g := start(s, s.b, s.flow)
			s.d.open = func(c *call.Call) {
				if _, err := c.Client.Asker.Ask(t.Context(), "sampling/createMessage", jsontext.Value(`{"text":"`+hostile+`"}`)); err != nil {
					t.Error(err)
				}
				err = say(t, g, "me", "1", "send_mail", mailThem)
			}
			c := keyed()
			c.IdempotencyKey, c.Client.Asker = "", hearing{}
			if _, err := g.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			return err
		},
		"a message of a request that still runs": func(t *testing.T, s *setting) (err error) {
			g := start(s, s.b, s.flow)
			_, failed := g.Forward(t.Context(), &call.Forward{
				Server: "s", Method: "resources/read", Params: jsontext.Value(`{"uri":"note:1"}`), Principal: "me",
				OnNotify: func(string, jsontext.Value) { err = say(t, g, "me", "1", "send_mail", mailThem) },
			})
			if failed != nil {
				t.Fatal(failed)
			}
			return err
		},
		"a message that belongs to no call": func(t *testing.T, s *setting) error {
			g := start(s, s.b, s.flow)
			c := g.Guard(&call.Client{Key: "1", Principal: "me", Notify: func(string, jsontext.Value) {}})
			c.Notify("notifications/message", jsontext.Value(`{"level":"info","data":"`+hostile+`"}`))
			return say(t, g, "me", "1", "send_mail", mailThem)
		},
		"the refusal of an agent whose server failed": func(t *testing.T, s *setting) error {
			closed := newOffice(s.b, s.d.desk, s.flow, func(o *Options) {
				o.Closed = call.Refuse(stageAct, call.ServerUnavailable, "server s exited: %s", hostile)
			})
			if err := say(t, closed, "me", "1", "open_page", page); codeOf(err) != call.ServerUnavailable {
				t.Fatal(err)
			}
			return say(t, start(s, s.b, s.flow), "me", "1", "send_mail", mailThem)
		},
		"a restart after such a refusal": func(t *testing.T, s *setting) error {
			closed := newOffice(s.b, s.d.desk, s.flow, func(o *Options) {
				o.Closed = call.Refuse(stageAct, call.ServerUnavailable, "server s exited: %s", hostile)
			})
			if err := say(t, closed, "me", "1", "open_page", page); codeOf(err) != call.ServerUnavailable {
				t.Fatal(err)
			}
			return say(t, start(s, s.connect(), NewFlow()), "me", "1", "send_mail", mailThem)
		},
		"a restart after a message that belongs to no call": func(t *testing.T, s *setting) error {
			g := start(s, s.b, s.flow)
			c := g.Guard(&call.Client{Key: "1", Principal: "me", Notify: func(string, jsontext.Value) {}})
			c.Notify("notifications/message", jsontext.Value(`{"level":"info","data":"`+hostile+`"}`))
			return say(t, start(s, s.connect(), NewFlow()), "me", "1", "send_mail", mailThem)
		},
		"a cancelled call that is answered": func(t *testing.T, s *setting) error {
			g := start(s, s.b, s.flow)
			ctx, cancel := context.WithCancel(t.Context())
			s.d.open = func(*call.Call) { cancel() }
			_, _ = g.Call(ctx, keyed())
			return say(t, g, "me", "1", "send_mail", mailThem)
		},
		"a late answer that is replayed": func(t *testing.T, s *setting) error {
			g := start(s, s.b, s.flow)
			answer := make(chan struct{})
			s.d.open = func(*call.Call) { <-answer }
			c := keyed()
			c.Timeout = time.Millisecond
			_, err := g.Call(t.Context(), c)
			close(answer)
			if codeOf(err) != call.TimedOut {
				t.Fatal(err)
			}
			g.Close()
			g = start(s, s.b, s.flow)
			if _, err := g.Call(t.Context(), keyed()); err != nil {
				t.Fatal(err)
			}
			return say(t, g, "me", "1", "send_mail", mailThem)
		},
		"an answer that another process replays": func(t *testing.T, s *setting) error {
			if _, err := start(s, s.b, s.flow).Call(t.Context(), keyed()); err != nil {
				t.Fatal(err)
			}
			forget(t, s)
			g := start(s, s.connect(), NewFlow())
			if _, err := g.Call(t.Context(), keyed()); err != nil {
				t.Fatal(err)
			}
			forget(t, s)
			return say(t, g, "me", "1", "send_mail", mailThem)
		},
		"a restart after a replay": func(t *testing.T, s *setting) error {
			if _, err := start(s, s.b, s.flow).Call(t.Context(), keyed()); err != nil {
				t.Fatal(err)
			}
			forget(t, s)
			if _, err := start(s, s.connect(), NewFlow()).Call(t.Context(), keyed()); err != nil {
				t.Fatal(err)
			}
			return say(t, start(s, s.connect(), NewFlow()), "me", "1", "send_mail", mailThem)
		},
		"a continued call": func(t *testing.T, s *setting) error {
			g := start(s, s.b, s.flow)
			read(t, g)
			_, err := g.Call(t.Context(), &call.Call{
				Tool: "send_mail", Arguments: jsontext.Value(mailThem), Principal: "me", Client: &call.Client{Key: "1"}, Continues: NewID(),
			})
			return err
		},
		"a second gateway": func(t *testing.T, s *setting) error {
			other := start(s, s.connect(), NewFlow())
			read(t, start(s, s.b, s.flow))
			return say(t, other, "me", "2", "send_mail", mailThem)
		},
		"a second gateway that has already asked the store": func(t *testing.T, s *setting) error {
			other := start(s, s.connect(), NewFlow())
			c := keyed()
			c.Refused = call.Refuse(stageClosed, call.ServerUnavailable, "closed")
			if _, err := other.Call(t.Context(), c); codeOf(err) != call.ServerUnavailable {
				t.Fatal(err)
			}
			read(t, start(s, s.b, s.flow))
			return say(t, other, "me", "2", "send_mail", mailThem)
		},
		"a search before the call, after a restart": func(t *testing.T, s *setting) error {
			read(t, start(s, s.b, s.flow))
			g := start(s, s.connect(), NewFlow())
			if err := say(t, g, "me", "1", "search_contacts", `{"query":"`+stranger+`"}`); err != nil {
				t.Fatal(err)
			}
			return say(t, g, "me", "1", "send_mail", mailThem)
		},
		"a new session that uses the value first": func(t *testing.T, s *setting) error {
			g := start(s, s.b, s.flow)
			read(t, g)
			if err := say(t, g, "me", "2", "search_contacts", `{"query":"`+stranger+`"}`); err != nil {
				t.Fatal(err)
			}
			return say(t, g, "me", "2", "send_mail", mailThem)
		},
	} {
		t.Run(name, func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				b := open(t, connect())
				s := &setting{b: b, flow: NewFlow(), d: &scripted{desk: &desk{}}}
				s.connect = func() *store.Store { return store.New(connect(), b.Keys, nil) }
				if err := last(t, s); codeOf(err) != call.ApprovalExpired || s.d.count() != 0 {
					t.Errorf("the call ended with %v, and %d calls were made", err, s.d.count())
				}
			})
		})
	}
}

// The approver sees only the arguments, so a continued call with a value from text in its answers is refused.
func TestContinuedCallsAreTraced(t *testing.T) {
	d := &desk{}
	g := newOffice(open(t, statetest.Open(t)), d, NewFlow(), nil)
	if err := say(t, g, "me", "1", "open_page", page); err != nil {
		t.Fatal(err)
	}
	_, err := g.Call(t.Context(), &call.Call{
		Tool: "send_mail", Arguments: jsontext.Value(`{}`), Principal: "me", Client: &call.Client{Key: "1"}, Continues: NewID(),
		More: jsontext.Value(`{"inputResponses":{"q":{"action":"accept","content":{"to":"` + stranger + `"}}}}`),
	})
	if codeOf(err) != call.InputInvalid || d.count() != 0 {
		t.Errorf("the call ended with %v, and %d calls were made", err, d.count())
	}
}
