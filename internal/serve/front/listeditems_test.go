package front

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// ruled is a gateway to servers with resources and prompts whose lists depend on the policy.
type ruled struct {
	*shelf
	rules *gateway.Gateway
}

func (d ruled) Offers(f *call.Forward, open string) bool { return d.rules.Offers(f, open) }
func (d ruled) PolicyVersion(c *call.Call) any           { return d.rules.PolicyVersion(c) }

const itemRules = `
forbid (principal, action, resource == Tool::"fs/prompts/get") when { context.arguments.name == "fs" } unless { principal in Group::"staff" };
forbid (principal, action, resource == Tool::"fs/resources/read") when { context.arguments.uri like "fs://a*" } unless { principal in Group::"staff" };
forbid (principal, action, resource == Tool::"db/resources/read") unless { principal in Group::"staff" };
forbid (principal, action, resource == Tool::"db/prompts/get") when { context.arguments.arguments.all == "yes" };
forbid (principal, action, resource) when { resource.name == "prompts/get" && context.arguments.name == "mine" } unless { principal in Group::"staff" };
`

func ruledAgent(t *testing.T, file string, servers ...string) *Agent {
	t.Helper()
	a := testAgent(t, &stage{})
	who := &agent.Agent{Name: "a", Dialect: agent.Matrix}
	for _, s := range servers {
		who.Servers = append(who.Servers, agent.Server{Alias: s})
	}
	rules := gateway.New(who, gateway.Options{Name: "a", Rules: gate.Rules{Policy: policy.Open(policy.Options{File: file})}})
	d := &shelf{}
	d.agent = who
	a.Gateway = ruled{d, rules}
	a.Expose = []string{gateway.Prompts, gateway.Resources}
	a.Capabilities = func(string) jsontext.Value { return jsontext.Value(`{"resources":{},"prompts":{}}`) }
	a.recheckLists = time.Millisecond
	return a
}

// Prompts, resources and templates that the policy denies to a caller, whatever the other arguments are, are not listed
// for this caller, with one server and with several.
func TestItemsOfEachCaller(t *testing.T) {
	file := t.TempDir() + "/policy.cedar"
	if err := home.Replace(file, 0o600, []byte(itemRules)); err != nil {
		t.Fatal(err)
	}
	staff := &identity.Attributes{Groups: []string{"staff"}}
	for _, tt := range []struct {
		servers, method string
		who             *identity.Attributes
		want, without   string
	}{
		{"fs", "prompts/list", nil, `"own"`, `"name":"fs"`},
		{"fs", "prompts/list", staff, `"name":"fs"`, ""},
		{"fs", "resources/list", nil, `"nextCursor"`, `fs://a`},
		{"fs", "resources/list", staff, `fs://a`, ""},
		{"fs", "resources/templates/list", nil, `fs://rows/{id}`, ""},
		{"db", "resources/templates/list", nil, `[]`, `db://`},
		{"db", "resources/templates/list", staff, `db://rows/{id}`, ""},
		{"db", "prompts/list", nil, `"name":"db"`, ""}, // some arguments are allowed
		{"fs db", "prompts/list", nil, `"name":"db"`, `"name":"fs"`},
		{"fs db", "prompts/list", nil, `"name":"db"`, `"name":"mine"`},
		{"fs db", "prompts/list", staff, `"name":"mine"`, ""},
		{"fs db", "resources/list", nil, `fs://b`, `fs://a`},
		{"fs db", "resources/list", nil, `fs://b`, `db://b`},
		{"fs db", "resources/list", staff, `db://b`, ""},
	} {
		a := ruledAgent(t, file, strings.Fields(tt.servers)...)
		if strings.Contains(tt.servers, " ") {
			a.Prompts = []Prompt{{Name: "mine", Definition: jsontext.Value(`{"name":"mine"}`)}}
		}
		r := &request{Message: mcpwire.Message{Method: tt.method, Params: jsontext.Value("{}")}, principal: "ada", attributes: tt.who}
		got, problem := a.pass(t.Context(), r)
		if problem != nil || !strings.Contains(string(got), tt.want) || tt.without != "" && strings.Contains(string(got), tt.without) {
			t.Errorf("%s of %s, staff %t: %s, %v; want %s and not %s", tt.method, tt.servers, tt.who != nil, got, problem, tt.want, tt.without)
		}
	}
}

// A connected caller is told that its lists of prompts and resources may have changed.
func TestItemsChangeWithPolicy(t *testing.T) {
	file := t.TempDir() + "/policy.cedar"
	if err := home.Replace(file, 0o600, []byte(itemRules)); err != nil {
		t.Fatal(err)
	}
	a := ruledAgent(t, file, "fs")
	p := newPeer(a, "1", "ada", nil)
	s := a.addSubscriber(p.caller)
	defer a.removeSubscriber(s)
	hear := func(why string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for _, want := range []string{"notifications/prompts/list_changed", "notifications/resources/list_changed"} {
			if e, ok := a.next(ctx, s); !ok || e.method != want {
				t.Errorf("%s: the client is sent %q, want %s", why, e.method, want)
			}
		}
	}
	p.attributes.Store(&identity.Attributes{Groups: []string{"staff"}})
	hear("another group")
	if err := home.Replace(file, 0o600, []byte(itemRules+`forbid (principal, action, resource == Tool::"x/y");`)); err != nil {
		t.Fatal(err)
	}
	hear("another policy")
}
