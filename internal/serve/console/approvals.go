package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/approval"
)

const (
	// maxFirst and maxAll are the maximum sizes of a call's arguments, in bytes of markup: maxFirst in the list of
	// approvals, and maxAll on the page of one call. maxWaiting is the maximum number of calls in the list.
	maxFirst, maxAll, maxWaiting = 2000, 36 << 10, 12
)

// waitingCall is a call that waits for a decision, with the part of its arguments that is shown.
type waitingCall struct {
	*approval.Question
	Caller string
	// Declared is nil if the agent is not served here.
	Declared    *agent.Tool
	Destination string
	Shown       string
	Cut         bool // whether only a part of the arguments is shown
	// LookAlikes are warnings about words that look like other words but are written with other letters.
	LookAlikes []string
}

// newWaitingCall returns a call with at most n bytes of its arguments.
func newWaitingCall(q *approval.Question, n int) waitingCall {
	text := approval.Show(q.Arguments)
	w := waitingCall{Question: q}
	w.Shown, w.Cut = fit(text, n)
	all, _ := fit(text, maxAll)
	w.LookAlikes = approval.LookAlikes(q.Tool, all)
	return w
}

// Size is the size of the arguments in bytes.
func (w waitingCall) Size() int { return len(w.Arguments) }

// approvalsPage is the list of calls that wait for approval, or the page of one such call. Decided is the call that was
// just approved or denied, or nil.
type approvalsPage struct {
	Decided *approval.Question
	Calls   []waitingCall
	Next    int
	One     bool
}

func (c *Console) approvals(w http.ResponseWriter, r *http.Request, s *session) {
	list, err := c.o.Approvals.List(r.Context())
	if err != nil {
		c.unavailable(w, r, s, "The approvals cannot be read at the moment.", err)
		return
	}
	p, limit := approvalsPage{}, maxFirst
	if id := r.PathValue("id"); id != "" {
		list = slices.DeleteFunc(list, func(q *approval.Question) bool { return q.ID != id })
		p.One, limit = true, maxAll
	}
	if id := r.URL.Query().Get("decided"); id != "" {
		if q, err := c.o.Approvals.Look(r.Context(), id); err == nil && q.State != approval.Pending {
			p.Decided = q
		}
	}
	list, p.Next = part(list, r, maxWaiting)
	names, agents := c.keyNames(r.Context()), map[string][]Tool{}
	for _, q := range list {
		call := newWaitingCall(q, limit)
		call.Caller = callerName(q.Principal, names)
		call.Declared, call.Destination = c.declared(r.Context(), agents, q)
		p.Calls = append(p.Calls, call)
	}
	c.show(w, r, s, http.StatusOK, "approvals", "Approvals", "approvals", p)
}

// declared returns the tool of a waiting call, and describes where the call goes. It caches the tools of each agent in
// the given map.
func (c *Console) declared(
	ctx context.Context, known map[string][]Tool, q *approval.Question,
) (*agent.Tool, string) {
	tools, ok := known[q.Agent]
	if !ok {
		if a := c.o.Backend.Agent(ctx, q.Agent); a != nil {
			tools = a.Tools
		}
		known[q.Agent] = tools
	}
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == q.Tool || t.Served == q.Tool })
	if i < 0 {
		return nil, ""
	}
	return &tools[i].Tool, destination(&tools[i].Tool)
}

// destination describes where a call of a tool goes.
func destination(t *agent.Tool) string {
	switch b := t.Binding.(type) {
	case agent.HTTP:
		return b.Method + " to " + b.Host
	case agent.OnServer:
		return "tool server " + b.Alias
	case agent.Compose:
		return "tool " + b.Tool + " of agent " + b.Agent
	case agent.RunProgram:
		return "the agent's program"
	case agent.Prompt:
		return "no other system: the tool fills in a text"
	}
	return ""
}

func (c *Console) decide(w http.ResponseWriter, r *http.Request, s *session) {
	decision := r.PostFormValue("decision")
	if decision != "approve" && decision != "deny" {
		c.failed(w, r, s, http.StatusBadRequest, "The decision must be approve or deny.", "Use one of the two buttons.")
		return
	}
	id, reason := r.PathValue("id"), r.PostFormValue("reason")
	err := c.o.Approvals.Decide(r.Context(), id, decision == "approve", s.Who.Name, reason)
	switch {
	case err == nil:
		http.Redirect(w, r, s.base()+"approvals?decided="+url.QueryEscape(id), http.StatusSeeOther)
	case errors.Is(err, approval.ErrUnknown), errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrOver):
		c.failed(w, r, s, http.StatusConflict, "Your decision was not recorded: "+err.Error()+".",
			"Go back to the list of waiting calls.")
	default:
		c.unavailable(w, r, s, "The decision could not be stored.", err)
	}
}
