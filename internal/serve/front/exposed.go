package front

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// This file forwards requests for resources, prompts and completions, if the operator has exposed them. With one
// server, requests and results are forwarded unchanged. With several servers, their lists are merged, and a request
// goes to the server that listed the requested item.

// aliases returns the aliases of all servers with the given capability, in the order of the manifest.
func (a *Agent) aliases(capability string) []string {
	var list []string
	servers := a.Gateway.Agent().Servers
	for i := range servers {
		alias := servers[i].Alias
		if lookup(a.Capabilities(alias), capability) != nil {
			list = append(list, alias)
		}
	}
	return list
}

// forward converts the client's request to a request to the server with this alias.
func (a *Agent) forward(r *request, alias string) *call.Forward {
	f := &call.Forward{
		ID: gateway.NewID(), Server: alias, Method: r.Method, Params: r.Params, Principal: r.principal,
		Attributes: r.attributes, Client: a.client(r), OnNotify: r.onNotify(),
	}
	f.Skill, _, _ = a.skillOf(r)
	if lookup(f.Params, "_meta", metaSkill) != nil { // delete the skill, because the server does not need to know it
		f.Params = set(f.Params, "_meta", without(lookup(f.Params, "_meta"), metaSkill))
	}
	return f
}

// checkSkill returns an error if the client chose a skill that it cannot use.
func (a *Agent) checkSkill(r *request) *rpcError {
	_, refusal, problem := a.skillOf(r)
	if refusal != nil {
		return asRPC(refusal)
	}
	return problem
}

// capabilityFor returns the capability that a server needs for a method. The second result reports whether the operator
// has exposed the method.
func (a *Agent) capabilityFor(method string) (capability string, ok bool) {
	switch group, _, _ := strings.Cut(method, "/"); group {
	case "resources":
		return "resources", a.exposes(gateway.Resources)
	case "prompts":
		return "prompts", a.exposes(gateway.Prompts)
	default:
		return "completions", a.exposes(gateway.Prompts) || a.exposes(gateway.Resources)
	}
}

// pass handles requests for resources, prompts and completions.
func (a *Agent) pass(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	capability, exposed := a.capabilityFor(r.Method)
	own := capability == "prompts" && len(a.Prompts) > 0
	if !exposed && !own {
		return nil, unknownMethod(r.Method)
	}
	if problem := a.checkSkill(r); problem != nil {
		return nil, problem
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
		result = a.merge(ctx, r, list, servers)
	case len(servers) == 1:
		if result, err = a.send(ctx, r, servers[0]); list != "" && err == nil {
			result = a.listedFor(r, list, result, servers[0])
		}
	case list == "":
		alias, found := a.route(ctx, r, servers)
		if !found {
			return nil, &rpcError{Code: notFound(r), Message: r.Method + ": no server offers the requested item"}
		}
		result, err = a.send(ctx, r, alias)
	}
	return a.complete(r, result), err
}

// notFound returns the error code for an item that no server offers. The older protocol has a separate code for
// resources.
func notFound(r *request) int {
	if r.Method == "resources/read" && !r.modern {
		return -32002
	}
	return invalidParams
}

// listOf returns the name of the result member that contains the list. It returns "" if the method does not return a
// list.
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

// complete adds the members that clients of the newer protocol expect in a result. It does not change existing members.
func (a *Agent) complete(r *request, result jsontext.Value) jsontext.Value {
	if !r.modern || result == nil || asksForInput(result) {
		return result
	}
	if listOf(r.Method) != "" || r.Method == "resources/read" {
		result = fill(fill(result, "cacheScope", jsontext.Value(`"private"`)), "ttlMs", jsontext.Value("0"))
	}
	return fill(result, "resultType", jsontext.Value(`"complete"`))
}

