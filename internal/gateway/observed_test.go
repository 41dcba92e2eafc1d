package gateway

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// observing is a binding whose server contacts one host and is refused others.
type observing struct{ err error }

const githubToken = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

func (o observing) Act(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
	return call.Result{Raw: jsontext.Value(`{"content":[]}`), Observed: call.Observed{
		Contacted: []string{"a.test:443"}, Omitted: 3,
		Refused: []agent.Right{
			{Kind: agent.CanConnect, What: "10.0.0.1:5432", Private: true},
			{Kind: agent.CanExecute, What: "/tmp/" + githubToken},
		},
	}}, o.err
}

// A call's record lists the hosts that the server contacted and the rights that it lacked, even if the call failed. It
// contains no secret.
func TestRecordOfWhatWasObserved(t *testing.T) {
	for _, err := range []error{nil, errors.New("the server ended")} {
		g := newGateway(t, observing{err})
		_, _ = g.Call(t.Context(), &call.Call{Tool: "do_read", Arguments: jsontext.Value("{}"), Principal: "me"})
		entries, shown := g.store.Journal.Show(t.Context(), journal.Filter{Limit: 1})
		if shown != nil || len(entries) != 1 {
			t.Fatalf("got %d records and %v", len(entries), shown)
		}
		e := entries[0]
		if !reflect.DeepEqual(e.Contacted, []string{"a.test:443"}) || e.Omitted != 3 || len(e.Refused) != 2 ||
			e.Refused[0] != (journal.Denial{Kind: "connect", What: "10.0.0.1:5432", Private: true}) ||
			!strings.HasPrefix(e.Refused[1].What, "/tmp/") || strings.Contains(e.Refused[1].What, githubToken) {
			t.Errorf("the record of a call with the error %v is %+v", err, e.Record)
		}
	}
}
