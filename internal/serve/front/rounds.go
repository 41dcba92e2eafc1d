package front

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// In revision 2026-07-28, a server that needs input answers a request with questions and a requestState. The client
// then repeats the request with the answers and the requestState. The front seals the requestState, so that a client
// cannot change it, use it twice, or use it for another request.

const (
	statePurpose = "mcp/requestState"
	// stateLife is how long a client can take to answer the questions.
	stateLife = time.Hour
	// maxRounds is the maximum number of times that a server can ask questions during one call. A limit is necessary,
	// because the whole call needs only one approval and is counted only once toward the rate and spending limits.
	maxRounds = 10
)

// state is the content of a sealed requestState.
type state struct {
	Binding []byte         `json:"b"` // the hash of the request to which the state belongs
	ID      string         `json:"i"`
	Call    string         `json:"c"` // the id of the call that asked for input
	Until   int64          `json:"u"` // when the state expires, in Unix seconds
	Round   int            `json:"r"`
	Server  jsontext.Value `json:"s,omitempty"` // the server's own requestState
	// SignIn is set if ambit itself asked the client to open the page for a sign-in.
	SignIn *awaitedSignIn `json:"l,omitempty"`
	// Approval is the id of an approval. It is set if ambit itself asked the client's user to approve the call.
	Approval string `json:"a,omitempty"`
}

// binding returns a hash of the principal, the agent and the request. A state is valid only for requests with the
// same hash.
func (a *Agent) binding(r *request) []byte {
	h := sha256.New()
	who := a.Gateway.Agent()
	name := lookup(r.Params, "name")
	if name == nil {
		name = lookup(r.Params, "uri")
	}
	arguments := slices.Clone(lookup(r.Params, "arguments"))
	if len(arguments) > 0 {
		// The client is allowed to reorder the arguments, but not to reformat numbers.
		_ = arguments.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false),
			jsontext.AllowDuplicateNames(true))
	} else {
		arguments = jsontext.Value("{}")
	}
	for _, part := range []string{r.principal, who.ID, who.Digest, r.Method, string(name), string(arguments)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// asksForInput reports whether a server's result asks for input from the client.
func asksForInput(raw jsontext.Value) bool {
	kind, _ := text(lookup(raw, "resultType"))
	return kind == "input_required"
}

// mayAsk returns a refusal if the server is not allowed to ask the client for this input. This is the case if the call
// has had too many rounds, or if a question is ambiguous or needs a capability that is not exposed.
func (a *Agent) mayAsk(r *request, raw jsontext.Value) *call.Refusal {
	if r.round >= maxRounds {
		return call.Refuse("act", call.ServerUnavailable,
			"the server asked for input %d times, which is the limit", maxRounds)
	}
	// If a member is duplicated, the client could read a question that was not checked here.
	unclear := call.Refuse("act", call.OutputInvalid,
		"the server's request to the client is not a JSON object, or has duplicate members")
	questions := lookup(raw, "inputRequests")
	if questions != nil && (questions[0] != '{' && questions[0] != 'n' ||
		!questions.IsValid() || rawjson.Twice(questions)) {
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
				"the server sent the client a request with the unknown method %q", clip(method))
		default:
			refusal = call.Refuse("act", call.PolicyDenied,
				"the server asked the client for %s, which is not exposed", capability)
			refusal.Hint = "the operator can expose this capability with the flag --expose " + capability
		}
	})
	return refusal
}

// named returns the params of a server's request with the names of the server and the agent in the message for the
// client's user. The client knows only ambit, and the user must know who gets the answer. Other requests than
// elicitation/create have no such message.
func (a *Agent) named(alias, method string, params jsontext.Value) jsontext.Value {
	if call.CapabilityFor(method) != "elicitation" {
		return params
	}
	who, asks := a.Gateway.Agent(), "asks for input"
	if message, _ := text(lookup(params, "message")); message != "" {
		asks = "asks: " + message
	}
	name := cmp.Or(who.Name, who.ID)
	message := fmt.Sprintf("The server %s of the agent %s %s", diag.Quote(alias), diag.Quote(name), asks)
	return replace(params, "message", marshal(message))
}

// nameAll is like named, for all questions in a server's result.
func (a *Agent) nameAll(alias string, raw jsontext.Value) jsontext.Value {
	questions := lookup(raw, "inputRequests")
	rawjson.Members(questions, func(key string, value jsontext.Value) {
		method, _ := text(lookup(value, "method"))
		if call.CapabilityFor(method) == "elicitation" {
			params := a.named(alias, method, lookup(value, "params"))
			questions = set(questions, key, replace(value, "params", params))
		}
	})
	if questions == nil {
		return raw
	}
	return set(raw, "inputRequests", questions)
}

