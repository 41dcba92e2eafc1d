package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/flow"
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
// Forward returns a refusal unless the operator has exposed this kind of request. The gate checks a request like a call
// to a tool whose name is the method, such as resources/read. The journal records requests like calls.
func (g *Gateway) Forward(ctx context.Context, f *call.Forward) (answer jsontext.Value, err error) {
	defer g.contain(func() { answer, err = nil, broken(stageAct, call.EffectUnknown) })
	if stopped := g.checkStore(); stopped != nil {
		return nil, stopped
	}
	if f.ID == "" {
		f.ID = NewID()
	}
	start := time.Now()
	var found inflight
	held := *f // copy the request, because redaction changes the params in place
	answer, err = g.forward(ctx, &held, &found)
	return g.recorded(start, &held, f.Server+":"+f.Method, found.noted(), answer, err)
}

// recorded writes the journal record of a request and then returns the given answer and error.
func (g *Gateway) recorded(
	start time.Time, f *call.Forward, what string, notes string, answer jsontext.Value, err error,
) (jsontext.Value, error) {
	r := journal.Record{
		Time: start, Call: f.ID, Agent: g.name, ID: g.agent.ID, Digest: g.agent.Digest, Principal: f.Principal,
		Tool: what, SideEffect: "read", DurationUS: time.Since(start).Microseconds(),
		Detail: notes, ArgumentsSize: len(f.Params),
	}
	if canonical := f.Params.Clone(); len(canonical) > 0 && canonical.Canonicalize(exactNumbers...) == nil {
		mac := g.store.Keys.MAC("arguments", canonical)
		r.ArgumentsMAC, r.Arguments = hex.EncodeToString(mac[:]), g.showable(canonical)
	}
	stopped, refused := errors.AsType[*call.Refusal](err)
	r.Decision = DecisionOf(err != nil, stopped)
	switch {
	case refused:
		r.Code, r.Stage = string(stopped.Code), stopped.Stage
		r.Effect, r.Detail = string(stopped.Effect), clip(stopped.Message)
	case err != nil:
		r.ToolError = true
	default:
		sum := sha256.Sum256(answer)
		r.ResultHash, r.ResultSize = hex.EncodeToString(sum[:]), len(answer)
	}
	if failed := g.store.Journal.Note(&r); failed != nil {
		return nil, StoreFailed(context.Background(), stageRecord, failed)
	}
	if failed := g.observeForward(f, what, answer, err); failed != nil {
		return nil, StoreFailed(context.Background(), stageRecord, failed)
	}
	return answer, err
}

