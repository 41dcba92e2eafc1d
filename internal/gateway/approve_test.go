package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// careful is an agent one of whose tools asks a person.
func careful() *agent.Agent {
	a := clerk()
	a.Tools = append(a.Tools, agent.Tool{
		Name: "do_asked", SideEffect: agent.Write, Policy: agent.ToolPolicy{HumanApproval: true}, Binding: agent.OnServer{Alias: "s"},
	})
	return a
}

// asking makes a call that waits for a person, and returns its question.
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
		t.Fatalf("there are %d questions: %v", len(list), err)
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
		g := New(careful(), Options{Binding: w, Books: b})

		q, ended := asking(t, g, `{"to": "bob", "n": 12345678901234567890}`)
		if string(q.Arguments) != `{"n":12345678901234567890,"to":"bob"}` || q.Principal != "me" || q.Tool != "do_asked" {
			t.Errorf("the person sees %+v", q)
		}
		if w.count() != 0 {
			t.Fatal("it was called before anybody said yes")
		}
		if err := approval.Decide(t.Context(), b, q.ID, false, "boss@local", "not today"); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		if codeOf(err) != call.ApprovalDenied || !strings.Contains(err.Error(), "not today") {
			t.Errorf("it ended with %v", err)
		}
		if err := approval.Decide(t.Context(), b, q.ID, true, "boss@local", ""); !errors.Is(err, approval.ErrDecided) {
			t.Errorf("a no became a yes: %v", err)
		}

		// A yes is good for this call, once.
		q, ended = asking(t, g, `{"to":"bob"}`)
		if err := approval.Decide(t.Context(), b, q.ID, true, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || w.count() != 1 {
			t.Errorf("it ended with %v, sent %d times", err, w.count())
		}
		q, ended = asking(t, g, `{"to":"bob"}`)
		if err := approval.Decide(t.Context(), b, q.ID, false, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; codeOf(err) != call.ApprovalDenied || w.count() != 1 {
			t.Errorf("an approval was used twice: %v, sent %d times", err, w.count())
		}
		if report, err := b.Journal.Verify(t.Context(), journal.Check{}); err != nil || !report.OK {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// TestApprovalStands answers after the call stopped waiting: the answer applies to an
// identical call in another process, and to no other.
func TestApprovalStands(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		w := newWorld()
		first := open(t, connect())
		g := New(careful(), Options{Binding: w, Books: first, Approvals: Approvals{TTL: time.Hour}})
		gone, cancel := context.WithCancel(t.Context())
		told := func(string, jsontext.Value) { cancel() }
		_, err := g.Call(gone, &call.Call{Tool: "do_asked", Arguments: jsontext.Value(`{"n":1}`), Principal: "me", OnNotify: told})
		if codeOf(err) != call.ApprovalExpired {
			t.Fatalf("it ended with %v", err)
		}
		list, err := approval.List(t.Context(), first, time.Now())
		if err != nil || len(list) != 1 {
			t.Fatalf("the question has gone: %v, %v", list, err)
		}
		if err := approval.Decide(t.Context(), first, list[0].ID, true, "boss@local", ""); err != nil {
			t.Fatal(err)
		}
		if w.count() != 0 {
			t.Fatal("it ran unattended")
		}

		db := connect()
		b := &store.Store{DB: db, Keys: first.Keys, Journal: journal.New(db, first.Keys.Signer(), "test")}
		other := func(digest, principal, args string) error {
			a := careful()
			a.Digest = digest
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := New(a, Options{Binding: w, Books: b}).Call(ctx, &call.Call{
				Tool: "do_asked", Arguments: jsontext.Value(args), Principal: principal,
				OnNotify: func(string, jsontext.Value) { cancel() }, // it has to ask
			})
			return err
		}
		for name, err := range map[string]error{
			"other arguments": other("sha256:d1", "me", `{"n":2}`),
			"other principal": other("sha256:d1", "you", `{"n":1}`),
			"other manifest":  other("sha256:d2", "me", `{"n":1}`),
		} {
			if codeOf(err) != call.ApprovalExpired || w.count() != 0 {
				t.Errorf("%s: it ended with %v, sent %d times", name, err, w.count())
			}
		}
		if err := other("sha256:d1", "me", ` {"n" : 1} `); err != nil || w.count() != 1 {
			t.Errorf("the same call: %v, sent %d times", err, w.count())
		}
	})
}

// TestOneApprovalAdmitsOneCall has identical calls at once, with one yes.
func TestOneApprovalAdmitsOneCall(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		w := newWorld()
		first := open(t, connect())
		const n = 8
		ended := make(chan error, n)
		told := make(chan struct{}, n)
		ctx, cancel := context.WithCancel(t.Context())
		for range n {
			db := connect()
			g := New(careful(), Options{Binding: w, Books: &store.Store{DB: db, Keys: first.Keys, Journal: journal.New(db, first.Keys.Signer(), "test")}})
			go func() {
				_, err := g.Call(ctx, &call.Call{Tool: "do_asked", Principal: "me", OnNotify: func(string, jsontext.Value) { told <- struct{}{} }})
				ended <- err
			}()
		}
		for range n {
			<-told
		}
		list, err := approval.List(t.Context(), first, time.Now())
		if err != nil || len(list) != 1 {
			t.Fatalf("%d questions for one call: %v", len(list), err)
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
			t.Errorf("one approval let %d calls through", w.count())
		}
	})
}

