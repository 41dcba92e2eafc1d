package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// careful returns an agent with the tool do_asked, which needs a person's approval.
func careful() *agent.Agent {
	a := behaviorAgent()
	a.Tools = append(a.Tools, agent.Tool{
		Name: "do_asked", SideEffect: agent.Write, Policy: agent.ToolPolicy{HumanApproval: true}, Binding: agent.OnServer{Alias: "s"},
	})
	return a
}

// asking starts a call that waits for approval. It returns the pending approval and the channel that receives the
// error of the call.
func asking(t *testing.T, g *Gateway, args string) (*approval.Question, <-chan error) {
	t.Helper()
	ended := make(chan error, 1)
	asked := make(chan struct{}, 1)
	go func() {
		_, err := g.Call(context.Background(), &call.Call{
			Tool: "do_asked", Arguments: jsontext.Value(args), Principal: "me",
			OnNotify: func(_ string, params jsontext.Value) {
				if strings.Contains(string(params), "ambit approvals approve ") {
					asked <- struct{}{}
				}
			},
		})
		ended <- err
	}()
	<-asked
	list, err := approval.List(t.Context(), g.store, time.Now())
	if err != nil || len(list) != 1 {
		t.Fatalf("got %d pending approvals, want 1: %v", len(list), err)
	}
	return list[0], ended
}

func codeOf(err error) call.Code {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r.Code
	}
	return ""
}

func TestApproval(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		w := newWorld()
		b := open(t, connect())
		g := New(careful(), Options{Binding: w, Store: b})

		q, ended := asking(t, g, `{"to": "bob", "n": 12345678901234567890}`)
		if string(q.Arguments) != `{"n":12345678901234567890,"to":"bob"}` || q.Principal != "me" || q.Tool != "do_asked" {
			t.Errorf("the approver sees %+v", q)
		}
		if w.count() != 0 {
			t.Fatal("the tool was called before the call was approved")
		}
		if err := approval.Decide(t.Context(), b, q.ID, false, "boss@local", "not today"); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		if codeOf(err) != call.ApprovalDenied || !strings.Contains(err.Error(), "not today") {
			t.Errorf("the call ended with %v", err)
		}
		if err := approval.Decide(t.Context(), b, q.ID, true, "boss@local", ""); !errors.Is(err, approval.ErrDecided) {
			t.Errorf("a denied call was approved afterwards: %v", err)
		}

		// An approval admits one call only.
		q, ended = asking(t, g, `{"to":"bob"}`)
		if err := approval.Decide(t.Context(), b, q.ID, true, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || w.count() != 1 {
			t.Errorf("the call ended with %v, sent %d times", err, w.count())
		}
		q, ended = asking(t, g, `{"to":"bob"}`)
		if err := approval.Decide(t.Context(), b, q.ID, false, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; codeOf(err) != call.ApprovalDenied || w.count() != 1 {
			t.Errorf("an approval was used twice: %v, sent %d times", err, w.count())
		}
		if report, err := b.Journal.Verify(t.Context(), journal.Check{}); err != nil || !report.OK {
			t.Errorf("verifying the journal failed: %+v, %v", report, err)
		}
	})
}

// TestApprovalOutlivesItsCaller approves a call that has stopped waiting. The approval must admit an identical call in another
// process, and no different call.
func TestApprovalOutlivesItsCaller(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		w := newWorld()
		first := open(t, connect())
		g := New(careful(), Options{Binding: w, Store: first, Approvals: Approvals{TTL: time.Hour}})
		gone, cancel := context.WithCancel(t.Context())
		leave := func(string, jsontext.Value) { cancel() }
		_, err := g.Call(gone, &call.Call{Tool: "do_asked", Arguments: jsontext.Value(`{"n":1}`), Principal: "me", OnNotify: leave})
		if codeOf(err) != call.ApprovalExpired {
			t.Fatalf("the call ended with %v", err)
		}
		list, err := approval.List(t.Context(), first, time.Now())
		if err != nil || len(list) != 1 {
			t.Fatalf("got the pending approvals %v, want one: %v", list, err)
		}
		if err := approval.Decide(t.Context(), first, list[0].ID, true, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if w.count() != 0 {
			t.Fatal("the call was made although its caller has gone")
		}

		db := connect()
		b := store.New(db, first.Keys, nil)
		other := func(digest, principal, args string) error {
			a := careful()
			a.Digest = digest
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := New(a, Options{Binding: w, Store: b}).Call(ctx, &call.Call{
				Tool: "do_asked", Arguments: jsontext.Value(args), Principal: principal,
				OnNotify: func(string, jsontext.Value) { cancel() }, // called only if the call needs a new approval
			})
			return err
		}
		for name, err := range map[string]error{
			"other arguments": other("sha256:d1", "me", `{"n":2}`),
			"other principal": other("sha256:d1", "you", `{"n":1}`),
			"other manifest":  other("sha256:d2", "me", `{"n":1}`),
		} {
			if codeOf(err) != call.ApprovalExpired || w.count() != 0 {
				t.Errorf("%s: the call ended with %v, sent %d times", name, err, w.count())
			}
		}
		if err := other("sha256:d1", "me", ` {"n" : 1} `); err != nil || w.count() != 1 {
			t.Errorf("the identical call ended with %v, sent %d times", err, w.count())
		}
	})
}

