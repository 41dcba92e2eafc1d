package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Intents is the queue of requests to programs.
type Intents interface {
	Submit(ctx context.Context, r dispatch.Request) (*dispatch.Intent, error)
	Call(ctx context.Context, r dispatch.Request, onChange func(*dispatch.Intent)) (*dispatch.Intent, error)
	Get(ctx context.Context, id string) (*dispatch.Intent, error)
	List(ctx context.Context, f dispatch.Filter) ([]*dispatch.Intent, error)
	Cancel(ctx context.Context, id string) error
	Reload(ctx context.Context) error
}

// Programs finds the gateways of the programs that a daemon serves. The queue is created before the
// daemon, which sets itself later.
type Programs struct{ of atomic.Pointer[Daemon] }

// Digests returns the digests of the programs that are served now.
func (p *Programs) Digests() []string {
	var digests []string
	if d := p.of.Load(); d != nil {
		for _, e := range d.fleet.current.Load().all {
			if a := e.program(); a != nil {
				digests = append(digests, a.Digest)
			}
		}
	}
	return digests
}

// Open returns the gateway of a program, and a function that releases it.
func (p *Programs) Open(digest string) (dispatch.Door, func(), bool) {
	d := p.of.Load()
	if d == nil {
		return nil, nil, false
	}
	for _, e := range d.fleet.current.Load().all {
		a := e.program()
		if a == nil || a.Digest != digest {
			continue
		}
		if running, leave, ok := e.enter(); ok {
			return programGateway{running, a}, leave, true
		}
	}
	return nil, nil, false
}

// program returns the agent if it accepts intents, or nil.
func (e *entry) program() *agent.Agent {
	if e.rejected() || e.Manifest == nil || !dispatch.TakesIntents(e.Manifest.Agent()) {
		return nil
	}
	return e.Manifest.Agent()
}

type programGateway struct {
	Running
	agent *agent.Agent
}

func (g programGateway) Agent() *agent.Agent { return g.agent }

// newIntent is the body of a new intent.
type newIntent struct {
	Agent    string `json:"agent"`
	Text     string `json:"text"`
	Priority string `json:"priority"`
	Parent   string `json:"parent"`
	Wait     *bool  `json:"wait"`
}

func (d *Daemon) postIntent(w http.ResponseWriter, r *http.Request) {
	var body newIntent
	if trouble := readJSON(r, &body); trouble != nil {
		trouble.write(w)
		return
	}
	request, trouble := d.requestOf(&body, principalOf(r))
	if trouble != nil {
		trouble.write(w)
		return
	}
	if body.Wait != nil && !*body.Wait {
		i, err := d.options.Intents.Submit(r.Context(), *request)
		if err != nil {
			d.intentProblem(w, err)
			return
		}
		reply(w, http.StatusAccepted, map[string]any{"intent_id": dispatch.UUID(i.ID)})
		return
	}
	d.waitForIntent(w, r, request)
}

// waitForIntent answers with the program's answer. If no worker has the program, it refuses and
// cancels the intent: the caller is advised to retry, which would run the intent twice.
func (d *Daemon) waitForIntent(w http.ResponseWriter, r *http.Request, request *dispatch.Request) {
	request.ID = gateway.NewID()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	noWorker := make(chan struct{}, 1)
	ended := make(chan struct{})
	var i *dispatch.Intent
	var err error
	go func() {
		defer close(ended)
		i, err = d.options.Intents.Call(ctx, *request, func(i *dispatch.Intent) {
			if i.State == dispatch.NoWorker {
				select {
				case noWorker <- struct{}{}:
				default:
				}
			}
		})
	}()
	select {
	case <-noWorker:
		cancel()
		<-ended
		r := call.Refuse("dispatch", call.ServerUnavailable, "no running worker has this version of the agent")
		r.Hint = "serve the agent again, or start a worker that has it: ambit worker; " +
			`or send "wait": false to leave the intent in the queue`
		refusedProblem(r.Again(), dispatch.UUID(request.ID)).write(w)
		return
	case <-ended:
	}
	switch {
	case err != nil:
		d.intentProblem(w, err)
	case i.Refusal != nil:
		refusedProblem(i.Refusal, dispatch.UUID(i.ID)).write(w)
	default:
		reply(w, http.StatusOK, answerOf(i))
	}
}

// answerOf is the JSON of ambit dispatch --json.
func answerOf(i *dispatch.Intent) map[string]any {
	var doc map[string]any
	_ = json.Unmarshal(i.Answer(), &doc) // without an answer, the fields are null
	answer := map[string]any{"intent_id": dispatch.UUID(i.ID), "status": doc["status"], "text": doc["text"], "sources": doc["sources"]}
	if i.OverBudget {
		answer["over_budget"] = true
	}
	return answer
}

