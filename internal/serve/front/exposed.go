package front

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// The front passes on resources, prompts and completions of servers if they are exposed. With one
// server everything is passed on unchanged. With several, lists are merged, and a request goes to
// the server that listed the requested item.

// routes remembers which server listed which resource, template or prompt, for agents with several
// servers.
type routes struct {
	mu sync.Mutex
	to map[string]string // "uri X", "template X" or "prompt X" → alias
}

// aliases returns the servers with a capability, in the manifest's order.
func (a *Agent) aliases(capability string) []string {
	var list []string
	servers := a.Gateway.Agent().Servers
	for i := range servers {
		alias := servers[i].Alias
		if a.Capabilities != nil && lookup(a.Capabilities(alias), capability) != nil {
			list = append(list, alias)
		}
	}
	return list
}

// forward makes the request to a server.
func (a *Agent) forward(r *request, alias string) *call.Forward {
	return &call.Forward{
		ID: gateway.NewID(), Server: alias, Method: r.Method, Params: r.Params, Principal: r.principal,
		Client: a.client(r), OnNotify: r.onNotify(),
	}
}

// exposed returns the capability that servers need for a method, and whether the method is exposed.
func (a *Agent) exposed(method string) (capability string, ok bool) {
	switch group, _, _ := strings.Cut(method, "/"); group {
	case "resources":
		return "resources", a.exposes(gateway.Resources)
	case "prompts":
		return "prompts", a.exposes(gateway.Prompts)
	default:
		return "completions", a.exposes(gateway.Prompts) || a.exposes(gateway.Resources)
	}
}

// pass answers requests for resources, prompts and completions.
func (a *Agent) pass(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	capability, exposed := a.exposed(r.Method)
	own := capability == "prompts" && len(a.Prompts) > 0
	if !exposed && !own {
		return nil, unknownMethod(r.Method)
	}
	if own && r.Method == "prompts/get" {
		if result, err, found := a.ownPrompt(ctx, r); found || !exposed {
			return a.complete(r, result), err
		}
	}
	var servers []string
	if exposed {
		if err := a.ready(ctx); err != nil {
			return nil, err
		}
		servers = a.aliases(capability)
	}
	var result jsontext.Value
	var err *rpcError
	switch list := listOf(r.Method); {
	case list != "" && (own || len(servers) != 1):
		result, err = a.merge(ctx, r, list, servers)
	case len(servers) == 1:
		result, err = a.send(ctx, r, servers[0])
	case list == "":
		alias, found := a.route(ctx, r, servers)
		if !found {
			return nil, &rpcError{Code: notFound(r), Message: "no server offers the item that " + r.Method + " requests"}
		}
		result, err = a.send(ctx, r, alias)
	}
	return a.complete(r, result), err
}

// notFound is the error code for a missing item, which differs in the older generation.
func notFound(r *request) int {
	if r.Method == "resources/read" && !r.modern {
		return -32002
	}
	return invalidParams
}

// listOf returns the member of the result that contains a method's list.
func listOf(method string) string {
	switch method {
	case "resources/list":
		return "resources"
	case "resources/templates/list":
		return "resourceTemplates"
	case "prompts/list":
		return "prompts"
	}
	return ""
}

// complete adds the members that a client of the newer generation expects in a result.
func (a *Agent) complete(r *request, result jsontext.Value) jsontext.Value {
	if !r.modern || result == nil || asksMore(result) {
		return result
	}
	if listOf(r.Method) != "" || r.Method == "resources/read" {
		result = fill(fill(result, "cacheScope", jsontext.Value(`"private"`)), "ttlMs", jsontext.Value("0"))
	}
	return fill(result, "resultType", jsontext.Value(`"complete"`))
}