// TestNobodyWaits approves a call whose caller has gone: it is not made.
func TestNobodyWaits(t *testing.T) {
	w := newWorld()
	g := New(careful(), Options{Binding: w, Books: open(t, statetest.Open(t))})
	gone := make(chan struct{})
	_, err := g.Call(t.Context(), &call.Call{Tool: "do_asked", Principal: "me", Gone: gone, OnNotify: func(string, jsontext.Value) { close(gone) }})
	if codeOf(err) != call.ApprovalExpired || w.count() != 0 {
		t.Errorf("it ended with %v, sent %d times", err, w.count())
	}
}

func TestApprovalExpires(t *testing.T) {
	w := newWorld()
	b := open(t, statetest.Open(t))
	g := New(careful(), Options{Binding: w, Books: b, Approvals: Approvals{TTL: 20 * time.Millisecond}})
	_, err := g.Call(t.Context(), &call.Call{Tool: "do_asked", Principal: "me"})
	if codeOf(err) != call.ApprovalExpired || w.count() != 0 {
		t.Errorf("it ended with %v", err)
	}
	if list, err := approval.List(t.Context(), b, time.Now()); err != nil || len(list) != 0 {
		t.Errorf("an expired question still waits: %v, %v", list, err)
	}
}

// person is who sits at a client that can ask.
type person struct{ answer string }

func (p person) Ask(_ context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	if method != "elicitation/create" || !strings.Contains(string(params), `{\"n\":1}`) {
		return nil, errors.New("asked something else: " + string(params))
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
		g := New(careful(), Options{Binding: w, Books: open(t, statetest.Open(t)), Approvals: Approvals{TTL: time.Minute, TrustElicitation: tt.trust}})
		if !tt.trust {
			g.approvals.TTL = 20 * time.Millisecond // no other answer will come
		}
		client := &call.Client{Capabilities: jsontext.Value(`{"elicitation":{}}`), Asker: person{tt.answer}}
		_, err := g.Call(t.Context(), &call.Call{Tool: "do_asked", Arguments: jsontext.Value(`{"n":1}`), Principal: "me", Client: client})
		if codeOf(err) != tt.code || (w.count() == 1) != (tt.code == "") {
			t.Errorf("%s, trusted %t: %v, sent %d times", tt.answer, tt.trust, err, w.count())
		}
	}
}