// requestOf checks the body of a request and reports all its problems together.
func (d *Daemon) requestOf(body *newIntent, p *identity.Principal) (*dispatch.Request, *problem) {
	r := &dispatch.Request{Text: body.Text, Priority: dispatch.Priority(body.Priority), Principal: p.Name}
	if p.Kind == identity.ByKey {
		r.Key = p.KeyID
	} else {
		r.Until = p.Until
	}
	var wrong []string
	if body.Agent == "" {
		wrong = append(wrong, "agent is missing")
	}
	if body.Text == "" {
		wrong = append(wrong, "text is missing")
	}
	if body.Priority != "" && !slices.Contains(dispatch.Priorities, body.Priority) {
		wrong = append(wrong, "priority must be one of "+strings.Join(dispatch.Priorities, ", "))
	}
	if body.Parent != "" {
		var ok bool
		if r.Parent, ok = dispatch.ParseID(body.Parent); !ok {
			wrong = append(wrong, "parent is not the id of an intent")
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
	e, trouble := d.fleet.see(name, p)
	if trouble != nil {
		return nil, trouble
	}
	if r.Agent = e.program(); r.Agent == nil {
		if e.rejected() {
			return nil, rejectedProblem(name)
		}
		return nil, badRequest("the agent "+name+" is not a program that accepts intents", "call its tools: POST /api/v1/agents/"+name+"/call")
	}
	r.Name = name
	return r, nil
}

// intentOf finds an intent for its own caller and for admins.
func (d *Daemon) intentOf(r *http.Request) (*dispatch.Intent, error) {
	id, ok := dispatch.ParseID(r.PathValue("id"))
	if !ok {
		return nil, dispatch.ErrNoIntent
	}
	i, err := d.options.Intents.Get(r.Context(), id)
	if p := principalOf(r); err == nil && !p.Admin && (i.Principal != p.Name || !p.MayUse(i.Name)) {
		return nil, dispatch.ErrNoIntent // the same answer whether the intent exists or not
	}
	return i, err
}

func (d *Daemon) showIntent(w http.ResponseWriter, r *http.Request) {
	i, err := d.intentOf(r)
	if err != nil {
		d.intentProblem(w, err)
		return
	}
	reply(w, http.StatusOK, i)
}

func (d *Daemon) cancelIntent(w http.ResponseWriter, r *http.Request) {
	i, err := d.intentOf(r)
	if err == nil {
		err = d.options.Intents.Cancel(r.Context(), i.ID)
	}
	if err == nil {
		i, err = d.options.Intents.Get(r.Context(), i.ID)
	}
	if err != nil {
		d.intentProblem(w, err)
		return
	}
	reply(w, http.StatusAccepted, i)
}

// maxIntents bounds the intents in one response.
const maxIntents = 1000

func (d *Daemon) listIntents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := dispatch.Filter{Agent: q.Get("agent"), State: dispatch.State(q.Get("state")), Limit: 100}
	known := []string{"agent", "state", "limit", "before"}
	for name := range q {
		if !slices.Contains(known, name) {
			badRequest("unknown filter "+strconv.Quote(name), "use "+strings.Join(known, ", ")).write(w)
			return
		}
	}
	var err error
	if s := q.Get("limit"); s != "" {
		if f.Limit, err = strconv.Atoi(s); err != nil || f.Limit < 1 || f.Limit > maxIntents {
			badRequest("limit must be a number from 1 to "+strconv.Itoa(maxIntents), "").write(w)
			return
		}
	}
	if s := q.Get("before"); s != "" {
		if f.Before, err = time.Parse(time.RFC3339, s); err != nil {
			badRequest("before is not a valid time", "write it as 2026-01-31T12:00:00Z").write(w)
			return
		}
	}
	p := principalOf(r)
	if !p.Admin {
		f.Principal = p.Name
	}
	found, err := d.options.Intents.List(r.Context(), f)
	if err != nil {
		d.intentProblem(w, err)
		return
	}
	found = slices.DeleteFunc(found, func(i *dispatch.Intent) bool { return !p.MayUse(i.Name) })
	reply(w, http.StatusOK, map[string]any{"intents": found})
}

func (d *Daemon) intentProblem(w http.ResponseWriter, err error) {
	refusal, refused := errors.AsType[*call.Refusal](err)
	switch {
	case errors.Is(err, dispatch.ErrNoIntent):
		(&problem{status: http.StatusNotFound, Code: "not_found", Message: "there is no intent with this id", Hint: "list them: GET /api/v1/intents"}).write(w)
	case refused:
		refusedProblem(refusal, "").write(w)
	default:
		d.unavailable(w, "the intents cannot be read", err)
	}
}

// turn makes a call of a program that is not an intent wait for its turn.
func (h *Hosting) turn(ctx context.Context, a *agent.Agent, c *call.Call) (done func(), err error) {
	if h.Turns == nil || !dispatch.TakesIntents(a) {
		return func() {}, nil
	}
	var args struct {
		Priority dispatch.Priority `json:"priority"`
	}
	_ = json.Unmarshal(c.Arguments, &args) // the gateway validates them
	return h.Turns.Turn(ctx, a, args.Priority)
}

// Turns bounds how many programs run at the same time.
type Turns interface {
	Turn(ctx context.Context, a *agent.Agent, p dispatch.Priority) (done func(), err error)
}

// notItsTurn is the refusal of a call that did not get its turn.
func notItsTurn(err error) *call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return r
	}
	return call.Refuse("dispatch", call.TimedOut, "the call ended while it waited for its turn").Again()
}
