package front

import (
	"context"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// approvalGateway refuses calls until the client's user has approved them.
type approvalGateway struct {
	Gateway
	approved bool
	got      *call.Call
}

func (g *approvalGateway) Call(_ context.Context, c *call.Call) (call.Result, error) {
	g.got = c
	if !g.approved {
		r := call.Refuse("approve", call.ApprovalExpired, "the call waits for approval 1")
		r.Question = &call.Question{Approval: "1", Params: jsontext.Value(`{"message":"sure?"}`)}
		return call.Result{}, r
	}
	return call.Result{Raw: []byte(`{"content":[{"type":"text","text":"done"}]}`)}, nil
}

func (g *approvalGateway) Answer(_ context.Context, approval, principal string, answer jsontext.Value) *call.Refusal {
	if g.approved = approval == "1" && principal == "me" && string(answer) == `"yes"`; !g.approved {
		return call.Refuse("approve", call.ApprovalDenied, "no")
	}
	return nil
}

// The client gets the question as a result. The repeated call carries the answer to the gateway, not to the server.
func TestApprovalByRepeatedCall(t *testing.T) {
	for answer, want := range map[string]string{`"yes"`: "done", `"no"`: "approval_denied"} {
		a := testAgent(t, &stage{})
		g := &approvalGateway{Gateway: a.Gateway}
		a.Gateway, a.Keys = g, testKeys
		result, problem := asks(t, a, "me", `"name":"ask","arguments":{}`)
		question := string(lookup(result, "inputRequests", approvalQuestion))
		if problem != nil || !asksForInput(result) || !strings.Contains(question, `"sure?"`) || !g.got.Client.Repeats {
			t.Fatalf("the first call: %s, %+v", result, problem)
		}
		sealed := string(lookup(result, "requestState"))
		again := `"name":"ask","arguments":{},"inputResponses":{"` + approvalQuestion + `":` + answer + `},"requestState":` + sealed
		result, problem = asks(t, a, "me", again)
		if problem != nil || !strings.Contains(string(result), want) || g.approved && g.got.More != nil {
			t.Errorf("%s: %s, %+v, the server gets %s", answer, result, problem, g.got.More)
		}
		if _, problem = asks(t, a, "me", again); problem == nil {
			t.Errorf("%s: the same answer counted twice", answer)
		}
	}
}