// send sends a request to one server.
func (a *Agent) send(ctx context.Context, r *request, alias string) (jsontext.Value, *rpcError) {
	f := a.forward(r, alias)
	c := &call.Call{ID: f.ID}
	if r.modern {
		if problem := a.resume(ctx, r, c); problem != nil {
			return nil, problem
		}
		// The client's copy of the state is ours; the server gets its own.
		if start, _ := find(f.Params, "requestState"); start >= 0 {
			f.Params = without(f.Params, "requestState")
			rawjson.Members(c.More, func(name string, value jsontext.Value) { f.Params = set(f.Params, name, value) })
		}
	}
	result, err := a.Gateway.Forward(ctx, f)
	if refusal, ok := errors.AsType[*call.Refusal](err); ok {
		if problem := a.gparsError("", refusal); problem != nil {
			return nil, problem
		}
	}
	if err != nil {
		return nil, asRPC(err)
	}
	if asksMore(result) {
		if refusal := a.mayAsk(r, result); refusal != nil {
			return nil, asRPC(refusal)
		}
		if result, err = a.sealState(r, c, result); err != nil {
			return nil, asRPC(err)
		}
	}
	return result, nil
}

// without returns an object without one of its members.
func without(object jsontext.Value, name string) jsontext.Value {
	rest := jsontext.Value("{}")
	var names []string
	values := map[string]jsontext.Value{}
	rawjson.Members(object, func(n string, value jsontext.Value) {
		if n != name {
			names, values[n] = append(names, n), value
		}
	})
	for _, n := range slices.Backward(names) {
		rest = set(rest, n, values[n])
	}
	return rest
}

func asRPC(err error) *rpcError {
	if answer, ok := errors.AsType[*call.Answer](err); ok {
		return &rpcError{raw: answer.Raw, Code: codeOf(answer.Raw)}
	}
	return &rpcError{Code: internalError, Message: explain(err), Data: refusalData(err)}
}

// Limits of a merged list.
const (
	maxListed = 10000
	maxPages  = 100
)

// merge merges the lists of several servers into one page and remembers their routes. The agent's
// own prompts come first and hide others.
func (a *Agent) merge(ctx context.Context, r *request, list string, servers []string) (jsontext.Value, *rpcError) {
	var all []jsontext.Value
	to := map[string]string{}
	if list == "prompts" {
		for _, p := range a.Prompts {
			all, to["prompt "+p.Name] = append(all, p.Definition), ""
		}
	}
	for _, alias := range servers {
		f := a.forward(r, alias)
		f.Params = without(without(f.Params, "cursor"), "requestState")
		for range maxPages {
			result, err := a.Gateway.Forward(ctx, f)
			if err != nil {
				break // the other lists are still useful
			}
			rawjson.Elements(lookup(result, list), func(item jsontext.Value) {
				key := routeOf(list, item)
				if _, taken := to[key]; !taken && key != "" && len(all) < maxListed {
					all, to[key] = append(all, item), alias
				}
			})
			cursor := lookup(result, "nextCursor")
			if cursor == nil {
				break
			}
			f.Params = set(f.Params, "cursor", cursor)
		}
	}
	a.routes.mu.Lock()
	if a.routes.to == nil {
		a.routes.to = map[string]string{}
	}
	for key, alias := range to {
		if alias != "" && len(a.routes.to) < 4*maxListed {
			a.routes.to[key] = alias
		}
	}
	a.routes.mu.Unlock()
	return slices.Concat([]byte(`{"`+list+`":[`), bytes.Join(toBytes(all), []byte(",")), []byte(`]}`)), nil
}

func toBytes(values []jsontext.Value) [][]byte {
	b := make([][]byte, len(values))
	for i, v := range values {
		b[i] = v
	}
	return b
}

// routeOf returns the route key of a listed item.
func routeOf(list string, item jsontext.Value) string {
	kind, member := "uri ", "uri"
	switch list {
	case "resourceTemplates":
		kind, member = "template ", "uriTemplate"
	case "prompts":
		kind, member = "prompt ", "name"
	}
	name, ok := text(lookup(item, member))
	if !ok {
		return ""
	}
	return kind + name
}

// route finds the server that listed the requested item. If no list contained it, route lists
// everything once.
func (a *Agent) route(ctx context.Context, r *request, servers []string) (string, bool) {
	if len(servers) == 0 {
		return "", false
	}
	if alias, ok := a.routed(r); ok {
		return alias, slices.Contains(servers, alias)
	}
	for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
		if capability, ok := a.exposed(method); ok {
			list := &request{Message: mcpwire.Message{Method: method}, principal: r.principal, modern: r.modern, peer: r.peer, meta: r.meta, notify: r.notify}
			if _, err := a.merge(ctx, list, listOf(method), a.aliases(capability)); err != nil {
				return "", false
			}
		}
	}
	alias, ok := a.routed(r)
	return alias, ok && slices.Contains(servers, alias)
}

