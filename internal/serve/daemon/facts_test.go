package daemon

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/grant"
)

// A manifest proposes ~/notes and git. The owner accepted them as absolute paths.
func TestAcceptedProposals(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	s := agent.Server{Transport: agent.Stdio, Proposed: agent.Access{
		{Kind: agent.CanRead, What: "~/notes"}, {Kind: agent.CanExecute, What: "git"}, {Kind: agent.CanRead, What: "~/other"},
	}}
	access := agent.Access{{Kind: agent.CanRead, What: "/home/me/notes"}, {Kind: agent.CanExecute, What: git}}
	got := AccessOf(&s, access, true).Proposed
	if len(got) != 1 || got[0].What != "~/other" {
		t.Errorf("still proposed: %v, want ~/other", got)
	}
}

func TestServerAccess(t *testing.T) {
	const anything = "tool servers are not confined on this system, so they can use all your files, the network and every program"
	tests := []struct {
		name     string
		server   agent.Server
		class    agent.SideEffect
		confines bool
		want     []string
		never    int
	}{
		{"reads", agent.Server{Args: []string{"/data"}}, agent.Read, true, []string{
			"can read /data  (named in its arguments)",
			"never writes outside its private folder", "never connects", "never starts another program",
		}, 3},
		{"connects", agent.Server{}, agent.Network, true, []string{
			"can connect to any public host  (its tool do connects, and the manifest names no host)",
			"never writes outside its private folder", "never starts another program",
		}, 2},
		{"runs commands", agent.Server{Args: []string{"/data"}}, agent.Shell, true, []string{
			"can start any program  (its tool do runs commands)",
			"can write /data  (named in its arguments, and its tool do runs commands)",
			"can connect to any public host  (its tool do runs commands, and the manifest names no host)",
		}, 0},
		{"proposes", agent.Server{Args: []string{"/data"}, Proposed: agent.Access{
			{Kind: agent.CanRead, What: "/data/part"},
			{Kind: agent.CanRead, What: "/srv"},
			{Kind: agent.CanConnect, What: "localhost:5432", Private: true},
			{Kind: agent.CanExecute, What: "git"},
		}}, agent.Read, true, []string{
			"can read /data  (named in its arguments)",
			"proposed, not in force: read /srv",
			"proposed, not in force: connect to localhost:5432, even at a private address",
			"proposed, not in force: start git",
			"never writes outside its private folder", "never connects", "never starts another program",
		}, 3},
		{"another system", agent.Server{Args: []string{"/data"}}, agent.Read, false, []string{anything}, 0},
		{"another machine", agent.Server{Transport: agent.StreamableHTTP, Endpoint: "https://mcp.example.com"}, agent.Read, true, []string{
			"runs outside ambit, so ambit does not confine it",
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.server
			s.Alias = "s"
			if s.Transport == "" {
				s.Transport = agent.Stdio
			}
			a := &agent.Agent{Servers: []agent.Server{s}, Tools: []agent.Tool{
				{Name: "do", SideEffect: tt.class, Binding: agent.OnServer{Alias: "s"}},
			}}
			of := AccessOf(&s, a.Access(&s), tt.confines)
			if got := of.Lines(s.Transport == agent.StreamableHTTP); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if len(of.Never) != tt.never {
				t.Errorf("got the kinds %v, want %d kinds of rights that the server lacks", of.Never, tt.never)
			}
			if noted := slices.Contains(warnings(a, tt.confines), anything); noted == tt.confines {
				t.Errorf("there is a warning about servers that are not confined: %t, want %t", noted, !tt.confines)
			}
		})
	}
}

// The warnings say so if a server that gets a secret can reach hosts that the manifest does not name.
func TestSecretWarnings(t *testing.T) {
	for name, tt := range map[string]struct {
		class    agent.SideEffect
		args     []string
		confines bool
		want     bool
	}{
		"no network":     {agent.Write, nil, true, false},
		"any host":       {agent.Network, nil, true, true},
		"named host":     {agent.Network, []string{"https://api.example.com"}, true, false},
		"another system": {agent.Write, nil, false, true},
	} {
		a := &agent.Agent{
			Servers: []agent.Server{{
				Alias: "s", Transport: agent.Stdio, Args: tt.args,
				Env: []agent.Setting{{Name: "T", Value: "$env:TOKEN", Refs: []string{"TOKEN"}}},
			}},
			Tools: []agent.Tool{{Name: "do", SideEffect: tt.class, Binding: agent.OnServer{Alias: "s"}}},
		}
		got := slices.Contains(warnings(a, tt.confines), "secret TOKEN is given to server s, which can send the secret to any host")
		if got != tt.want {
			t.Errorf("%s: got a warning %t, want %t", name, got, tt.want)
		}
	}
}

// Validation rejects literal credentials in a Matrix manifest. The facts of an agent of any dialect redact them too.
func TestFactsRedactCredentials(t *testing.T) {
	a := &agent.Agent{
		Servers: []agent.Server{{
			Alias: "s", Transport: agent.Stdio, Command: "server",
			Args: []string{"--header", "Authorization: Bearer invented", "-e", "API_KEY=invented", "https://h/?token=invented", "/data"},
			Env: []agent.Setting{
				{Name: "DB_PASS", Value: "invented"},
				{Name: "HEADERS", Value: `{"Authorization": "Bearer invented"}`},
				{Name: "TOKEN", Value: "$env:TOKEN", Refs: []string{"TOKEN"}},
			},
		}},
		Delivery: agent.Delivery{Modes: []string{"mcp.stdio"}, Command: "client", Args: []string{"--token=invented"}},
	}
	var all strings.Builder
	for _, f := range Facts(a, a.Reach()) {
		all.WriteString(strings.Join(f.Values, "\n") + "\n")
	}
	if strings.Contains(all.String(), "invented") {
		t.Errorf("the facts contain a credential:\n%s", all.String())
	}
	for _, want := range []string{"/data", "API_KEY=[redacted]", "DB_PASS=[redacted]", "TOKEN=$env:TOKEN", "client --token=[redacted]"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the facts do not contain %q:\n%s", want, all.String())
		}
	}
}

// The facts about an agent include the grants for its id. They include the grants for every agent if the agent asks for
// their action.
func TestGranted(t *testing.T) {
	a := &agent.Agent{ID: "a@local", Capabilities: agent.Capabilities{Required: []string{"tool.x"}, Optional: []string{"memory.read"}}}
	end := time.Date(2099, 1, 31, 0, 0, 0, 0, time.UTC)
	facts := Granted(GrantsFor(a, []*grant.Grant{
		{Subject: "me", Action: "tool.x"},
		{Subject: "me", Action: "tool.y"},
		{Subject: "you", Action: "tool.y", Scope: "a@local", Expires: end},
		{Subject: "you", Action: "tool.x", Scope: "b@local"},
		{Subject: "you", Action: "memory.read", Expires: end.AddDate(-99, 0, 0)},
		{Subject: "you", Action: "memory.read", Changed: true},
	}))
	want := []string{"tool.x to me, for every agent", "tool.y to you, until 2099-01-31T00:00:00Z"}
	if len(facts) != 1 || facts[0].Label != "Granted" || !slices.Equal(facts[0].Values, want) {
		t.Errorf("got %+v, want %q", facts, want)
	}
	if facts := Granted(nil); facts != nil {
		t.Errorf("without grants, got %+v", facts)
	}
}