// send sends the client's request to the server with this alias and returns the result.
func (a *Agent) send(ctx context.Context, r *request, alias string) (jsontext.Value, *rpcError) {
	f := a.forward(r, alias)
	c := &call.Call{ID: f.ID}
	if r.modern {
		if _, problem := a.resume(ctx, r, c); problem != nil { // only tool calls wait for approval
			return nil, problem
		}
		// The requestState from the client is the front's sealed state. It contains the server's own state, which is sent to
		// the server.
		if lookup(f.Params, "requestState") != nil {
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
	if asksForInput(result) {
		if refusal := a.mayAsk(r, result); refusal != nil {
			return nil, asRPC(refusal)
		}
		if result, err = a.sealState(r, c, a.nameAll(alias, result)); err != nil {
			return nil, asRPC(err)
		}
	}
	return result, nil
}

// without returns a copy of the object. The copy does not contain the named member.
func without(object jsontext.Value, name string) jsontext.Value {
	var rest [][]byte
	rawjson.Members(object, func(n string, value jsontext.Value) {
		if n != name {
			rest = append(rest, slices.Concat(marshal(n), []byte(":"), value))
		}
	})
	return slices.Concat([]byte("{"), bytes.Join(rest, []byte(",")), []byte("}"))
}

func asRPC(err error) *rpcError {
	if answer, ok := errors.AsType[*call.Answer](err); ok {
		return &rpcError{raw: answer.Raw, Code: codeOf(answer.Raw)}
	}
	return &rpcError{Code: internalError, Message: explain(err), Data: refusalData(err)}
}

const (
	// maxListed is the maximum number of items in a merged list.
	maxListed = 10000
	// maxPages is the maximum number of list pages that are read from one server.
	maxPages = 100
)

// merge asks every server for its list and returns one merged list. Each server has an equal share of maxMessage bytes;
// the rest of a longer list is left out. If several items have the same name, only the first one is listed. The agent's
// own prompts come first. The server of each item is stored in a.routes, for this caller.
func (a *Agent) merge(ctx context.Context, r *request, list string, servers []string) jsontext.Value {
	var all [][]byte
	to := map[string]string{}
	if list == "prompts" {
		for _, p := range a.Prompts {
			to["prompt "+p.Name] = ""
			if a.offers(r, list, p.Definition, "") {
				all = append(all, p.Definition)
			}
		}
	}
	for _, alias := range servers {
		f := a.forward(r, alias)
		f.Params = without(without(f.Params, "cursor"), "requestState")
		left := maxMessage / len(servers)
		for range maxPages {
			result, err := a.Gateway.Forward(ctx, f)
			if err != nil {
				break // skip this server, because the other servers' lists are still useful
			}
			if left -= len(result); left < 0 {
				break
			}
			rawjson.Elements(lookup(result, list), func(item jsontext.Value) {
				key := routeOf(list, item)
				if _, taken := to[key]; taken || key == "" || len(to) >= maxListed {
					return
				}
				if to[key] = alias; a.offers(r, list, item, alias) {
					all = append(all, item)
				}
			})
			cursor := lookup(result, "nextCursor")
			if cursor == nil {
				break
			}
			f.Params = set(f.Params, "cursor", cursor)
		}
	}
	a.routes.keep(r.principal, list, to)
	return slices.Concat([]byte(`{"`+list+`":[`), bytes.Join(all, []byte(",")), []byte(`]}`))
}

// offers reports whether the policy can allow the caller to request an item of a server's list. It assumes that a
// prompt can have any arguments, and that a template can have any URI.
func (a *Agent) offers(r *request, list string, item jsontext.Value, alias string) bool {
	f := a.forward(r, alias)
	method, member, open := "resources/read", "uri", ""
	switch list {
	case "prompts":
		method, member, open = "prompts/get", "name", "arguments"
	case "resourceTemplates":
		member, open = "", "uri"
	}
	f.Method, f.Params = method, jsontext.Value("{}")
	if value := lookup(item, member); member != "" && value != nil {
		f.Params = set(f.Params, member, value)
	}
	return a.Gateway.Offers(f, open)
}

// listedFor returns a server's list without the items that the caller can never request.
func (a *Agent) listedFor(r *request, list string, result jsontext.Value, alias string) jsontext.Value {
	var kept [][]byte
	hidden := false
	rawjson.Elements(lookup(result, list), func(item jsontext.Value) {
		if a.offers(r, list, item, alias) {
			kept = append(kept, item)
		} else {
			hidden = true
		}
	})
	if !hidden {
		return result
	}
	return set(result, list, slices.Concat([]byte("["), bytes.Join(kept, []byte(",")), []byte("]")))
}

// routeOf returns the key under which a list item is stored in routes. It returns "" if the item has no name or URI, or
// if its name or URI is longer than maxURI.
func routeOf(list string, item jsontext.Value) string {
	kind, member := "uri ", "uri"
	switch list {
	case "resourceTemplates":
		kind, member = "template ", "uriTemplate"
	case "prompts":
		kind, member = "prompt ", "name"
	}
	name, ok := text(lookup(item, member))
	if !ok || len(name) > maxURI {
		return ""
	}
	return kind + name
}

// route returns the alias of the server that listed the requested item. If the item is unknown, route first requests
// all lists.
func (a *Agent) route(ctx context.Context, r *request, servers []string) (string, bool) {
	if len(servers) == 0 {
		return "", false
	}
	if alias, ok := a.routed(r); ok {
		return alias, slices.Contains(servers, alias)
	}
	for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
		if capability, ok := a.capabilityFor(method); ok {
			list := *r
			list.Message = mcpwire.Message{Method: method}
			a.merge(ctx, &list, listOf(method), a.aliases(capability))
		}
	}
	alias, ok := a.routed(r)
	return alias, ok && slices.Contains(servers, alias)
}

func (a *Agent) routed(r *request) (string, bool) {
	params := r.Params
	if r.Method == "completion/complete" {
		params = lookup(params, "ref")
	}
	if name, ok := text(lookup(params, "name")); ok {
		return a.routes.prompt(r.principal, name)
	}
	uri, ok := text(lookup(params, "uri"))
	if !ok {
		return "", false
	}
	return a.routes.resource(r.principal, uri)
}

// ownPrompt answers prompts/get for the agent's own prompts. The last result reports whether the prompt exists.
func (a *Agent) ownPrompt(ctx context.Context, r *request) (result jsontext.Value, problem *rpcError, found bool) {
	name, _ := text(lookup(r.Params, "name"))
	for _, p := range a.Prompts {
		if p.Name == name {
			result, err := p.Get(ctx, a.forward(r, ""))
			if err != nil {
				return nil, asRPC(err), true
			}
			return result, nil, true
		}
	}
	return nil, &rpcError{Code: invalidParams, Message: "unknown prompt " + clip(name)}, false
}

// subscribe answers resources/subscribe and resources/unsubscribe in the older protocol.
func (a *Agent) subscribe(ctx context.Context, r *request) (jsontext.Value, *rpcError) {
	if !a.exposes(gateway.Resources) || r.peer == nil {
		return nil, unknownMethod(r.Method)
	}
	uri, ok := text(lookup(r.Params, "uri"))
	if !ok {
		return nil, &rpcError{Code: invalidParams, Message: r.Method + " requires a uri"}
	}
	if len(uri) > maxURI {
		return nil, &rpcError{Code: invalidParams, Message: "the uri is longer than 4 KiB, which is the limit for subscriptions"}
	}
	if problem := a.checkSkill(r); problem != nil {
		return nil, problem
	}
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	on := r.Method == "resources/subscribe"
	changed, problem := r.peer.claim(uri, on)
	if changed {
		dropped := func() { _, _ = r.peer.claim(uri, false) }
		if _, problem = a.watch(ctx, r, r.Method, uri, dropped); problem != nil {
			_, _ = r.peer.claim(uri, !on) // undo the change
		}
	}
	if problem != nil {
		return nil, problem
	}
	return jsontext.Value("{}"), nil
}

// claim adds a resource to the client's subscriptions, or removes it if on is false. It returns false if nothing has
// changed. The caller forwards only changes to the server, because a server might count its subscriptions.
func (p *peer) claim(uri string, on bool) (changed bool, problem *rpcError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.watched[uri] == on:
		return false, nil
	case !on:
		delete(p.watched, uri)
	case len(p.watched) >= maxWatched:
		return false, &rpcError{Code: internalError, Message: "the client has too many resource subscriptions"}
	default:
		p.watched[uri] = true
	}
	return true, nil
}

