package agent

import (
	"cmp"
	"slices"
)

// RemoteAlias is the alias of the server that a hosted agent is reached at.
const RemoteAlias = "remote"

// RemoteKey is the name under which the key of a hosted agent that wants one is
// looked for.
const RemoteKey = "FINDAGENT_TOKEN"

// Hosted reports whether the agent runs elsewhere, and its manifest says where.
func (a *Agent) Hosted() bool {
	return a.Delivery.Exec == "findagent-hosted" && a.Delivery.URL != ""
}

// Remote is a hosted agent as it is reached from here: the same tools under the
// same rails, but the work is done by the server at its address. What its host
// serves of itself is not done here: its program, its skills.
func (a *Agent) Remote() *Agent {
	r := *a
	r.Program, r.Skills = nil, nil
	r.Tools = slices.Clone(a.Tools)
	for i := range r.Tools {
		// A tool that nothing does is described, and served nowhere.
		if r.Tools[i].Binding != nil {
			r.Tools[i].Binding = OnServer{Alias: RemoteAlias}
		}
	}
	s := Server{Alias: RemoteAlias, Transport: StreamableHTTP, Endpoint: a.Delivery.URL, Version: cmp.Or(a.Version, "0.0.0")}
	if a.Delivery.Auth == "api-key" {
		s.Headers = []Setting{{Name: "Authorization", Value: "Bearer $env:" + RemoteKey, Refs: []string{RemoteKey}}}
	}
	r.Servers = []Server{s}
	return &r
}
