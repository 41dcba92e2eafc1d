package front

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// In 2026-07-28 a server that needs input answers with its questions, and the client repeats the
// request with the answers. Meanwhile the client carries the server's state, which is sealed: it
// cannot be changed, used twice, or used for another request.

const (
	statePurpose = "mcp/requestState"
	// stateLife is how long a client may take to answer.
	stateLife = time.Hour
	// maxRounds bounds the rounds of questions in one call, which was approved and counted once.
	maxRounds = 10
)

// state is the content of a sealed requestState.
type state struct {
	Binding []byte         `json:"b"` // hash of the request that it belongs to
	ID      string         `json:"i"`
	Call    string         `json:"c"` // the call that asked
	Until   int64          `json:"u"`
	Round   int            `json:"r"`
	Server  jsontext.Value `json:"s,omitempty"` // the server's own, unchanged
}

// binding hashes what a state is valid for: the principal, the agent and the request.
func (a *Agent) binding(r *request) []byte {
	h := sha256.New()
	who := a.Gateway.Agent()
	name := lookup(r.Params, "name")
	if name == nil {
		name = lookup(r.Params, "uri")
	}
	arguments := slices.Clone(lookup(r.Params, "arguments"))
	if len(arguments) > 0 {
		// The same arguments may be in another order; numbers stay unchanged.
		_ = arguments.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false), jsontext.AllowDuplicateNames(true))
	} else {
		arguments = jsontext.Value("{}")
	}
	for _, part := range [][]byte{[]byte(r.principal), []byte(who.ID), []byte(who.Digest), []byte(r.Method), name, arguments} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return h.Sum(nil)
}

// asksMore reports whether a result asks for input.
func asksMore(raw jsontext.Value) bool {
	kind, _ := text(lookup(raw, "resultType"))
	return kind == "input_required"
}

// mayAsk refuses questions that the operator has not exposed, ambiguous ones, and too many rounds.
func (a *Agent) mayAsk(r *request, raw jsontext.Value) *call.Refusal {
	if r.round >= maxRounds {
		return call.Refuse("act", call.ServerUnavailable,
			"the server asked for input %d times, which is the limit", maxRounds)
	}
	// The client must read the same questions that are checked here.
	unclear := call.Refuse("act", call.OutputInvalid, "the server's question to the client is ambiguous")
	questions := lookup(raw, "inputRequests")
	if questions != nil && (questions[0] != '{' && questions[0] != 'n' || !questions.IsValid() || rawjson.Twice(questions)) {
		return unclear
	}
	var refusal *call.Refusal
	rawjson.Members(questions, func(_ string, value jsontext.Value) {
		method, _ := text(lookup(value, "method"))
		switch capability := call.CapabilityFor(method); {
		case rawjson.Twice(value):
			refusal = unclear
		case capability == "elicitation", capability != "" && a.exposes(capability):
		case capability == "":
			refusal = call.Refuse("act", call.PolicyDenied,
				"the server sent the client the unknown request %q", clip(method))
		default:
			refusal = call.Refuse("act", call.PolicyDenied,
				"the server asked the client for %s, which is not exposed", capability)
			refusal.Hint = "the operator can expose it: --expose " + capability
		}
	})
	return refusal
}

// more handles a result that asks for input. A client of the older generation is asked directly,
// and the continued call is returned. For a client of the newer generation it returns nil, and the
// result is passed on.
func (a *Agent) more(ctx context.Context, r *request, c *call.Call, raw jsontext.Value) (*call.Call, *call.Refusal) {
	if refusal := a.mayAsk(r, raw); refusal != nil || r.modern {
		return nil, refusal
	}
	if c.Client == nil || c.Client.Asker == nil {
		return nil, call.Refuse("act", call.ServerUnavailable, "the server asked for input, which this client does not support")
	}
	responses := jsontext.Value("{}")
	var failure error
	rawjson.Members(lookup(raw, "inputRequests"), func(key string, value jsontext.Value) {
		method, _ := text(lookup(value, "method"))
		if failure == nil && lookup(c.Client.Capabilities, call.CapabilityFor(method)) == nil {
			failure = fmt.Errorf("the client does not support %s", method)
		}
		if failure != nil {
			return
		}
		var result jsontext.Value
		if result, failure = c.Client.Asker.Ask(ctx, method, lookup(value, "params")); failure == nil {
			responses = set(responses, key, result)
		}
	})
	if failure != nil {
		return nil, call.Refuse("act", call.ServerUnavailable,
			"the server asked for input, but the client could not be asked: %v", failure)
	}
	next := *c
	next.ID, next.Continues = gateway.NewID(), c.ID
	next.More = further(responses, lookup(raw, "requestState"))
	return &next, nil
}