// watch sends a subscribe or unsubscribe request to the server that offers the resource. It returns the server's alias.
// The callback is called if a later change of the policy ends the subscription.
func (a *Agent) watch(
	ctx context.Context, r *request, method, uri string, dropped func(),
) (alias string, problem *rpcError) {
	asked := watchRequest(r, method, uri)
	if alias, problem = a.serverOf(ctx, asked, uri); problem != nil {
		return "", problem
	}
	f := a.forward(asked, alias)
	f.OnDrop = dropped
	if _, err := a.Gateway.Forward(ctx, f); err != nil {
		return "", asRPC(err)
	}
	return alias, nil
}

// watchRequest returns a copy of the request with a different method, and with the URI as its only parameter.
func watchRequest(r *request, method, uri string) *request {
	asked := *r
	asked.Method, asked.Params = method, slices.Concat([]byte(`{"uri":`), marshal(uri), []byte(`}`))
	return &asked
}

// serverOf returns the alias of the server that offers a resource.
func (a *Agent) serverOf(ctx context.Context, r *request, uri string) (string, *rpcError) {
	servers := a.aliases("resources")
	if len(servers) == 1 {
		return servers[0], nil
	}
	if alias, found := a.route(ctx, r, servers); found {
		return alias, nil
	}
	return "", &rpcError{Code: invalidParams, Message: "no server offers the resource " + clip(uri)}
}
