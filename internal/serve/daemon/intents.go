package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Intents is the queue of intents. An intent is a queued call to a program.
type Intents interface {
	Submit(ctx context.Context, r dispatch.Request) (*dispatch.Intent, error)
	Call(ctx context.Context, r dispatch.Request, onChange func(*dispatch.Intent)) (*dispatch.Intent, error)
	Get(ctx context.Context, id string) (*dispatch.Intent, error)
	List(ctx context.Context, f dispatch.Filter) ([]*dispatch.Intent, error)
	Cancel(ctx context.Context, id string) error
	Reload(ctx context.Context) error
}

// newIntent is the body of a request that creates an intent.
type newIntent struct {
	Agent    string `json:"agent"`
	Text     string `json:"text"`
	Priority string `json:"priority"`
	Parent   string `json:"parent"`
	Wait     *bool  `json:"wait"`
}

func (d *Daemon) postIntent(r *http.Request) (any, *problem) {
	var body newIntent
	if trouble := readJSON(r, &body); trouble != nil {
		return nil, trouble
	}
	request, trouble := d.requestOf(&body, principalOf(r))
	if trouble != nil {
		return nil, trouble
	}
	if body.Wait != nil && !*body.Wait {
		i, err := d.options.Intents.Submit(r.Context(), *request)
		if err != nil {
			return nil, d.intentProblem(err)
		}
		return accepted{map[string]any{"intent_id": dispatch.UUID(i.ID)}}, nil
	}
	return d.waitForIntent(r, request)
}

// waitForIntent submits an intent and waits for the program's answer. If no running worker has the program,
// waitForIntent cancels the intent and asks the caller to retry. The intent must be canceled, because a retry would
// otherwise run the program twice.
func (d *Daemon) waitForIntent(r *http.Request, request *dispatch.Request) (any, *problem) {
	request.ID = gateway.NewID()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	noWorker := false
	i, err := d.options.Intents.Call(ctx, *request, func(i *dispatch.Intent) {
		if i.State == dispatch.NoWorker {
			noWorker = true
			cancel()
		}
	})
	if noWorker {
		r := call.Refuse("dispatch", call.ServerUnavailable, "no running worker has this version of the agent")
		r.Hint = "serve the agent again, or run \"ambit worker\" on a machine that has the agent, " +
			`or send "wait": false to leave the intent in the queue`
		return nil, refusedProblem(r.Again(), dispatch.UUID(request.ID))
	}
	switch {
	case err != nil:
		return nil, d.intentProblem(err)
	case i.Refusal != nil:
		return nil, refusedProblem(i.Refusal, dispatch.UUID(i.ID))
	default:
		return answerOf(i), nil
	}
}

// answerOf returns the answer of an intent in the JSON format of "ambit dispatch --json".
func answerOf(i *dispatch.Intent) map[string]any {
	var doc map[string]any
	_ = json.Unmarshal(i.Answer(), &doc) // if there is no answer, the fields are null
	answer := map[string]any{
		"intent_id": dispatch.UUID(i.ID), "status": doc["status"], "text": doc["text"], "sources": doc["sources"],
	}
	if i.OverBudget {
		answer["over_budget"] = true
	}
	return answer
}

// requestOf converts the body of a request to a dispatch.Request. If several members are invalid, the problem lists
// all of them.
func (d *Daemon) requestOf(body *newIntent, p *identity.Principal) (*dispatch.Request, *problem) {
	r := &dispatch.Request{Text: body.Text, Priority: dispatch.Priority(body.Priority), Principal: p.Name, Attributes: p.Attributes()}
	if p.Kind == identity.ByKey {
		r.Key = p.KeyID
	} else {
		r.Until = p.Until
	}
	var wrong []string
	if body.Agent == "" {
		wrong = append(wrong, "\"agent\" is missing")
	}
	if body.Text == "" {
		wrong = append(wrong, "\"text\" is missing")
	}
	if body.Priority != "" && !slices.Contains(dispatch.Priorities, body.Priority) {
		wrong = append(wrong, "\"priority\" must be one of "+strings.Join(dispatch.Priorities, ", "))
	}
	if body.Parent != "" {
		var ok bool
		if r.Parent, ok = dispatch.ParseID(body.Parent); !ok {
			wrong = append(wrong, "\"parent\" is not the id of an intent")
		}
	}
	if len(wrong) > 0 {
		return nil, badRequest("the intent is invalid: "+strings.Join(wrong, "; "), `send {"agent": ID or NAME, "text": …}`)
	}
	name := body.Agent
	for _, e := range d.fleet.current.Load().all {
		if a := e.program(); a != nil && a.ID == body.Agent {
			name = e.Name
		}
	}
	e, trouble := d.fleet.lookup(name, p)
	if trouble != nil {
		return nil, trouble
	}
	if r.Agent = e.program(); r.Agent == nil {
		if e.rejected() {
			return nil, rejectedProblem(name)
		}
		return nil, badRequest("the agent "+name+" is not a program that accepts intents",
			"to call the agent's tools, send: POST /api/v1/agents/"+name+"/call")
	}
	r.Name = name
	return r, nil
}

