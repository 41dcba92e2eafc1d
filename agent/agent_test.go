package agent_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
)

func TestSideEffectPolicy(t *testing.T) {
	var open agent.SideEffectPolicy
	closed := agent.SideEffectPolicy{Restricted: true}
	some := agent.SideEffectPolicy{Restricted: true, Allowed: []agent.SideEffect{agent.Read}}
	for _, class := range agent.SideEffects {
		if !open.Allows(class) {
			t.Errorf("an unrestricted policy does not allow %s", class)
		}
		if closed.Allows(class) {
			t.Errorf("a policy without allowed classes allows %s", class)
		}
		if some.Allows(class) != (class == agent.Read) {
			t.Errorf("a policy that allows only read: Allows(%s) = %t", class, some.Allows(class))
		}
	}
	if agent.SideEffect("nonsense").Rank() <= agent.Chain.Rank() {
		t.Error("an unknown class ranks below a known one")
	}
}

func TestCallable(t *testing.T) {
	a := &agent.Agent{SideEffects: agent.SideEffectPolicy{Restricted: true, Allowed: []agent.SideEffect{agent.Read, agent.Chain}}}
	tests := []struct {
		tool agent.Tool
		want bool
	}{
		{agent.Tool{SideEffect: agent.Read, Binding: agent.OnServer{Alias: "x"}}, true},
		{agent.Tool{SideEffect: agent.Write, Binding: agent.OnServer{Alias: "x"}}, false},
		{agent.Tool{SideEffect: agent.Read}, false},
		{agent.Tool{SideEffect: agent.Chain, Binding: agent.Native{Namespace: "chain"}}, false},
	}
	for _, tt := range tests {
		if got := a.Callable(&tt.tool); got != tt.want {
			t.Errorf("Callable(%+v) = %t, want %t", tt.tool, got, tt.want)
		}
	}
}

func TestRateAtMost(t *testing.T) {
	hour := func(n int64) agent.Rate { return agent.Rate{Count: n, Per: time.Hour} }
	tests := []struct {
		a, b agent.Rate
		want bool
	}{
		{hour(10), hour(10), true},
		{hour(9), hour(10), true},
		{hour(11), hour(10), false},
		{agent.Rate{Count: 10, Per: 24 * time.Hour}, hour(10), true},
		{agent.Rate{Count: 10, Per: time.Minute}, hour(10), false},
		{agent.Rate{Count: 100, Per: 24 * time.Hour}, hour(10), false},
	}
	for _, tt := range tests {
		if got := tt.a.AtMost(tt.b); got != tt.want {
			t.Errorf("(%s).AtMost(%s) = %t, want %t", tt.a, tt.b, got, tt.want)
		}
	}
	if s := hour(10).String(); s != "10/hour" {
		t.Errorf("String() = %q, want 10/hour", s)
	}
}

