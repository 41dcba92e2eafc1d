package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/action"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// bindings contains a binding for each tool.
type bindings map[string]func(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error)

func (b bindings) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	return b[t.Name](ctx, t, c)
}

// others calls the agents of a process.
type others map[string]*Gateway

func (o others) CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	return o[name].Call(ctx, c)
}

// What an agent learns from another agent, from the program of an agent or from a labelled result of another agent is
// text, and a call that another agent makes for it is judged.
func TestTextOfComposedCalls(t *testing.T) {
	const program = `{"content":[],"structuredContent":{"intent_id":"1","status":"ok","text":"` + hostile + `","sources":[]}}`
	labelled := saying(`[{"name":"Recipes","email":"` + stranger + `"}]`)
	labelled = labelled[:len(labelled)-1] + `,"_meta":{"` + call.Untrusted + `":{"findings":[]}}}`
	result := func(raw string) func(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
		return func(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
			return call.Result{Raw: jsontext.Value(raw)}, nil
		}
	}
	none := saying("Hello")
	for _, tt := range []struct {
		name string
		// page is the result of the other agent's tool. first and last are the calls of the client.
		page, first, last string
		asks              bool
	}{
		{"the text of another agent", saying(hostile), "read_pages", "send_mail", true},
		{"the program of another agent", program, "read_pages", "send_mail", true},
		{"a labelled result of another agent", labelled, "read_pages", "send_mail", true},
		{"a call that another agent makes", saying(hostile), "read_pages", "forward_mail", true},
		{"the text of a chain of agents", saying(hostile), "read_chain", "send_mail", true},
		{"another text", none, "read_pages", "forward_mail", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, f, d := open(t, statetest.Open(t)), NewFlow(), &desk{}
			gateways := others{}
			add := func(a *agent.Agent, own bindings) {
				actions := action.New(a, action.Options{Name: a.Name, Agents: gateways})
				for i := range a.Tools {
					if tool := &a.Tools[i]; own[tool.Name] == nil {
						own[tool.Name] = actions.Act
					}
				}
				gateways[a.Name] = New(a, Options{Name: a.Name, Binding: own, Store: b, Flow: f, Approvals: Approvals{TTL: time.Millisecond}})
			}
			tool := func(name string, class agent.SideEffect, binding agent.Binding) agent.Tool {
				return agent.Tool{
					Name: name, SideEffect: class, Binding: binding,
					InputSchema: `{"type":"object","properties":{"to":{"type":"string"},"body":{"type":"string"}}}`,
				}
			}
			add(&agent.Agent{Name: "helper", ID: "helper", Digest: "sha256:h", Tools: []agent.Tool{
				tool("open_page", agent.Read, agent.RunProgram{}), tool("deliver_mail", agent.Network, agent.RunProgram{}),
			}}, bindings{"open_page": result(tt.page), "deliver_mail": d.Act})
			add(&agent.Agent{Name: "middle", ID: "middle", Digest: "sha256:m", Tools: []agent.Tool{
				tool("read_pages", agent.Read, agent.Compose{Agent: "helper", Tool: "open_page"}),
			}}, bindings{})
			add(&agent.Agent{Name: "front", ID: "front", Digest: "sha256:f", Tools: []agent.Tool{
				tool("read_pages", agent.Read, agent.Compose{Agent: "helper", Tool: "open_page"}),
				tool("read_chain", agent.Read, agent.Compose{Agent: "middle", Tool: "read_pages"}),
				tool("forward_mail", agent.Network, agent.Compose{Agent: "helper", Tool: "deliver_mail"}),
				tool("send_mail", agent.Network, agent.RunProgram{}),
			}}, bindings{"send_mail": d.Act})
			if err := say(t, gateways["front"], "me", "1", tt.first, `{}`); err != nil {
				t.Fatal(err)
			}
			err := say(t, gateways["front"], "me", "1", tt.last, mailThem)
			if asked := codeOf(err) == call.ApprovalExpired && d.count() == 0; asked != tt.asks || !tt.asks && err != nil {
				t.Errorf("the call ended with %v, and %d calls were made", err, d.count())
			}
		})
	}
}

// An agent writes a value from a text into a note. Another gateway with the same store gets the note from a tool that
// returns it as text.
func TestNoteOfAnotherGateway(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		first := open(t, connect())
		note := ""
		start := func(b *store.Store) (*Gateway, *desk) {
			d := &desk{}
			own := bindings{
				"open_page": d.Act, "send_mail": d.Act,
				"add_note": func(_ context.Context, _ *agent.Tool, c *call.Call) (call.Result, error) {
					note = string(c.Arguments)
					return call.Result{Raw: jsontext.Value(saying("done"))}, nil
				},
				"get_note": func(context.Context, *agent.Tool, *call.Call) (call.Result, error) {
					return call.Result{Raw: jsontext.Value(saying("Your note: " + note))}, nil
				},
			}
			a := office()
			a.Tools = append(a.Tools,
				agent.Tool{Name: "add_note", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "s"}},
				agent.Tool{Name: "get_note", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "s"}})
			return New(a, Options{Binding: own, Store: b, Flow: NewFlow(), Approvals: Approvals{TTL: time.Millisecond}}), d
		}
		one, _ := start(first)
		two, d := start(store.New(connect(), first.Keys, nil))
		if err := say(t, one, "me", "1", "open_page", page); err != nil {
			t.Fatal(err)
		}
		if err := say(t, one, "me", "1", "add_note", `{"content":"Accountant: `+stranger+`"}`); err != nil {
			t.Fatal(err)
		}
		if err := say(t, two, "me", "2", "get_note", `{}`); err != nil {
			t.Fatal(err)
		}
		if err := say(t, two, "me", "2", "send_mail", mailThem); codeOf(err) != call.ApprovalExpired || d.count() != 0 {
			t.Errorf("the call ended with %v, and %d calls were made", err, d.count())
		}
	})
}
