package policy

import "github.com/ambit-run/ambit/agent"

// subjectOf is what rules see of a call of a tool, whatever its arguments.
func subjectOf(a *agent.Agent, name string, t *agent.Tool) subject {
	return subject{agent: name, dialect: string(a.Dialect), server: ServerOf(name, t), tool: t.Name, sideEffect: string(t.SideEffect)}
}
