package front

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// shelf is a gateway to servers with resources and prompts.
type shelf struct {
	fakeGateway
	forwarded []string // each request as server, method and params
	skills    []string // the names of the skills that the requests carry
	onDrop    []func() // the OnDrop callbacks of the subscriptions
}

func (d *shelf) Forward(_ context.Context, f *call.Forward) (jsontext.Value, error) {
	d.forwarded = append(d.forwarded, f.Server+" "+f.Method+" "+string(f.Params))
	if f.Skill != nil {
		d.skills = append(d.skills, f.Skill.Name())
	}
	cursor, _ := text(lookup(f.Params, "cursor"))
	switch f.Method {
	case "resources/list":
		if f.Server == "fs" && cursor == "" {
			return jsontext.Value(`{"resources":[{"uri":"fs://a", "x":1.0}],"nextCursor":"2"}`), nil
		}
		return jsontext.Value(`{"resources":[{"uri":"` + f.Server + `://b"}]}`), nil
	case "resources/templates/list":
		return jsontext.Value(`{"resourceTemplates":[{"uriTemplate":"` + f.Server + `://rows/{id}"}]}`), nil
	case "prompts/list":
		return jsontext.Value(`{"prompts":[{"name":"` + f.Server + `"},{"name":"own","from":"` + f.Server + `"}]}`), nil
	case "resources/read":
		uri, _ := text(lookup(f.Params, "uri"))
		if uri == "fs://gone" {
			return nil, &call.Answer{Raw: jsontext.Value(`{"code":-32002, "message":"gone"}`)}
		}
	case "resources/subscribe":
		d.onDrop = append(d.onDrop, f.OnDrop)
		if uri, _ := text(lookup(f.Params, "uri")); uri == "fs://gone" {
			return nil, &call.Answer{Raw: jsontext.Value(`{"code":-32002, "message":"gone"}`)}
		}
	}
	return jsontext.Value(`{"from": "` + f.Server + `" }`), nil
}

// endless is a gateway to servers whose lists have no end. Each page has one large item, and one with a long URI.
type endless struct {
	fakeGateway
	pages map[string]int
}

func (d *endless) Forward(_ context.Context, f *call.Forward) (jsontext.Value, error) {
	d.pages[f.Server]++
	n := strconv.Itoa(d.pages[f.Server])
	large := strings.Repeat("x", maxMessage/10)
	return jsontext.Value(`{"resources":[{"uri":"` + f.Server + n + `","x":"` + large + `"},{"uri":"` + n + large[:maxURI] + `"}],"nextCursor":"` + n + `"}`), nil
}

// Neither the pages of a merged list nor the routes to its items use up the memory, and no server can leave out the
// items of another.
func TestMergedListsAreBounded(t *testing.T) {
	servers := []string{"fs", "db"}
	d := &endless{pages: map[string]int{}}
	a := &Agent{
		Gateway: d, Expose: gateway.Exposed{gateway.Resources},
		Capabilities: func(string) jsontext.Value { return jsontext.Value(`{"resources":{}}`) },
	}
	got := a.merge(t.Context(), &request{Message: mcpwire.Message{Method: "resources/list"}}, "resources", servers)
	if n := strings.Count(string(got), `"uri":"`); len(got) > maxMessage || n != 8 {
		t.Errorf("the list has %d items and %d bytes", n, len(got))
	}
	if n := len(a.routes.of[""].lists["resources"]); n != 8 || d.pages["fs"] != 5 || d.pages["db"] != 5 {
		t.Errorf("%d routes after %v pages", n, d.pages)
	}
}

func exposing(t *testing.T, servers []string, kinds ...string) (*client, *shelf) {
	t.Helper()
	d := &shelf{}
	c := connect(t, func(a *Agent) {
		d.fakeGateway = a.Gateway.(fakeGateway)
		a.Gateway, a.Expose = d, gateway.Exposed(kinds)
		a.Capabilities = func(alias string) jsontext.Value {
			if slices.Contains(servers, alias) {
				return jsontext.Value(`{"resources":{},"prompts":{},"completions":{}}`)
			}
			return jsontext.Value(`{"tools":{}}`)
		}
		a.Prompts = []Prompt{{
			Name: "own", Definition: jsontext.Value(`{"name":"own","mine":true}`),
			Get: func(_ context.Context, f *call.Forward) (jsontext.Value, error) {
				return jsontext.Value(`{"messages":[],"for":"` + f.Principal + `","with":` + string(lookup(f.Params, "arguments")) + `}`), nil
			},
		}}
	})
	return c, d
}