// prepared is a world whose server starts only if it has no refusal.
type prepared struct {
	*world
	refusal *call.Refusal
}

func (p *prepared) Prepare(_ context.Context, tool *agent.Tool, principal string) error {
	if tool.Name != "do_asked" || principal != "me" {
		return errors.New("another call was prepared")
	}
	if p.refusal != nil {
		return p.refusal
	}
	return nil
}

// TestApprovalNeedsAServer calls a tool whose server does not start. The gateway asks no person, and does not use up
// an approval.
func TestApprovalNeedsAServer(t *testing.T) {
	down := call.Refuse("act", call.ServerUnavailable, "the server did not start")
	w := &prepared{world: newWorld(), refusal: down}
	b := open(t, statetest.Open(t))
	g := New(careful(), Options{Binding: w, Store: b})
	// ask makes a call that leaves when a person is asked.
	ask := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := g.Call(ctx, &call.Call{
			Tool: "do_asked", Arguments: jsontext.Value(`{}`), Principal: "me",
			OnNotify: func(string, jsontext.Value) { cancel() },
		})
		return err
	}
	fails := func() {
		t.Helper()
		if err := ask(); codeOf(err) != call.ServerUnavailable || w.count() != 0 {
			t.Fatalf("the call ended with %v, sent %d times", err, w.count())
		}
	}
	fails()
	if list, err := approval.List(t.Context(), b, time.Now()); err != nil || len(list) != 0 {
		t.Fatalf("a person is asked about %v, %v", list, err)
	}
	w.refusal = nil
	if err := ask(); codeOf(err) != call.ApprovalExpired {
		t.Fatalf("the call ended with %v", err)
	}
	list, err := approval.List(t.Context(), b, time.Now())
	if err != nil || len(list) != 1 {
		t.Fatalf("got %d pending approvals, want 1: %v", len(list), err)
	}
	if err := approval.Decide(t.Context(), b, list[0].ID, true, "boss@local", ""); err != nil {
		t.Fatal(err)
	}
	w.refusal = down
	fails()
	w.refusal = nil
	if err := ask(); err != nil || w.count() != 1 {
		t.Errorf("the approved call ended with %v, sent %d times", err, w.count())
	}
}

// TestOneApprovalAdmitsOneCall makes identical calls concurrently and approves once.
func TestOneApprovalAdmitsOneCall(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		w := newWorld()
		first := open(t, connect())
		const n = 8
		ended := make(chan error, n)
		waiting := make(chan struct{}, n)
		ctx, cancel := context.WithCancel(t.Context())
		for range n {
			db := connect()
			g := New(careful(), Options{Binding: w, Store: store.New(db, first.Keys, nil)})
			go func() {
				_, err := g.Call(ctx, &call.Call{Tool: "do_asked", Principal: "me", OnNotify: func(string, jsontext.Value) { waiting <- struct{}{} }})
				ended <- err
			}()
		}
		for range n {
			<-waiting
		}
		list, err := approval.List(t.Context(), first, time.Now())
		if err != nil || len(list) != 1 {
			t.Fatalf("got %d pending approvals for identical calls, want 1: %v", len(list), err)
		}
		if err := approval.Decide(t.Context(), first, list[0].ID, true, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		for range n {
			if err := <-ended; err != nil && codeOf(err) != call.ApprovalExpired {
				t.Error(err)
			}
		}
		cancel()
		if w.count() != 1 {
			t.Errorf("one approval admitted %d calls", w.count())
		}
	})
}

