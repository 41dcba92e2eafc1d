package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// A closed gateway judges and records calls. It asks no person for approval, uses no limit or quota, and stores no
// intent.
func TestClosed(t *testing.T) {
	why := call.Refuse(stageAct, call.ServerUnavailable, "it is down")
	a := &agent.Agent{Name: "Desk", ID: "matrix://agent/desk", Digest: "sha256:d1", Tools: []agent.Tool{
		{Name: "pay", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "s"}, Policy: agent.ToolPolicy{Rate: &agent.Rate{Count: 1, Per: time.Hour}}},
		{Name: "wipe", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "s"}, Policy: agent.ToolPolicy{HumanApproval: true}},
	}}
	o := Options{
		Binding: &server{result: call.Result{Raw: jsontext.Value(fine)}}, Store: open(t, statetest.Open(t)),
		Quotas: &limit.Quotas{Quota: limit.Quota{PerDay: 1}}, Approvals: Approvals{TTL: time.Millisecond},
	}
	g := New(a, o)
	o.Closed = why
	closed := New(a, o)
	use := func(tool string) *call.Call {
		return &call.Call{Tool: tool, Arguments: jsontext.Value(`{}`), Principal: "me"}
	}
	refuse := func(c *call.Call) (call.Result, error) {
		c.Refused = why
		return g.Call(t.Context(), c)
	}
	for _, tool := range []string{"pay", "wipe"} {
		if _, err := closed.Call(t.Context(), use(tool)); codeOf(err) != call.ServerUnavailable {
			t.Errorf("the closed gateway returned %v, want server_unavailable", err)
		}
		if _, err := refuse(use(tool)); codeOf(err) != call.ServerUnavailable {
			t.Errorf("the refused call ended with %v, want server_unavailable", err)
		}
	}
	if _, err := refuse(use("nosuch")); codeOf(err) != call.UnknownTool {
		t.Errorf("the gateway did not judge a refused call: %v", err)
	}
	rows := 0
	err := o.Store.DB.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT id FROM calls`, nil, func(state.Row) error { rows++; return nil })
	})
	if err != nil || rows != 0 {
		t.Errorf("the store has %d unfinished calls, want 0: %v", rows, err)
	}
	entries, err := o.Store.Journal.Show(t.Context(), journal.Filter{})
	if err != nil || len(entries) != 5 {
		t.Errorf("the journal has %+v, %v; want five records", entries, err)
	}
	once := use("pay")
	once.IdempotencyKey = "once"
	if _, err := g.Call(t.Context(), once); err != nil {
		t.Errorf("the first call that is not refused ended with %v; the refused calls must not count toward its limits", err)
	}
	once = use("pay")
	once.IdempotencyKey = "once"
	if again, err := refuse(once); err != nil || string(again.Raw) != fine {
		t.Errorf("the repeat of an answered call got %s, %v", again.Raw, err)
	}
}

// The reason for closing a gateway may quote a server. The gateway therefore redacts secrets in
// the reason.
func TestClosedGatewayRedactsSecrets(t *testing.T) {
	token := "ghp_" + strings.Repeat("a1B2c3D4e5F6", 3)
	a := &agent.Agent{Name: "Desk", ID: "matrix://agent/desk", Digest: "sha256:d1", Tools: []agent.Tool{
		{Name: "look", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "s"}},
	}}
	g := New(a, Options{Store: open(t, statetest.Open(t)), Closed: call.Refuse(stageAct, call.ServerUnavailable, "bad token %s", token)})
	_, err := g.Call(t.Context(), &call.Call{Tool: "look", Arguments: jsontext.Value(`{}`), Principal: "me"})
	entries, bad := g.store.Journal.Show(t.Context(), journal.Filter{})
	if bad != nil || len(entries) != 1 {
		t.Fatalf("the journal has %+v, %v; want one record", entries, bad)
	}
	if outcome := fmt.Sprintf("%v %+v", err, entries[0]); codeOf(err) != call.ServerUnavailable || strings.Contains(outcome, token) || !strings.Contains(outcome, "bad token [secret:") {
		t.Errorf("the refusal and its record are %s; want the secret redacted", outcome)
	}
}
