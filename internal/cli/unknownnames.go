package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// unknownNames describes the agents and tools that guardrails.json and the [oidc] tables name, but that do not exist.
// Such an entry has no effect, so the user might not notice a misspelt name. If one of the agents is a GPARS agent,
// tools are not checked, because its tools are unknown until its servers are found.
func unknownNames(found []daemon.Found, operator guard.Operator, oidc *identity.OIDCConfig) (problems []string) {
	var agents, tools []string
	allTools := true
	means := func(string) bool { return false }
	for _, f := range found {
		agents = append(agents, f.Name)
		if f.Manifest == nil || f.Manifest.Agent() == nil || len(f.Manifest.Agent().Requirements) > 0 {
			allTools = false
			continue
		}
		list := f.Manifest.Agent().Tools
		before := means
		means = func(name string) bool {
			return before(name) || slices.ContainsFunc(list, func(t agent.Tool) bool { return guard.Names(name, &t) })
		}
		tools = append(tools, each(list, func(t agent.Tool) string { return t.Name })...)
	}
	look := func(place, what string, names, known []string, ok func(string) bool) {
		for _, name := range names {
			if !ok(name) {
				problem := place + " names the " + what + " " + diag.Quote(name) + ", which does not exist"
				if hint := diag.DidYouMean(name, known); hint != "" {
					problem += "; " + hint
				}
				problems = append(problems, problem)
			}
		}
	}
	isAgent := func(name string) bool { return slices.Contains(agents, name) }
	rules := operator.Approval
	look("guardrails.json: approval", "agent", rules.Agents, agents, isAgent)
	look("guardrails.json: flow", "agent", slices.Sorted(maps.Keys(operator.Flow.Agents)), agents, isAgent)
	if allTools {
		look("guardrails.json: approval", "tool", rules.Tools, tools, means)
		isTool := func(name string) bool { return slices.Contains(tools, name) }
		look("guardrails.json: flow", "tool", slices.Sorted(maps.Keys(operator.Flow.Tools)), tools, isTool)
	}
	if oidc != nil {
		look("config.toml: [oidc]", "agent", oidc.Agents(), agents, isAgent)
	}
	return problems
}

// examineNames reports the unknown names in the operator's settings. A daemon that is not running at the moment can
// serve agents from other folders, so unknown names are not an error.
func examineNames(ctx context.Context, h home.Home) (doctorCheck, error) {
	folders, err := knownFolders(ctx, h)
	if err != nil {
		return doctorCheck{}, err
	}
	found, err := daemon.Find(folders...)
	if err != nil {
		return doctorCheck{}, err
	}
	operator, err := operatorGuardrails(h)
	if err != nil {
		return bad("guardrails", err.Error(), "edit "+diag.ShellWord(h.Guardrails())), nil
	}
	oidc, err := identity.ReadOIDC(h.Config())
	if err != nil {
		return doctorCheck{}, err
	}
	if problems := unknownNames(found, operator, oidc); len(problems) > 0 {
		return good("names", "among the installed agents: "+strings.Join(problems, "; ")), nil
	}
	return good("names", "the settings name only agents and tools that exist"), nil
}

// examineProviders checks that the OpenID providers answer. It returns nil if there are none.
func examineProviders(ctx context.Context, h home.Home) *doctorCheck {
	oidc, err := identity.ReadOIDC(h.Config())
	if err != nil || oidc == nil {
		return nil
	}
	check := good("OpenID providers", "every provider answers")
	if err := identity.NewProviders(oidc).Reach(ctx); err != nil {
		check = bad("OpenID providers", strings.ReplaceAll(err.Error(), "\n", "; "),
			"check the issuer under [oidc] in "+diag.ShellWord(h.Config())+", and that this machine can reach it")
	}
	return &check
}

// warnNames warns about unknown names in the operator's settings, before a daemon serves the agents.
func (t *terminal) warnNames(s *serveFlags, operator guard.Operator, oidc *identity.OIDCConfig) {
	found, err := daemon.FindAs(s.Reading, s.Folders...)
	if err != nil {
		return // the daemon reports the error
	}
	for _, problem := range unknownNames(found, operator, oidc) {
		t.troublef("%s", problem)
	}
}