func (c *client) ask(method, params string) string {
	c.t.Helper()
	c.say(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`)
	return strings.TrimSuffix(strings.TrimPrefix(c.hear(), `{"jsonrpc":"2.0","id":1,`), "}")
}

func TestExposed(t *testing.T) {
	tests := []struct {
		name           string
		servers, kinds []string
		method, params string
		want           string
	}{
		{"hidden", []string{"fs"}, nil, "resources/read", `{"uri":"fs://a"}`, `"error":{"code":-32601,"message":"unknown method resources/read"}`},
		{"another kind", []string{"fs"}, []string{"prompts"}, "resources/list", `{}`, `"error":{"code":-32601,"message":"unknown method resources/list"}`},
		{"one server, whose result is unchanged", []string{"fs"}, []string{"resources"}, "resources/list", `{}`, `"result":{"resources":[{"uri":"fs://a", "x":1.0}],"nextCursor":"2"}`},
		{"one server, which returns a page", []string{"fs"}, []string{"resources"}, "resources/list", `{"cursor":"2"}`, `"result":{"resources":[{"uri":"fs://b"}]}`},
		{"one server, which returns an error", []string{"fs"}, []string{"resources"}, "resources/read", `{"uri":"fs://gone"}`, `"error":{"code":-32002, "message":"gone"}`},
		{"two servers, whose lists are merged", []string{"fs", "db"}, []string{"resources"}, "resources/list", `{}`, `"result":{"resources":[{"uri":"fs://a", "x":1.0},{"uri":"fs://b"},{"uri":"db://b"}]}`},
		{"a resource is read from the server that listed it", []string{"fs", "db"}, []string{"resources"}, "resources/read", `{"uri":"db://b"}`, `"result":{"from": "db" }`},
		{"a resource is read from the server with a matching template", []string{"fs", "db"}, []string{"resources"}, "resources/read", `{"uri":"db://rows/7"}`, `"result":{"from": "db" }`},
		{"a resource that no server offers", []string{"fs", "db"}, []string{"resources"}, "resources/read", `{"uri":"web://x"}`, `"error":{"code":-32002,"message":"resources/read: no server offers the requested item"}`},
		{"a completion for a prompt", []string{"fs", "db"}, []string{"prompts"}, "completion/complete", `{"ref":{"type":"ref/prompt","name":"db"}}`, `"result":{"from": "db" }`},
		{"the agent's own prompts come first", []string{"fs", "db"}, []string{"prompts"}, "prompts/list", `{}`, `"result":{"prompts":[{"name":"own","mine":true},{"name":"fs"},{"name":"db"}]}`},
		{"the agent's own prompts need no exposure", []string{"fs"}, nil, "prompts/list", `{}`, `"result":{"prompts":[{"name":"own","mine":true}]}`},
		{"the agent's own prompt", []string{"fs"}, []string{"prompts"}, "prompts/get", `{"name":"own","arguments":{"a":1}}`, `"result":{"messages":[],"for":"me@local","with":{"a":1}}`},
		{"a server's prompt", []string{"fs", "db"}, []string{"prompts"}, "prompts/get", `{"name":"db"}`, `"result":{"from": "db" }`},
		{"a prompt of a server, although prompts are not exposed", []string{"fs"}, nil, "prompts/get", `{"name":"fs"}`, `"error":{"code":-32602,"message":"unknown prompt fs"}`},
		{"no server has resources", nil, []string{"resources"}, "resources/list", `{}`, `"result":{"resources":[]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, d := exposing(t, tt.servers, tt.kinds...)
			if got := c.ask(tt.method, tt.params); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if len(tt.kinds) == 0 && len(d.forwarded) > 0 {
				t.Errorf("requests were forwarded although nothing is exposed: %q", d.forwarded)
			}
			c.in.Close()
			<-c.ended
		})
	}
}