func (a *Agent) routed(r *request) (string, bool) {
	a.routes.mu.Lock()
	defer a.routes.mu.Unlock()
	params := r.Params
	if r.Method == "completion/complete" {
		params = lookup(params, "ref")
	}
	if name, ok := text(lookup(params, "name")); ok {
		alias, found := a.routes.to["prompt "+name]
		return alias, found
	}
	uri, ok := text(lookup(params, "uri"))
	if !ok {
		return "", false
	}
	for _, kind := range []string{"uri ", "template "} {
		if alias, found := a.routes.to[kind+uri]; found {
			return alias, true
		}
	}
	// The template with the longest fixed prefix.
	best, longest := "", -1
	for key, alias := range a.routes.to {
		template, ok := strings.CutPrefix(key, "template ")
		fixed, _, _ := strings.Cut(template, "{")
		if ok && strings.HasPrefix(uri, fixed) && len(fixed) > longest {
			best, longest = alias, len(fixed)
		}
	}
	return best, longest >= 0
}

// ownPrompt returns one of the agent's own prompts.
func (a *Agent) ownPrompt(ctx context.Context, r *request) (result jsontext.Value, problem *rpcError, found bool) {
	name, _ := text(lookup(r.Params, "name"))
	for _, p := range a.Prompts {
		if p.Name == name {
			result, err := p.Get(ctx, r.principal, lookup(r.Params, "arguments"))
			if err != nil {
				return nil, asRPC(err), true
			}
			return result, nil, true
		}
	}
	return nil, &rpcError{Code: invalidParams, Message: "unknown prompt " + clip(name)}, false
}

// subscribe begins or ends a subscription to a resource, in the older generation.
func (a *Agent) subscribe(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	if !a.exposes(gateway.Resources) || r.peer == nil {
		return nil, unknownMethod(r.Method)
	}
	uri, ok := text(lookup(r.Params, "uri"))
	if !ok {
		return nil, &rpcError{Code: invalidParams, Message: r.Method + " requires a uri"}
	}
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	on := r.Method == "resources/subscribe"
	changed, problem := r.peer.claim(uri, on)
	if changed {
		if problem = a.watch(ctx, r, r.Method, uri); problem != nil {
			r.peer.watch(uri, !on)
		}
	}
	if problem != nil {
		return nil, problem
	}
	return jsontext.Value("{}"), nil
}

// claim records that a client watches a resource or no longer does, and reports whether that is a
// change. Repetitions are not forwarded: a server may count its watchers.
func (p *peer) claim(uri string, on bool) (changed bool, problem *rpcError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.watched[uri] == on:
		return false, nil
	case !on:
		delete(p.watched, uri)
	case len(p.watched) >= maxWatched:
		return false, &rpcError{Code: internalError, Message: "the client is subscribed to too many resources"}
	default:
		p.watched[uri] = true
	}
	return true, nil
}

// watch subscribes to a resource at its server, or unsubscribes.
func (a *Agent) watch(ctx context.Context, r *request, method, uri string) *rpcError {
	asked := watching(r, method, uri)
	alias, problem := a.holder(ctx, asked, uri)
	if problem != nil {
		return problem
	}
	if _, err := a.Gateway.Forward(ctx, a.forward(asked, alias)); err != nil {
		return asRPC(err)
	}
	return nil
}

// watching turns a client's request into one for a resource's changes.
func watching(r *request, method, uri string) *request {
	asked := *r
	asked.Method, asked.Params = method, slices.Concat([]byte(`{"uri":`), marshal(uri), []byte(`}`))
	return &asked
}

// holder returns the server of a resource.
func (a *Agent) holder(ctx context.Context, r *request, uri string) (string, *rpcError) {
	servers := a.aliases("resources")
	if len(servers) == 1 {
		return servers[0], nil
	}
	if alias, found := a.route(ctx, r, servers); found {
		return alias, nil
	}
	return "", &rpcError{Code: invalidParams, Message: "no server offers the resource " + clip(uri)}
}
