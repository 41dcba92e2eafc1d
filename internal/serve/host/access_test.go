package host

import (
	"os"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// A required server has the access that its granted scopes need. Scopes that the manifest only requests do not count.
func TestGrantedAccess(t *testing.T) {
	const files = "registry.openmcp.org/filesystem"
	grant := func(scope string) string {
		return `permit (principal == Agent::"tester", action, resource in Server::"` + files +
			`") when { resource.scopes.contains("` + scope + `") };`
	}
	for name, tt := range map[string]struct {
		rules string
		want  agent.RightKind
	}{
		"no policy":     {"", agent.CanRead},
		"read":          {grant("read"), agent.CanRead},
		"write":         {grant("write"), agent.CanWrite},
		"other agent":   {`permit (principal == Agent::"other", action, resource);`, agent.CanRead},
		"one caller":    {`permit (principal, action, resource) when { context.caller == "you@local" };`, agent.CanWrite},
		"everything":    {`permit (principal, action, resource);`, agent.CanWrite},
		"write refused": {`permit (principal, action, resource); forbid (principal, action, resource) when { context.side_effect == "write" };`, agent.CanRead},
	} {
		t.Run(name, func(t *testing.T) {
			h := home.At(t.TempDir())
			if err := os.WriteFile(h.Policy(), []byte(tt.rules), 0o600); err != nil {
				t.Fatal(err)
			}
			proposed := agent.Access{{Kind: agent.CanExecute, What: "git"}}
			a := &agent.Agent{Dialect: agent.GPARS, ID: "org:example/agent:tester", Requirements: []agent.Requirement{
				{Server: files, Version: "*", Scopes: []string{"read", "write"}, Proposed: proposed},
			}}
			resolved, err := Resolve(t.Context(), a, "tester", ResolveOptions{Home: h, Offline: true})
			if err != nil {
				t.Fatal(err)
			}
			live := policy.Open(policy.Options{
				File: h.Policy(), Catalogue: func() (policy.Catalogue, error) { return catalog.Open(h) },
			})
			server := resolved.Agent().Server(files)
			access := Rights{Agent: resolved.Agent(), Name: "tester", Policy: live}.Implied(server)
			if len(access) != 1 || access[0].Kind != tt.want || access[0].What != catalog.Work(h, "tester") {
				t.Errorf("got %v, want only the right to %s the work folder", access, tt.want)
			}
			if len(server.Proposed) != 1 || !server.Proposed[0].Same(proposed[0]) {
				t.Errorf("got the proposal %v, want %v", server.Proposed, proposed)
			}
		})
	}
}