// TestClientLeavesDuringApproval checks that a call is not made if its client goes away while the call waits for approval.
func TestClientLeavesDuringApproval(t *testing.T) {
	w := newWorld()
	g := New(careful(), Options{Binding: w, Store: open(t, statetest.Open(t))})
	gone := make(chan struct{})
	_, err := g.Call(t.Context(), &call.Call{Tool: "do_asked", Principal: "me", Gone: gone, OnNotify: func(string, jsontext.Value) { close(gone) }})
	if codeOf(err) != call.TimedOut || !strings.Contains(err.Error(), "the client disconnected") || w.count() != 0 {
		t.Errorf("the call ended with %v, sent %d times", err, w.count())
	}
	list, err := approval.List(t.Context(), g.store, time.Now())
	if err != nil || len(list) != 1 || list[0].Left.IsZero() {
		t.Fatalf("the pending approvals are %+v, %v; want one whose caller left", list, err)
	}
	if err := approval.Decide(t.Context(), g.store, list[0].ID, false, "boss@local", "not today"); err != nil {
		t.Fatal(err)
	}
	_, err = g.Call(t.Context(), &call.Call{Tool: "do_asked", Principal: "me"})
	if codeOf(err) != call.ApprovalDenied || !strings.Contains(err.Error(), "boss@local refused the call to do_asked: not today") {
		t.Errorf("the repeated call ended with %v", err)
	}
	if hint := call.AsRefusal("", err).Hint; !strings.HasPrefix(hint, "do not repeat this call unless the user ") {
		t.Errorf("the hint is %q", hint)
	}
}

func TestApprovalExpires(t *testing.T) {
	w := newWorld()
	b := open(t, statetest.Open(t))
	g := New(careful(), Options{Binding: w, Store: b, Approvals: Approvals{TTL: 20 * time.Millisecond}})
	_, err := g.Call(t.Context(), &call.Call{Tool: "do_asked", Principal: "me"})
	if codeOf(err) != call.ApprovalExpired || w.count() != 0 {
		t.Errorf("the call ended with %v", err)
	}
	if list, err := approval.List(t.Context(), b, time.Now()); err != nil || len(list) != 0 {
		t.Errorf("an expired approval is still pending: %v, %v", list, err)
	}
}

// person is the user of a client that supports elicitation. The user always gives the same answer.
type person struct{ answer string }

func (p person) Ask(_ context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	if method != "elicitation/create" || !strings.Contains(string(params), `\"n\": 1`) {
		return nil, errors.New("unexpected request: " + string(params))
	}
	return jsontext.Value(p.answer), nil
}

func TestElicitation(t *testing.T) {
	for _, tt := range []struct {
		answer string
		trust  bool
		code   call.Code
	}{
		{`{"action":"accept","content":{"approve":true}}`, true, ""},
		{`{"action":"accept","content":{"approve":false}}`, true, call.ApprovalDenied},
		{`{"action":"decline"}`, true, call.ApprovalDenied},
		{`{"action":"accept","content":{"approve":"true"}}`, true, call.ApprovalDenied},
		{`nonsense`, true, call.ApprovalDenied},
		{`{"action":"accept","content":{"approve":true}}`, false, call.ApprovalExpired},
	} {
		w := newWorld()
		g := New(careful(), Options{Binding: w, Store: open(t, statetest.Open(t)), Approvals: Approvals{TTL: time.Minute, TrustElicitation: tt.trust}})
		if !tt.trust {
			g.options.Approvals.TTL = 20 * time.Millisecond // nobody answers, so the approval must expire
		}
		client := &call.Client{Capabilities: jsontext.Value(`{"elicitation":{}}`), Asker: person{tt.answer}}
		_, err := g.Call(t.Context(), &call.Call{Tool: "do_asked", Arguments: jsontext.Value(`{"n":1}`), Principal: "me", Client: client})
		if codeOf(err) != tt.code || (w.count() == 1) != (tt.code == "") {
			t.Errorf("%s, trusted %t: %v, sent %d times", tt.answer, tt.trust, err, w.count())
		}
	}
}