// intentOf returns the intent whose id is in the request's path. An administrator can get every intent. Any other
// principal must have created the intent and must be allowed to use the intent's agent. Otherwise, intentOf returns
// ErrNoIntent.
func (d *Daemon) intentOf(r *http.Request) (*dispatch.Intent, error) {
	id, ok := dispatch.ParseID(r.PathValue("id"))
	if !ok {
		return nil, dispatch.ErrNoIntent
	}
	i, err := d.options.Intents.Get(r.Context(), id)
	if p := principalOf(r); err == nil && !p.Admin && (i.Principal != p.Name || !p.MayUse(i.Name)) {
		return nil, dispatch.ErrNoIntent // not_found does not reveal that the intent exists
	}
	return i, err
}

func (d *Daemon) showIntent(r *http.Request) (any, *problem) {
	i, err := d.intentOf(r)
	if err != nil {
		return nil, d.intentProblem(err)
	}
	return i, nil
}

func (d *Daemon) cancelIntent(r *http.Request) (any, *problem) {
	i, err := d.intentOf(r)
	if err == nil {
		err = d.options.Intents.Cancel(r.Context(), i.ID)
	}
	if err == nil {
		i, err = d.options.Intents.Get(r.Context(), i.ID)
	}
	if err != nil {
		return nil, d.intentProblem(err)
	}
	return accepted{i}, nil
}

// maxIntents is the maximum number of intents in one response.
const maxIntents = 1000

func (d *Daemon) listIntents(r *http.Request) (any, *problem) {
	var f dispatch.Filter
	q, n, trouble := listQuery(r, maxIntents, map[string]*time.Time{"before": &f.Before},
		"agent", "state", "limit", "before")
	if trouble != nil {
		return nil, trouble
	}
	f.Agent, f.State, f.Limit = q.Get("agent"), dispatch.State(q.Get("state")), n
	p := principalOf(r)
	if !p.Admin {
		f.Principal = p.Name
	}
	found, err := d.options.Intents.List(r.Context(), f)
	if err != nil {
		return nil, d.intentProblem(err)
	}
	found = slices.DeleteFunc(found, func(i *dispatch.Intent) bool { return !p.MayUse(i.Name) })
	return map[string]any{"intents": found}, nil
}

func (d *Daemon) intentProblem(err error) *problem {
	if errors.Is(err, dispatch.ErrNoIntent) {
		return failure("not_found", "there is no intent with this id", "to list intents, send: GET /api/v1/intents")
	}
	if refusal, ok := errors.AsType[*call.Refusal](err); ok {
		return refusedProblem(refusal, "")
	}
	return d.unavailable("the intents cannot be read", err)
}

// turn waits until the called program is allowed to run. It returns immediately if the agent is not a program. It also
// returns immediately if the call belongs to an intent, because the intent has already waited in the queue.
func (h *Hosting) turn(ctx context.Context, a *agent.Agent, c *call.Call) (done func(), err error) {
	if h.Turns == nil || !dispatch.TakesIntents(a) {
		return func() {}, nil
	}
	var args struct {
		Priority dispatch.Priority `json:"priority"`
	}
	_ = json.Unmarshal(c.Arguments, &args) // the gateway validates the arguments later
	return h.Turns.Turn(ctx, a, args.Priority)
}

// Turns limits how many programs run at the same time.
type Turns interface {
	// Turn waits until a program is allowed to run. The caller must call done when the program has ended.
	Turn(ctx context.Context, a *agent.Agent, p dispatch.Priority) (done func(), err error)
}

// notItsTurn converts an error from Hosting.turn to a refusal.
func notItsTurn(err error) *call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	return call.Refuse("dispatch", call.TimedOut, "the call timed out or was cancelled while it waited to run").Again()
}