// Updates to a resource are sent only to clients that are subscribed to the resource.
func TestWatchedResources(t *testing.T) {
	c, d := exposing(t, []string{"fs"}, "resources")
	c.say(hello)
	c.hear()
	if got := c.ask("resources/subscribe", `{"uri":"fs://a"}`); got != `"result":{}` {
		t.Error(got)
	}
	c.agent.Publish("notifications/resources/updated", jsontext.Value(`{"uri":"fs://b"}`))
	c.agent.Publish("notifications/resources/updated", jsontext.Value(`{"uri":"fs://a","_meta":{"io.modelcontextprotocol/subscriptionId":4,"x":1}}`))
	c.wants(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"fs://a","_meta":{"x":1}}}`)
	c.in.Close()
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
	if got := strings.Join(d.forwarded, "\n"); got != "fs resources/subscribe {\"uri\":\"fs://a\"}\nfs resources/unsubscribe {\"uri\":\"fs://a\"}" {
		t.Errorf("forwarded %s", got)
	}
}

// Only changes to a client's subscriptions are forwarded. A second subscribe, or an unsubscribe
// without a subscription, is not.
func TestWatchingIsForwardedOnce(t *testing.T) {
	c, d := exposing(t, []string{"fs"}, "resources")
	c.say(hello)
	c.hear()
	for _, tt := range []struct{ method, uri, want string }{
		{"unsubscribe", "fs://a", `"result":{}`}, // this request must not end the subscription of another client
		{"subscribe", "fs://a", `"result":{}`},
		{"subscribe", "fs://a", `"result":{}`},
		{"subscribe", "fs://gone", `"error":{"code":-32002, "message":"gone"}`},
		{"unsubscribe", "fs://gone", `"result":{}`},
		{"unsubscribe", "fs://a", `"result":{}`},
		{"unsubscribe", "fs://a", `"result":{}`},
	} {
		if got := c.ask("resources/"+tt.method, `{"uri":"`+tt.uri+`"}`); got != tt.want {
			t.Errorf("%s %s: %s", tt.method, tt.uri, got)
		}
	}
	c.in.Close()
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
	want := []string{`fs resources/subscribe {"uri":"fs://a"}`, `fs resources/subscribe {"uri":"fs://gone"}`, `fs resources/unsubscribe {"uri":"fs://a"}`}
	if !slices.Equal(d.forwarded, want) {
		t.Errorf("forwarded %q", d.forwarded)
	}
}

// A client that reaches its limit of watched resources gets an error.
func TestWatchingIsBounded(t *testing.T) {
	p := newPeer(nil, "key", "me", nil)
	for i := range maxWatched {
		_, _ = p.claim(strconv.Itoa(i), true)
	}
	if changed, problem := p.claim("more", true); changed || problem == nil {
		t.Errorf("a subscription above the limit: %t, %v", changed, problem)
	}
	if changed, problem := p.claim("7", true); changed || problem != nil {
		t.Errorf("a repeated subscription: %t, %v", changed, problem)
	}
	if changed, problem := p.claim("7", false); !changed || problem != nil {
		t.Errorf("an unsubscription: %t, %v", changed, problem)
	}
}

func TestLogLevel(t *testing.T) {
	var received []string
	c := connect(t, func(a *Agent) {
		a.Level = func(_ context.Context, _ *call.Client, level string) { received = append(received, level) }
	})
	c.say(hello)
	c.hear()
	if got := c.ask("logging/setLevel", `{"level":"loud"}`); !strings.Contains(got, "-32602") {
		t.Error(got)
	}
	if got := c.ask("logging/setLevel", `{"level":"warning"}`); got != `"result":{}` {
		t.Error(got)
	}
	for _, level := range []string{"info", "error"} {
		c.agent.Publish("notifications/message", jsontext.Value(`{"level":"`+level+`","data":"x"}`))
	}
	c.wants(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"x"}}`)
	if b, _ := json.Marshal(received); string(b) != `["warning"]` {
		t.Errorf("the servers got %s", b)
	}
}

// A server may fail to answer logging/setLevel. This delays the client by at most levelWait. If the
// servers are still starting, there is no delay.
func TestLogLevelIsNotWaitedForForEver(t *testing.T) {
	for name, ready := range map[string]bool{"ready": true, "not yet": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := make(chan struct{}, 1)
				a := &Agent{
					Ready: func(ctx context.Context) error {
						if !ready && ctx == alreadyCancelled {
							return ctx.Err()
						}
						return nil
					},
					Level: func(ctx context.Context, _ *call.Client, _ string) { <-ctx.Done(); over <- struct{}{} },
				}
				got, problem := a.setLevel(t.Context(), &request{Message: mcpwire.Message{Params: jsontext.Value(`{"level":"error"}`)}})
				if string(got) != "{}" || problem != nil {
					t.Errorf("%s, %v", got, problem)
				}
				<-over // Level returns after levelWait; without the time limit, this would deadlock
			})
		})
	}
}