// A client of revision 2026-07-28 gets the question instead of a result. It repeats the call after its user has answered.
func TestElicitationByRepeatedCall(t *testing.T) {
	const yes = `{"action":"accept","content":{"approve":true}}`
	for name, tt := range map[string]struct {
		capabilities, parent, answer string
		trust, asked                 bool
		code                         call.Code // of the answer
		sent                         int
	}{
		"yes":                    {`{"elicitation":{}}`, "", yes, true, true, "", 1},
		"yes in a form":          {`{"elicitation":{"form":{},"url":{}}}`, "", yes, true, true, "", 1},
		"no":                     {`{"elicitation":{}}`, "", `{"action":"accept","content":{"approve":false}}`, true, true, call.ApprovalDenied, 0},
		"two spellings":          {`{"elicitation":{}}`, "", `{"action":"decline","ACTION":"accept","content":{"approve":false,"Approve":true}}`, true, true, call.ApprovalDenied, 0},
		"twice":                  {`{"elicitation":{}}`, "", `{"action":"accept","action":"decline","content":{"approve":true}}`, true, true, call.ApprovalDenied, 0},
		"twice in the form":      {`{"elicitation":{}}`, "", `{"action":"accept","content":{"approve":true,"approve":false}}`, true, true, call.ApprovalDenied, 0},
		"no answer":              {`{"elicitation":{}}`, "", "", true, true, call.ApprovalDenied, 0},
		"only pages":             {`{"elicitation":{"url":{}}}`, "", yes, true, false, "", 0},
		"part of a call":         {`{"elicitation":{}}`, "outer", yes, true, false, "", 0},
		"clients cannot approve": {`{"elicitation":{}}`, "", yes, false, false, call.ApprovalDenied, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			o := Options{Binding: w, Store: open(t, statetest.Open(t)), Approvals: Approvals{TTL: time.Hour, TrustElicitation: tt.trust}}
			if !tt.asked {
				o.Approvals.TTL = time.Millisecond
			}
			g := New(careful(), o)
			do := func() error {
				_, err := g.Call(t.Context(), &call.Call{
					Tool: "do_asked", Arguments: jsontext.Value(`{"n":1}`), Principal: "me", Parent: tt.parent,
					Client: &call.Client{Capabilities: jsontext.Value(tt.capabilities), Repeats: true},
				})
				return err
			}
			refusal, _ := errors.AsType[*call.Refusal](do())
			if refusal == nil || refusal.Code != call.ApprovalExpired || (refusal.Question != nil) != tt.asked {
				t.Fatalf("the first call: %+v, want a question: %v", refusal, tt.asked)
			}
			id := "none"
			if tt.asked {
				id = refusal.Question.Approval
				if shown := string(refusal.Question.Params); !strings.Contains(shown, `\"n\": 1`) {
					t.Errorf("the question does not show the arguments: %s", shown)
				}
			}
			if !tt.asked && tt.trust {
				return
			}
			if denied := g.Answer(t.Context(), id, "me", jsontext.Value(tt.answer)); codeOfRefusal(denied) != tt.code {
				t.Errorf("the answer: %v, want %q", denied, tt.code)
			}
			if err := do(); (err == nil) != (tt.sent == 1) || w.count() != tt.sent {
				t.Errorf("the repeated call: %v, sent %d times, want %d", err, w.count(), tt.sent)
			}
			if err := do(); err == nil || w.count() != tt.sent {
				t.Errorf("the approval admitted a second call: %v, sent %d times", err, w.count())
			}
		})
	}
}

func codeOfRefusal(r *call.Refusal) call.Code {
	if r == nil {
		return ""
	}
	return r.Code
}

// metaLog is a binding that records the _meta of each call.
type metaLog []string

func (l *metaLog) Act(_ context.Context, _ *agent.Tool, c *call.Call) (call.Result, error) {
	*l = append(*l, string(c.Meta))
	return call.Result{Raw: jsontext.Value(`{"content":[]}`)}, nil
}