// further returns the params with which a request continues.
func further(responses, server jsontext.Value) jsontext.Value {
	var more jsontext.Value
	for _, p := range []struct {
		name  string
		value jsontext.Value
	}{{"requestState", server}, {"inputResponses", responses}} {
		if p.value != nil {
			if more == nil {
				more = jsontext.Value("{}")
			}
			more = set(more, p.name, p.value)
		}
	}
	return more
}

// sealState puts our own state around the server's, in a result that asks for input.
func (a *Agent) sealState(r *request, c *call.Call, raw jsontext.Value) (jsontext.Value, error) {
	if a.Keys == nil {
		return nil, errors.New("the server asked for input, but no key is available to seal its state")
	}
	keys, err := a.Keys()
	if err != nil {
		return nil, err
	}
	plain, err := json.Marshal(state{
		Binding: a.binding(r), ID: gateway.NewID(), Call: c.ID, Until: time.Now().Add(stateLife).Unix(),
		Round: r.round + 1, Server: lookup(raw, "requestState"),
	})
	if err != nil {
		return nil, err
	}
	return set(raw, "requestState", marshal(base64.RawURLEncoding.EncodeToString(keys.Seal(statePurpose, plain)))), nil
}

// resume reads the client's answers and continues the call. Answers without a state belong to no
// call and are passed on with the new one.
func (a *Agent) resume(ctx context.Context, r *request, c *call.Call) *rpcError {
	responses, sealed := lookup(r.Params, "inputResponses"), lookup(r.Params, "requestState")
	if responses != nil && responses[0] != '{' {
		return &rpcError{Code: invalidParams, Message: "inputResponses must be an object"}
	}
	if (responses != nil || sealed != nil) && !r.Params.IsValid() {
		// The state is bound to what is read here, and the server must read the same.
		return &rpcError{Code: invalidParams, Message: "the params have a duplicate member"}
	}
	if sealed == nil {
		c.More = further(responses, nil)
		return nil
	}
	s, err := a.openState(ctx, r, sealed)
	if err != nil {
		return &rpcError{Code: invalidParams, Message: "the requestState is invalid: " + err.Error()}
	}
	c.Continues, c.More, r.round = s.Call, further(responses, s.Server), s.Round
	return nil
}

var (
	errForeignState = errors.New("it belongs to another request or was modified")
	errOldState     = errors.New("it has expired")
	errSpentState   = errors.New("it was already used")
)

func (a *Agent) openState(ctx context.Context, r *request, raw jsontext.Value) (*state, error) {
	sealed, ok := text(raw)
	if !ok || a.Keys == nil {
		return nil, errForeignState
	}
	keys, err := a.Keys()
	if err != nil {
		return nil, errors.New("the key that sealed it cannot be read")
	}
	b, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return nil, errForeignState
	}
	plain, err := keys.Open(statePurpose, b)
	if err != nil {
		return nil, errForeignState
	}
	var s state
	if err := json.Unmarshal(plain, &s); err != nil || !slices.Equal(s.Binding, a.binding(r)) {
		return nil, errForeignState
	}
	until := time.Unix(s.Until, 0)
	if time.Now().After(until) {
		return nil, errOldState
	}
	spend := a.Spend
	if spend == nil {
		spend = a.spent.spend
	}
	first, err := spend(ctx, s.ID, until)
	switch {
	case err != nil:
		return nil, errors.New("it cannot be checked whether it was already used")
	case !first:
		return nil, errSpentState
	}
	return &s, nil
}

// spentStates remembers used states until they expire.
type spentStates struct {
	mu    sync.Mutex
	until map[string]time.Time
	swept time.Time
}

func (s *spentStates) spend(_ context.Context, id string, until time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	if now.Sub(s.swept) > time.Minute {
		s.swept = now
		for id, t := range s.until {
			if now.After(t) {
				delete(s.until, id)
			}
		}
	}
	if _, used := s.until[id]; used {
		return false, nil
	}
	s.until[id] = until
	return true, nil
}