// An unsubscription is sent to the server of the subscription even while that server is down.
// Otherwise the subscription would be renewed when the server restarts.
func TestSubscriptionEndsWhileItsServerIsAway(t *testing.T) {
	c, d := exposing(t, []string{"fs"}, "resources")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &request{
		Message: mcpwire.Message{
			ID: jsontext.Value("1"), Method: "subscriptions/listen",
			Params: jsontext.Value(`{"notifications":{"resourceSubscriptions":["fs://a"]}}`),
		},
		modern: true,
		notify: func(string, jsontext.Value) {
			c.agent.Capabilities = func(string) jsontext.Value { return nil }
			cancel()
		},
	}
	if _, problem := c.agent.listen(ctx, r); problem != nil {
		t.Error(problem)
	}
	want := []string{`fs resources/subscribe {"uri":"fs://a"}`, `fs resources/unsubscribe {"uri":"fs://a"}`}
	if !slices.Equal(d.forwarded, want) {
		t.Errorf("forwarded %q", d.forwarded)
	}
	c.in.Close()
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
}

// A request for a resource or prompt carries the skill in use, as a tool call does. The server does not get its name.
func TestExposedUnderASkill(t *testing.T) {
	for _, tt := range []struct{ method, params, sent, want string }{
		{"resources/read", `{"uri":"fs://a"}`, "", "operator"},
		{"resources/read", `{"uri":"fs://a","_meta":{"x":1,"ambit/skill":"worker"}}`, `{"uri":"fs://a","_meta":{"x":1}}`, "operator and worker"},
		{"resources/list", `{"_meta":{"ambit/skill":"worker"}}`, `{"_meta":{}}`, "operator and worker"},
		{"resources/read", `{"uri":"fs://a","_meta":{"ambit/skill":"boss"}}`, "", "not_in_skill_allowlist"},
		{"resources/read", `{"uri":"fs://a","_meta":{"ambit/skill":7}}`, "", "-32602"},
		{"resources/subscribe", `{"uri":"fs://a"}`, "", "operator"},
		{"resources/subscribe", `{"uri":"fs://a","_meta":{"ambit/skill":"worker"}}`, `{"uri":"fs://a"}`, "operator and worker"},
		{"resources/subscribe", `{"uri":"fs://a","_meta":{"ambit/skill":"boss"}}`, "", "not_in_skill_allowlist"},
	} {
		c, d := exposing(t, []string{"fs"}, gateway.Resources)
		c.agent.Skill, c.agent.Skills = named("operator"), map[string]call.Allowlist{"worker": named("worker")}
		got := c.ask(tt.method, tt.params)
		if len(d.skills) == 0 {
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s %s: got %s, want %s", tt.method, tt.params, got, tt.want)
			}
			continue
		}
		sent := tt.params
		if tt.sent != "" {
			sent = tt.sent
		}
		if d.skills[0] != tt.want || d.forwarded[0] != "fs "+tt.method+" "+sent {
			t.Errorf("%s %s: forwarded %q with the skill %q, want %q", tt.method, tt.params, d.forwarded, d.skills, tt.want)
		}
	}
}

// named is a skill with a name.
type named string

func (named) Allows(string) bool { return true }
func (n named) Name() string     { return string(n) }

// A client cannot make ambit remember long URIs, in either protocol.
func TestLongURIs(t *testing.T) {
	c, _ := exposing(t, []string{"fs"}, "resources")
	defer func() { c.in.Close(); <-c.ended }()
	uri := func(size int) string { return "fs://" + strings.Repeat("x", size-len("fs://")) }
	for size, want := range map[int]string{maxURI: `"result"`, maxURI + 1: "the uri is longer than 4 KiB"} {
		if got := c.ask("resources/subscribe", `{"uri":"`+uri(size)+`"}`); !strings.Contains(got, want) {
			t.Errorf("a uri of %d bytes: the client got %.200s", size, got)
		}
		f := c.agent.filterOf(jsontext.Value(`{"resourceSubscriptions":["` + uri(size) + `"]}`))
		if (len(f.URIs) == 1) != (size <= maxURI) {
			t.Errorf("a uri of %d bytes: the filter has %d URIs", size, len(f.URIs))
		}
	}
}

// A client gets no more updates of a resource whose subscription was dropped.
func TestDroppedSubscription(t *testing.T) {
	c, d := exposing(t, []string{"fs"}, "resources")
	c.say(hello)
	c.hear()
	for _, uri := range []string{"fs://a", "fs://b"} {
		if got := c.ask("resources/subscribe", `{"uri":"`+uri+`"}`); got != `"result":{}` {
			t.Error(got)
		}
	}
	d.onDrop[0]()
	for _, uri := range []string{"fs://a", "fs://b"} {
		c.agent.Publish("notifications/resources/updated", jsontext.Value(`{"uri":"`+uri+`"}`))
	}
	c.wants(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"fs://b"}}`)
}
