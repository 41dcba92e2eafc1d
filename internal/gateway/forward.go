package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// Exposed lists the kinds of requests that the operator allows: sampling, resources or prompts. Manifests do not
// declare these requests.
type Exposed []string

// The kinds of requests that an operator can expose.
const (
	Sampling  = "sampling"
	Resources = "resources"
	Prompts   = "prompts"
)

// Allows reports whether requests with this method are exposed. Completions are exposed if prompts or resources are
// exposed.
func (e Exposed) Allows(method string) bool {
	family, _, _ := strings.Cut(method, "/")
	switch family {
	case "completion":
		return slices.Contains(e, Resources) || slices.Contains(e, Prompts)
	case Sampling, Resources, Prompts:
		return slices.Contains(e, family)
	}
	return false
}

// Forward sends a request to a server and returns the server's answer. Manifests do not declare such requests, so
// Forward returns a refusal unless the operator has exposed this kind of request. Forwarded requests pass the gate, like
// calls to a tool whose name is the method, such as resources/read. They are recorded in the journal like calls.
func (g *Gateway) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	if stopped := g.checkStore(); stopped != nil {
		return nil, stopped
	}
	if f.ID == "" {
		f.ID = NewID()
	}
	start := time.Now()
	var found inflight
	held := *f // a copy, because redaction changes the params
	answer, err := g.forward(ctx, &held, found.note)
	return g.recorded(start, &held, f.Server+":"+f.Method, found.notes, answer, err)
}

// recorded writes the journal record of a request and then returns the given answer and error.
func (g *Gateway) recorded(
	start time.Time, f *call.Forward, what string, notes []string, answer jsontext.Value, err error,
) (jsontext.Value, error) {
	r := journal.Record{
		Time: start, Call: f.ID, Agent: g.name, ID: g.agent.ID, Digest: g.agent.Digest, Principal: f.Principal,
		Tool: what, SideEffect: "read", Decision: journal.Allow, DurationUS: time.Since(start).Microseconds(),
		Detail: strings.Join(notes, "; "), ArgumentsSize: len(f.Params),
	}
	if canonical := f.Params.Clone(); len(canonical) > 0 && canonical.Canonicalize(exactNumbers...) == nil {
		mac := g.store.Keys.MAC("arguments", canonical)
		r.ArgumentsMAC, r.Arguments = hex.EncodeToString(mac[:]), g.showable(canonical)
	}
	stopped, refused := errors.AsType[*call.Refusal](err)
	switch {
	case refused:
		r.Decision, r.Code, r.Stage = journal.Deny, string(stopped.Code), stopped.Stage
		r.Effect, r.Detail = string(stopped.Effect), clip(stopped.Message)
	case err != nil:
		r.ToolError = true
	default:
		sum := sha256.Sum256(answer)
		r.ResultHash, r.ResultSize = hex.EncodeToString(sum[:]), len(answer)
	}
	if failed := g.store.Journal.Note(&r); failed != nil {
		return nil, StoreFailed(stageRecord, failed)
	}
	return answer, err
}

func (g *Gateway) forward(ctx context.Context, f *call.Forward, note func([]guard.Finding)) (jsontext.Value, error) {
	servers, ok := g.options.Binding.(call.Forwarder)
	if !ok || !g.options.Expose.Allows(f.Method) {
		stopped := call.Refuse(gate.Stage, call.PolicyDenied,
			"the method %s is refused, because the operator has not exposed it", clip(f.Method))
		stopped.Hint = "the operator can allow the method with the flag --expose resources,prompts,sampling"
		return nil, stopped
	}
	// These checks ensure that the server and the gateway parse the params in the same way.
	if len(f.Params) > 0 {
		if stopped := admit(g, ctx, &inflight{Call: &call.Call{Arguments: f.Params}}); stopped != nil {
			return nil, stopped
		}
	}
	// Unsubscribing needs no permission, because it only ends a subscription that a rule permitted before.
	if f.Method != "resources/unsubscribe" {
		c := &call.Call{Tool: f.Method, Principal: f.Principal, Arguments: f.Params}
		t := &agent.Tool{Name: f.Method, SideEffect: agent.Read, Binding: agent.OnServer{Alias: f.Server}}
		if stopped := gate.Decide(ctx, g.Agent(), g.name, t, c, g.options.Rules).Refusal(); stopped != nil {
			return nil, stopped
		}
	}
	if stopped := g.guards.request(f, note); stopped != nil {
		return nil, stopped
	}
	// Lists are requested often, so they do not count toward the quota. Unsubscribing must work even if the quota is
	// used up.
	if !strings.HasSuffix(f.Method, "/list") && f.Method != "resources/unsubscribe" {
		if stopped := quota(g, ctx, &inflight{Call: &call.Call{Principal: f.Principal}}); stopped != nil {
			return nil, stopped
		}
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	copied := *f
	copied.OnNotify, copied.Client = g.guards.guardNotify(f.OnNotify), g.guards.client(f.Client)
	answer, err := servers.Forward(ctx, &copied)
	if said, ok := errors.AsType[*call.Answer](err); ok {
		raw, stopped := g.guards.answer(said.Raw, note)
		if stopped != nil {
			return nil, stopped
		}
		return nil, &call.Answer{Raw: raw}
	}
	if err != nil {
		return nil, g.guards.redact(call.AsRefusal(stageAct, err))
	}
	answer, stopped := g.guards.answer(answer, note)
	if stopped != nil {
		return nil, stopped
	}
	return answer, nil
}

var _ call.Forwarder = (*Gateway)(nil)

// Prompt returns the agent's prompt with the given name. It calls get to fetch the prompt, removes secrets from the
// prompt and records the read in the journal.
func (g *Gateway) Prompt(
	ctx context.Context, principal, name string, get func(ctx context.Context, name string) (jsontext.Value, error),
) (jsontext.Value, error) {
	if stopped := g.checkStore(); stopped != nil {
		return nil, stopped
	}
	start := time.Now()
	var found inflight
	answer, err := get(ctx, name)
	if err == nil {
		var stopped *call.Refusal
		if answer, stopped = g.guards.scan(answer, found.note); stopped != nil {
			stopped.Effect = call.NoEffect // reading a prompt changes nothing
			err = stopped
		}
	}
	return g.recorded(start, &call.Forward{ID: NewID(), Principal: principal}, "prompt:"+name, found.notes, answer, err)
}
