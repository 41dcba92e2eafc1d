package agent_test

import (
	"testing"

	"github.com/ambit-run/ambit/agent"
)

func TestLabels(t *testing.T) {
	yes := true
	files := agent.Server{Alias: "fs", Transport: agent.Stdio, Command: "npx", Args: []string{"pkg", "/data"}, Digest: "sha256:x"}
	plain := agent.Server{Alias: "plain", Transport: agent.Stdio, Command: "npx", Args: []string{"pkg"}, Digest: "sha256:x"}
	remote := agent.Server{Alias: "web", Transport: agent.StreamableHTTP, Endpoint: "https://mcp.example.com/"}
	secret := remote
	secret.Headers = []agent.Setting{{Name: "A", Value: "$env:WEB", Refs: []string{"WEB"}}}
	on := func(s agent.Server, class agent.SideEffect) agent.Agent {
		return agent.Agent{
			Servers: []agent.Server{s},
			Tools:   []agent.Tool{{Name: "t", SideEffect: class, Binding: agent.OnServer{Alias: s.Alias}}},
		}
	}
	open := on(plain, agent.Write)
	open.Tools[0].Annotations.OpenWorld = &yes
	refused := on(files, agent.Network)
	refused.SideEffects.Restricted = true
	remembers := on(plain, agent.Read)
	remembers.Capabilities.Optional = []string{"memory.write"}
	both := on(files, agent.Read)
	both.Tools = append(both.Tools, agent.Tool{Name: "mail", SideEffect: agent.Network, Binding: agent.HTTP{Host: "mail.example.com"}})
	for _, tt := range []struct {
		name  string
		agent agent.Agent
		want  agent.Labels
	}{
		{"no tools", agent.Agent{Servers: []agent.Server{files}}, agent.Labels{}},
		{"a prompt in the manifest", agent.Agent{Tools: []agent.Tool{{SideEffect: agent.Read, Binding: agent.Prompt{}}}}, agent.Labels{}},
		{"reads", on(plain, agent.Read), agent.Labels{Untrusted: true}},
		{"reads files", on(files, agent.Read), agent.Labels{Private: true, Untrusted: true}},
		{"reads with a credential", on(secret, agent.Read), agent.Labels{Private: true, Untrusted: true}},
		{"has a memory", remembers, agent.Labels{Private: true, Untrusted: true}},
		{"writes here", on(plain, agent.Write), agent.Labels{Untrusted: true}},
		{"writes elsewhere", on(remote, agent.Write), agent.Labels{Untrusted: true, CanSend: true}},
		{"writes to an open world", open, agent.Labels{Untrusted: true, CanSend: true}},
		{"runs commands on files", on(files, agent.Shell), agent.Labels{Private: true, Untrusted: true, CanSend: true}},
		{"a forbidden class", refused, agent.Labels{}},
		{"two tools", both, agent.Labels{Private: true, Untrusted: true, CanSend: true}},
		{"unknown servers", agent.Agent{Requirements: []agent.Requirement{{}}}, agent.Labels{Private: true, Untrusted: true, CanSend: true}},
	} {
		if got := tt.agent.Labels(); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
		if all := tt.want.Private && tt.want.Untrusted && tt.want.CanSend; tt.want.All() != all {
			t.Errorf("%s: All returned %t", tt.name, !all)
		}
	}
}