// askPeer handles a result that requests input. In the older protocol, askPeer puts the questions to the client and
// returns a call that continues with the answers. In the newer protocol, askPeer returns nil, and the caller forwards
// the result to the client.
func (a *Agent) askPeer(ctx context.Context, r *request, c *call.Call, raw jsontext.Value) (*call.Call, *call.Refusal) {
	if refusal := a.mayAsk(r, raw); refusal != nil || r.modern {
		return nil, refusal
	}
	if c.Client == nil || c.Client.Asker == nil {
		return nil, call.Refuse("act", call.ServerUnavailable,
			"the server asked the client for input, but the client does not support such requests")
	}
	responses, asking := jsontext.Value("{}"), call.WithAsking(ctx, a.serverOfTool(c.Tool))
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
		if result, failure = c.Client.Asker.Ask(asking, method, lookup(value, "params")); failure == nil {
			responses = set(responses, key, result)
		}
	})
	if failure != nil {
		return nil, call.Refuse("act", call.ServerUnavailable,
			"the server asked for input, but the client could not be asked: %v", failure)
	}
	next := *c
	next.ID, next.Continues = gateway.NewID(), c.ID
	next.More = extraParams(responses, lookup(raw, "requestState"))
	return &next, nil
}

// extraParams returns the additional params of a continued request: the client's responses and the server's state. It
// returns nil if there are none.
func extraParams(responses, server jsontext.Value) jsontext.Value {
	if responses == nil && server == nil {
		return nil
	}
	more := jsontext.Value("{}")
	if server != nil {
		more = set(more, "requestState", server)
	}
	if responses != nil {
		more = set(more, "inputResponses", responses)
	}
	return more
}

// sealState replaces the server's requestState in a result with a sealed state, which contains the original
// requestState.
func (a *Agent) sealState(r *request, c *call.Call, raw jsontext.Value) (jsontext.Value, error) {
	return a.withState(r, raw, state{Call: c.ID, Server: lookup(raw, "requestState")})
}

// withState completes the state s, seals it, and adds it to a result.
func (a *Agent) withState(r *request, raw jsontext.Value, s state) (jsontext.Value, error) {
	keys, err := a.Keys()
	if err != nil {
		return nil, err
	}
	s.Binding, s.ID, s.Until, s.Round = a.binding(r), gateway.NewID(), time.Now().Add(stateLife).Unix(), r.round+1
	sealed, err := keys.SealText(statePurpose, s)
	if err != nil {
		return nil, err
	}
	return set(raw, "requestState", marshal(sealed)), nil
}

// approvalQuestion is the name of the question that asks the client's user to approve a call.
const approvalQuestion = "ambit/approval"

// askApproval asks the client's user to approve the call. The result is nil if the client cannot be asked.
func (a *Agent) askApproval(r *request, refusal *call.Refusal) jsontext.Value {
	if refusal.Question == nil || !r.modern || r.round >= maxRounds {
		return nil
	}
	question := map[string]any{"method": "elicitation/create", "params": refusal.Question.Params}
	raw := marshal(map[string]any{"resultType": "input_required", "inputRequests": map[string]any{approvalQuestion: question}})
	result, err := a.withState(r, raw, state{Approval: refusal.Question.Approval})
	if err != nil {
		return nil // the person can still approve the call elsewhere
	}
	return result
}

// resume prepares the call c to continue an earlier call, if the request has a requestState. If a request has answers
// but no requestState, the answers are sent with the new call.
func (a *Agent) resume(ctx context.Context, r *request, c *call.Call) (*call.Refusal, *rpcError) {
	responses, sealed := lookup(r.Params, "inputResponses"), lookup(r.Params, "requestState")
	if responses != nil && responses[0] != '{' {
		return nil, &rpcError{Code: invalidParams, Message: "inputResponses must be an object"}
	}
	if (responses != nil || sealed != nil) && !r.Params.IsValid() {
		// The state is valid only for these params. If a member is duplicated, ambit and the server could read
		// different values.
		return nil, &rpcError{Code: invalidParams, Message: "the params have a duplicate member"}
	}
	if sealed == nil {
		c.More = extraParams(responses, nil)
		return nil, nil
	}
	s, err := a.openState(ctx, r, sealed)
	if err != nil {
		return nil, &rpcError{Code: invalidParams, Message: "the requestState is invalid: " + err.Error()}
	}
	r.round = s.Round
	if s.SignIn != nil {
		a.awaitSignIn(ctx, r, s.SignIn, responses)
		return nil, nil
	}
	if s.Approval != "" {
		return a.Gateway.Answer(ctx, s.Approval, r.principal, lookup(responses, approvalQuestion)), nil
	}
	c.Continues, c.More = s.Call, extraParams(responses, s.Server)
	return nil, nil
}

var (
	errForeignState = errors.New("the state belongs to another request or was modified")
	errOldState     = errors.New("the state has expired")
	errSpentState   = errors.New("the state was already used")
)

func (a *Agent) openState(ctx context.Context, r *request, raw jsontext.Value) (*state, error) {
	sealed, ok := text(raw)
	if !ok {
		return nil, errForeignState
	}
	keys, err := a.Keys()
	if err != nil {
		return nil, errors.New("the key that sealed the state cannot be read")
	}
	var s state
	if keys.OpenText(statePurpose, sealed, &s) != nil || !slices.Equal(s.Binding, a.binding(r)) {
		return nil, errForeignState
	}
	until := time.Unix(s.Until, 0)
	if time.Now().After(until) {
		return nil, errOldState
	}
	first, err := a.Spend(ctx, s.ID, until)
	switch {
	case err != nil:
		return nil, errors.New("ambit could not check in the store whether the state was already used")
	case !first:
		return nil, errSpentState
	}
	return &s, nil
}
