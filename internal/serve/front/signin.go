package front

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// If a call fails because its caller must sign in to a remote server, the front asks the client to open the sign-in
// page. It asks only clients that support URL-mode elicitation. A client of revision 2025-11-25 gets the error
// signInRequired, and a notification when the caller has signed in. A client of the newer protocol gets a question and
// repeats the call with the answer. The repeated call waits for the sign-in.

const (
	// signInTime is how long the front waits for a sign-in in order to notify the client.
	signInTime = 10 * time.Minute
	// signInWait is how long a repeated call waits for the sign-in. Many clients time out after about a minute.
	signInWait = 50 * time.Second
	// signInQuestion is the name of the question in the newer protocol.
	signInQuestion = "ambit/sign-in"
)

// awaitedSignIn is a sign-in that ambit requested from a client.
type awaitedSignIn struct {
	Server string `json:"s"`
	// Before is the id of the sign-in that the caller had at the time of the request, or "".
	Before string `json:"b,omitempty"`
}

type pendingSignIn struct {
	awaitedSignIn
	id    string // the id of the question
	until time.Time
}

// done reports whether the principal has signed in since the client was asked.
func (s *awaitedSignIn) done(a *Agent, principal string) bool {
	_, id := a.SignInPage(principal, s.Server)
	return id != "" && id != s.Before
}

// askSignIn asks the client to open the page at which the caller signs in. The last result is false if a sign-in does
// not help, or if the client cannot open pages.
func (a *Agent) askSignIn(
	r *request, c *call.Call, refusal *call.Refusal,
) (result jsontext.Value, problem *rpcError, asked bool) {
	if refusal.SignIn == "" || a.SignInPage == nil || c.Client == nil || r.round >= maxRounds ||
		lookup(c.Client.Capabilities, "elicitation", "url") == nil {
		return nil, nil, false
	}
	page, before := a.SignInPage(r.principal, refusal.SignIn)
	if page == "" || !r.modern && r.peer == nil {
		return nil, nil, false
	}
	awaited := awaitedSignIn{refusal.SignIn, before}
	params := map[string]any{
		"mode": "url", "url": page,
		"message": fmt.Sprintf("Sign in to the server %s, which the agent %s uses for you. Then the call can be repeated.",
			refusal.SignIn, a.Gateway.Agent().Name),
	}
	if !r.modern {
		params["elicitationId"] = r.peer.notifyOf(awaited)
		return nil, &rpcError{
			Code: signInRequired, Message: explain(refusal), Data: map[string]any{"elicitations": []any{params}},
		}, true
	}
	question := map[string]any{signInQuestion: map[string]any{"method": "elicitation/create", "params": params}}
	raw := marshal(map[string]any{"resultType": "input_required", "inputRequests": question})
	result, err := a.withState(r, raw, state{SignIn: &awaited})
	return result, nil, err == nil
}

// awaitSignIn waits until the caller has signed in. It does not wait if the client has not opened the page. In this
// case, it sets r.round so that the client is not asked again.
func (a *Agent) awaitSignIn(ctx context.Context, r *request, s *awaitedSignIn, responses jsontext.Value) {
	if action, _ := text(lookup(responses, signInQuestion, "action")); action != "accept" || a.SignInPage == nil {
		r.round = maxRounds
		return
	}
	ctx, cancel := context.WithTimeout(ctx, signInWait)
	defer cancel()
	tick := time.NewTicker(cmp.Or(a.recheckLists, recheckLists))
	defer tick.Stop()
	for !s.done(a, r.principal) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// notifyOf records that the client must be notified when the sign-in is complete. It returns the id of the question.
func (p *peer) notifyOf(s awaitedSignIn) (id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.signIns == nil {
		p.signIns = map[string]pendingSignIn{}
	}
	pending, known := p.signIns[s.Server]
	if !known {
		pending = pendingSignIn{awaitedSignIn: s, id: gateway.NewID()}
	}
	pending.until = time.Now().Add(signInTime)
	p.signIns[s.Server] = pending
	return pending.id
}

// signedIn returns the ids of the questions whose sign-ins are complete, and forgets them.
func (p *peer) signedIn() (ids []string) {
	p.mu.Lock()
	all := maps.Clone(p.signIns)
	p.mu.Unlock()
	for server, pending := range all {
		done := pending.done(p.agent, p.principal)
		if done {
			ids = append(ids, pending.id)
		}
		if done || time.Now().After(pending.until) {
			p.mu.Lock()
			delete(p.signIns, server) // if the client was asked again in the meantime, the id is the same
			p.mu.Unlock()
		}
	}
	return ids
}