func (g *Gateway) forward(ctx context.Context, f *call.Forward, found *inflight) (answer jsontext.Value, err error) {
	defer g.contain(func() { answer, err = nil, broken(stageAct, call.EffectUnknown) }) // so that Forward records it
	servers, ok := g.options.Binding.(call.Forwarder)
	if !ok || !g.options.Expose.Allows(f.Method) {
		stopped := call.Refuse(gate.Stage, call.PolicyDenied,
			"the method %s is refused, because the operator has not exposed it", clip(f.Method))
		stopped.Hint = "the operator can allow the method with the flag --expose and resources, prompts or sampling"
		return nil, stopped
	}
	if stopped := g.permit(ctx, f, agent.OnServer{Alias: f.Server}); stopped != nil {
		return nil, stopped
	}
	if stopped := g.guards.request(ctx, f, found.note); stopped != nil {
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
	observer := g.observeUnrequested(f.Principal, f.Client, flow.Source{Call: f.ID, Tool: f.Server + ":" + f.Method})
	copied.OnNotify = g.guards.guardNotify(ctx, observer.notify(f.OnNotify), found.noteIn)
	copied.Client = g.guards.client(ctx, observer.client(f.Client), found.noteIn)
	copied.Again = g.again(ctx, f)
	answer, err = servers.Forward(ctx, &copied)
	if said, ok := errors.AsType[*call.Answer](err); ok {
		raw, stopped := g.guards.answer(ctx, said.Raw, inError, found.note)
		if stopped != nil {
			return nil, stopped
		}
		return nil, &call.Answer{Raw: raw}
	}
	if err != nil {
		return nil, g.guards.redact(call.AsRefusal(stageAct, err))
	}
	answer, stopped := g.guards.answer(ctx, answer, inResult, found.note)
	if stopped != nil {
		return nil, stopped
	}
	return answer, nil
}

// again returns a function that the server connection calls before it repeats a request. The function asks the gate
// again, and records the repetition in the journal.
func (g *Gateway) again(ctx context.Context, f *call.Forward) func(context.Context) error {
	caller := context.WithoutCancel(ctx)
	return func(ctx context.Context) error {
		if stopped := g.checkStore(); stopped != nil {
			return stopped
		}
		start, repeated := time.Now(), *f
		repeated.ID = NewID()
		stopped := stillAllowed(caller, gate.Stage)
		if stopped == nil {
			stopped = g.permit(ctx, &repeated, agent.OnServer{Alias: f.Server})
		}
		var err error
		if stopped != nil {
			err = stopped
		}
		_, err = g.recorded(start, &repeated, f.Server+":"+f.Method, "repeated, because the server may have lost the first request", nil, err)
		return err
	}
}

// permit asks the gate whether the caller may make a request. For the rules, the request is a call to a tool with the
// given binding.
func (g *Gateway) permit(ctx context.Context, f *call.Forward, b agent.Binding) *call.Refusal {
	// These checks ensure that the server and the gateway parse the params in the same way.
	if len(f.Params) > 0 {
		if stopped := admit(g, ctx, &inflight{Call: &call.Call{Arguments: f.Params}}); stopped != nil {
			return stopped
		}
	}
	// Unsubscribing needs no permission, because it only ends a subscription that was permitted before.
	if f.Method == "resources/unsubscribe" {
		return nil
	}
	t, c := asRulesSee(f, b)
	if stopped := gate.Decide(ctx, g.Agent(), g.name, t, c, g.options.Rules).Refusal(); stopped != nil {
		return stopped
	}
	return g.permitItem(f)
}

// permitItem refuses completions and subscriptions for a resource or prompt that the caller can never read. A policy
// rule usually names only the request that reads the item, such as resources/read. But completions contain values from
// the item, and updates show when the item changes.
func (g *Gateway) permitItem(f *call.Forward) *call.Refusal {
	item, open := *f, ""
	switch f.Method {
	case "resources/subscribe":
		item.Method = "resources/read"
	case "completion/complete":
		var params struct {
			Ref struct {
				Type string `json:"type"`
				Name string `json:"name"`
				URI  string `json:"uri"`
			} `json:"ref"`
		}
		var known map[string]string
		err := json.Unmarshal(f.Params, &params)
		switch {
		case err == nil && params.Ref.Type == "ref/prompt":
			item.Method, known, open = "prompts/get", map[string]string{"name": params.Ref.Name}, "arguments"
		case err == nil && params.Ref.Type == "ref/resource" && strings.Contains(params.Ref.URI, "{"):
			item.Method, known, open = "resources/read", map[string]string{}, "uri"
		case err == nil && params.Ref.Type == "ref/resource":
			item.Method, known = "resources/read", map[string]string{"uri": params.Ref.URI}
		default:
			return call.Refuse(gate.Stage, call.InputInvalid, "the request names no prompt or resource to complete")
		}
		if item.Params, err = json.Marshal(known); err != nil {
			return call.Refuse(gate.Stage, call.InputInvalid, "the name of the prompt or resource is not valid")
		}
	default:
		return nil
	}
	if g.Offers(&item, open) {
		return nil
	}
	return call.Refuse(gate.Stage, call.PolicyDenied,
		"the policy denies %s for this prompt or resource, and therefore %s too", item.Method, f.Method)
}

// asRulesSee returns the tool and the call with which the policy rules check a request.
func asRulesSee(f *call.Forward, b agent.Binding) (*agent.Tool, *call.Call) {
	c := &call.Call{Tool: f.Method, Principal: f.Principal, Attributes: f.Attributes, Arguments: ruleArguments(f)}
	if f.Skill != nil {
		c.Skill = skillName{f.Skill}
	}
	return &agent.Tool{Name: f.Method, SideEffect: agent.Read, Binding: b}, c
}

// skillName is the skill of a request that is not a tool call. A skill lists only tools, so it cannot forbid such a
// request, but policy rules can refer to the skill.
type skillName struct{ call.Allowlist }

func (skillName) Allows(string) bool { return true }

var _ call.Forwarder = (*Gateway)(nil)

// Prompt returns the agent's own prompt with the given name. The gate checks the request like a call to a tool of the
// agent itself, and the request counts toward the quota. Prompt fetches the prompt with the function get, removes
// secrets from the prompt and records the read in the journal.
func (g *Gateway) Prompt(
	ctx context.Context, f *call.Forward, name string, get func(ctx context.Context, name string) (jsontext.Value, error),
) (jsontext.Value, error) {
	if stopped := g.checkStore(); stopped != nil {
		return nil, stopped
	}
	start := time.Now()
	var found inflight
	answer, err := g.prompt(ctx, f, name, get, found.note)
	return g.recorded(start, &call.Forward{ID: NewID(), Principal: f.Principal}, "prompt:"+name, found.noted(), answer, err)
}

func (g *Gateway) prompt(
	ctx context.Context, f *call.Forward, name string, get func(ctx context.Context, name string) (jsontext.Value, error),
	note func([]guard.Finding),
) (jsontext.Value, error) {
	if stopped := g.permit(ctx, f, nil); stopped != nil {
		return nil, stopped
	}
	if stopped := quota(g, ctx, &inflight{Call: &call.Call{Principal: f.Principal}}); stopped != nil {
		return nil, stopped
	}
	answer, err := get(ctx, name)
	if err != nil {
		return nil, err
	}
	answer, stopped := g.guards.scan(ctx, answer, note)
	if stopped != nil {
		stopped.Effect = call.NoEffect // reading a prompt has no effect
		return nil, stopped
	}
	return answer, nil
}

// ruleArguments returns the params of a request for the policy rules. A URI such as fs://etc/passwd can name a file,
// but only its server knows which file. Therefore, ruleArguments adds a member "resource", so that rules about paths
// apply. It contains the path of the URI, with and without the authority, and the values of the query. File and web
// URLs do not need this member, because the rules parse these URLs themselves.
func ruleArguments(f *call.Forward) jsontext.Value {
	var params map[string]jsontext.Value
	var uri string
	if f.Method != "resources/read" && f.Method != "resources/subscribe" ||
		json.Unmarshal(f.Params, &params) != nil || json.Unmarshal(params["uri"], &uri) != nil {
		return f.Params
	}
	scheme, rest, _ := strings.Cut(uri, ":")
	if slices.Contains([]string{"file", "http", "https"}, strings.ToLower(scheme)) {
		return f.Params
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	whole := strings.TrimSuffix(strings.TrimLeft(rest, "/"), "/")
	paths := []string{"/" + whole}
	if _, path, ok := strings.Cut(whole, "/"); ok && strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "///") {
		paths = append(paths, "/"+path)
	}
	values, err := url.ParseQuery(strings.ReplaceAll(query, ";", "&"))
	if err != nil {
		paths = append(paths, query) // looks like a relative path, which rules about paths refuse
	}
	resource, err := json.Marshal(map[string]any{"path": paths, "query": values, "fragment": fragment})
	if err != nil {
		return f.Params // cannot happen: earlier checks refuse a URI that is not UTF-8
	}
	params["resource"] = resource
	arguments, err := json.Marshal(params)
	if err != nil {
		return f.Params
	}
	return arguments
}