func TestAmountAtMost(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"10", "10.00", true},
		{"10.01", "10", false},
		{"9.99", "10", true},
		{"", "10", false},
		{"10", "", true},
		{"", "", true},
		{"0.1", "0.10000000000000000001", true},
		{"1e3", "999", false},
		{"nonsense", "10", false},
	}
	for _, tt := range tests {
		if got := agent.AmountAtMost(tt.a, tt.b); got != tt.want {
			t.Errorf("AmountAtMost(%q, %q) = %t, want %t", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestReach(t *testing.T) {
	a := &agent.Agent{
		SideEffects: agent.SideEffectPolicy{Restricted: true, Allowed: []agent.SideEffect{agent.Read}},
		Servers: []agent.Server{
			{
				Alias: "fs", Transport: agent.Stdio, Command: "npx", Args: []string{"-y", "pkg", "/data", "/data", "./x", "plain"}, Digest: "sha256:x",
				Env: []agent.Setting{{Name: "T", Value: "$env:TOKEN", Refs: []string{"TOKEN"}}, {Name: "M", Value: "$env:HOME/memory", Refs: []string{"HOME"}}},
			},
			{Alias: "zero", Transport: agent.Stdio, Command: "node", Digest: "sha256:0", Placeholder: true},
			{Alias: "web", Transport: agent.StreamableHTTP, Endpoint: "https://mcp.example.com:8443/x", Headers: []agent.Setting{{Name: "A", Refs: []string{"WEB"}}}},
		},
		Tools: []agent.Tool{
			{Name: "r", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "fs"}},
			{Name: "w", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "fs"}},
			{Name: "h", SideEffect: agent.Read, Binding: agent.HTTP{Host: "api.example.com"}},
			{Name: "h2", SideEffect: agent.Read, Binding: agent.HTTP{Host: "api.example.com"}},
			{Name: "c", SideEffect: agent.Read, Binding: agent.Compose{Agent: "other", Tool: "t"}},
		},
	}
	r := a.Reach()
	if !slices.Equal(r.SideEffects, []agent.SideEffect{agent.Read}) {
		t.Errorf("got side effects %v, want only read", r.SideEffects)
	}
	if got := fmt.Sprint(r.Hosts); got != "[{api.example.com [tool h tool h2]} {mcp.example.com [server web]}]" {
		t.Errorf("got hosts %s", got)
	}
	hosted := &agent.Agent{Delivery: agent.Delivery{Exec: agent.HostedExec, URL: "https://agents.example.com/mcp"}, Tools: a.Tools[2:3]}
	if got := fmt.Sprint(hosted.Reach().Hosts); got != "[{api.example.com [tool h]} {agents.example.com [the agent's host]}]" {
		t.Errorf("got hosts %s for a hosted agent, want the host of its tool and the host of its URL", got)
	}
	if r.AnyHost {
		t.Errorf("AnyHost is set, although no tool connects: %s", r.AnyHostReason)
	}
	a.SideEffects.Allowed = append(a.SideEffects.Allowed, agent.Network)
	a.Tools = append(a.Tools, agent.Tool{Name: "n", SideEffect: agent.Network, Binding: agent.OnServer{Alias: "fs"}})
	if r := a.Reach(); !r.AnyHost || r.AnyHostReason != "server fs names no host, so it can connect to any public host" {
		t.Errorf("got AnyHost %t because %q, although a server connects and names no host", r.AnyHost, r.AnyHostReason)
	}
	a.Servers[0].Args = append(a.Servers[0].Args, "https://db.example.com:8443")
	if r := a.Reach(); r.AnyHost || fmt.Sprint(r.Hosts[1]) != "{db.example.com [server fs]}" {
		t.Errorf("got AnyHost %t and the hosts %v, want AnyHost false and the host in the server's arguments",
			r.AnyHost, r.Hosts)
	}
	if got := strings.Join(r.Paths, " "); got != "/data x $env:HOME/memory" {
		t.Errorf("got paths %s", got)
	}
	if len(r.Secrets) != 2 || r.Secrets[0].Name != "TOKEN" || len(r.Secrets[0].Hosts) != 0 || r.Secrets[1].Name != "WEB" || r.Secrets[1].Hosts[0] != "mcp.example.com" {
		t.Errorf("got secrets %+v", r.Secrets)
	}
	if len(r.Programs) != 2 || r.Programs[0].Digest != "sha256:x" || r.Programs[1].Digest != "" {
		t.Errorf("got programs %+v", r.Programs)
	}
	if !slices.Equal(r.Agents, []string{"other/t"}) {
		t.Errorf("got agents %v, want other/t", r.Agents)
	}
}

func TestSlug(t *testing.T) {
	for in, want := range map[string]string{
		"GA Report Builder": "ga-report-builder", "  x  ": "x", "": "agent", "日本": "agent", "a--b__c": "a-b-c", "Übung 1": "bung-1",
		strings.Repeat("a", 100): strings.Repeat("a", 64), "../../etc": "etc",
	} {
		if got := agent.Slug(in); got != want {
			t.Errorf("Slug(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestToolJSONNamesItsBinding(t *testing.T) {
	b, err := json.Marshal(agent.Tool{Name: "x", SideEffect: agent.Read, Binding: agent.HTTP{Method: "GET", URL: "https://a.example/", Host: "a.example"}})
	if want := `"binding":{"http":{"method":"GET","url":"https://a.example/","host":"a.example"}}`; err != nil || !strings.Contains(string(b), want) {
		t.Errorf("got %s, %v", b, err)
	}
}