// The approver sees only the arguments, so the server gets no other data that the caller chose.
func TestApprovedCallsCarryNoMeta(t *testing.T) {
	const chosen = `{"to":"mallory","progressToken":7,"io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/x":{"to":"mallory"}}`
	for _, tt := range []struct {
		tool, continues, want, detail string
	}{
		{"do_write", "", chosen, ""},
		{"do_asked", "", `{"progressToken":7,"io.modelcontextprotocol/logLevel":"info"}`, "members of _meta were not sent, because the approver does not see them"},
		{"do_asked", "earlier", `{"progressToken":7,"io.modelcontextprotocol/logLevel":"info"}`, "members of _meta were not sent, because the approver does not see them"},
	} {
		got := &metaLog{}
		g := New(careful(), Options{Binding: got, Store: open(t, statetest.Open(t)), Approvals: Approvals{TrustElicitation: true}})
		_, err := g.Call(t.Context(), &call.Call{
			Tool: tt.tool, Principal: "me", Meta: jsontext.Value(chosen), Continues: tt.continues,
			Client: &call.Client{Capabilities: jsontext.Value(`{"elicitation":{}}`), Asker: &yes{}},
		})
		if err != nil || len(*got) != 1 || (*got)[0] != tt.want {
			t.Errorf("%+v: the server got the _meta %v, error %v", tt, *got, err)
		}
		if last, err := g.store.Journal.Show(t.Context(), journal.Filter{Limit: 1}); err != nil || last[0].Detail != tt.detail {
			t.Errorf("%+v: the journal has %+v: %v", tt, last, err)
		}
	}
}

// The operator can require approval where the manifest does not.
func TestOperatorRequiresApproval(t *testing.T) {
	for _, tt := range []struct {
		name, tool string
		rules      guard.ApprovalRules
		asks       bool
	}{
		{"no rule", "do_write", guard.ApprovalRules{}, false},
		{"the tool", "do_write", guard.ApprovalRules{Tools: []string{"do_write"}}, true},
		{"another tool", "do_write", guard.ApprovalRules{Tools: []string{"do_read"}}, false},
		{"a tool that reads, and a rule for it", "do_read", guard.ApprovalRules{Tools: []string{"do_read"}}, true},
		{"a tool with effects, and a rule for its agent", "do_write", guard.ApprovalRules{Agents: []string{"theirs"}}, true},
		{"a tool that reads, and a rule for its agent", "do_read", guard.ApprovalRules{Agents: []string{"theirs"}}, false},
		{"a rule for another agent", "do_write", guard.ApprovalRules{Agents: []string{"mine"}}, false},
		{"the manifest requires approval, and the rule names another tool", "do_asked", guard.ApprovalRules{Tools: []string{"do_read"}}, true},
	} {
		got := &metaLog{}
		g := New(careful(), Options{
			Name: "theirs", Binding: got, Store: open(t, statetest.Open(t)), Approvals: Approvals{TTL: time.Millisecond},
			Operator: guard.Operator{Approval: tt.rules},
		})
		_, err := g.Call(t.Context(), &call.Call{Tool: tt.tool, Principal: "me"})
		if asked := codeOf(err) == call.ApprovalExpired; asked != tt.asks || asked == (len(*got) > 0) {
			t.Errorf("%s: the call ended with %v after %d calls of the server", tt.name, err, len(*got))
		}
	}
}

// yes is a client whose user approves everything. It records the last question.
type yes struct{ shown string }

func (y *yes) Ask(_ context.Context, _ string, params jsontext.Value) (jsontext.Value, error) {
	y.shown = string(params)
	return jsontext.Value(`{"action":"accept","content":{"approve":true}}`), nil
}

// A person who approves in the client sees hidden characters, and which words look like others.
func TestElicitationShowsWhatIsApproved(t *testing.T) {
	g := New(careful(), Options{Binding: &metaLog{}, Store: open(t, statetest.Open(t)), Approvals: Approvals{TrustElicitation: true}})
	client := &yes{}
	_, err := g.Call(t.Context(), &call.Call{
		Tool: "do_asked", Arguments: jsontext.Value("{\"to\":\"\u202eyrollam\u202c b\u200bob\", \"pay\":\"\u0440aypal\"}"), Principal: "me",
		Client: &call.Client{Capabilities: jsontext.Value(`{"elicitation":{}}`), Asker: client},
	})
	if err != nil {
		t.Fatal(err)
	}
	var shown struct{ Message string }
	if err := json.Unmarshal([]byte(client.shown), &shown); err != nil {
		t.Fatal(err)
	}
	want := `Clerk asks to call do_asked with these arguments:
{
  "pay": "` + "\u0440" + `aypal",
  "to": "\u202eyrollam\u202c b\u200bob"
}
"` + "\u0440" + `aypal" looks like "paypal", but is written with other letters`
	if shown.Message != want {
		t.Errorf("the person sees\n%s\nwant\n%s", shown.Message, want)
	}
}
