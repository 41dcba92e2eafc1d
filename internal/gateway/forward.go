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

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// Exposed are the kinds of requests that no manifest declares and that the operator
// allows: sampling, resources, prompts.
type Exposed []string

// The kinds.
const (
	Sampling  = "sampling"
	Resources = "resources"
	Prompts   = "prompts"
)

// Allows reports whether a method is exposed. Completion belongs to both prompts and
// resources.
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

// Forward sends a request for something that no manifest declares to a server, if
// the operator has exposed it, and records it like a call.
func (g *Gateway) Forward(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
	if stopped := g.unrecorded(); stopped != nil {
		return nil, stopped
	}
	if f.ID == "" {
		f.ID = NewID()
	}
	start := time.Now()
	var found inflight
	held := *f // redaction changes it
	answer, err := g.forward(ctx, &held, found.note)
	return g.recorded(start, &held, f.Server+":"+f.Method, found.notes, answer, err)
}

// recorded returns an answer once the journal has its record.
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
	servers, ok := g.binding.(call.Forwarder)
	if !ok || !g.expose.Allows(f.Method) {
		stopped := call.Refuse(gate.Stage, call.PolicyDenied, "%s is not exposed: no manifest declares it", clip(f.Method))
		stopped.Hint = "the operator can allow it: --expose resources,prompts,sampling"
		return nil, stopped
	}
	// The server must parse the params exactly as the gateway does.
	if len(f.Params) > 0 {
		if stopped := admit(g, ctx, &inflight{Call: &call.Call{Arguments: f.Params}}); stopped != nil {
			return nil, stopped
		}
	}
	if stopped := g.guards.request(f, note); stopped != nil {
		return nil, stopped
	}
	// Lists are read often and not counted, as those of tools are. A caller without
	// quota may still unsubscribe.
	if !strings.HasSuffix(f.Method, "/list") && f.Method != "resources/unsubscribe" {
		if stopped := quota(g, ctx, &inflight{Call: &call.Call{Principal: f.Principal}}); stopped != nil {
			return nil, stopped
		}
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	copied := *f
	copied.OnNotify, copied.Client = g.guards.hear(f.OnNotify), g.guards.client(f.Client)
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

// Prompt returns one of the agent's prompts, made by get. It is scanned like a result,
// and the journal records the read.
func (g *Gateway) Prompt(
	ctx context.Context, principal, name string, get func(ctx context.Context, name string) (jsontext.Value, error),
) (jsontext.Value, error) {
	if stopped := g.unrecorded(); stopped != nil {
		return nil, stopped
	}
	start := time.Now()
	var found inflight
	answer, err := get(ctx, name)
	if err == nil {
		var stopped *call.Refusal
		if answer, stopped = g.guards.scan(answer, found.note); stopped != nil {
			stopped.Effect = call.NoEffect // it was read, and nothing else
			err = stopped
		}
	}
	return g.recorded(start, &call.Forward{ID: NewID(), Principal: principal}, "prompt:"+name, found.notes, answer, err)
}
