package host

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Guest is a client of "ambit run" that asks to use an agent of another process.
type Guest struct {
	// Work is the folder in which "ambit run" was started.
	Work string
	// SameVariable reports whether an environment variable has the same value in both processes.
	SameVariable func(name string) bool
	// Older is set if the client's protocol has an initialize request. Capabilities are those in this request.
	Older        bool
	Capabilities jsontext.Value
}

// Shareable returns nil if the running agent treats the guest in the same way as an agent that "ambit run" starts for
// the guest alone. Otherwise, the error is the reason.
func (a *Agent) Shareable(g Guest) error {
	who := a.who()
	switch {
	case a.State() != Ready:
		return errors.New("the agent is " + a.State())
	case !SharesCalls(who):
		return errors.New("a daemon shares only agents that consist of tool servers, HTTP actions and prompts")
	case len(a.options.UnconfinedServers) > 0:
		return errors.New("the daemon runs servers of the agent without a sandbox")
	}
	names := a.options.Credentials.Variables(who)
	for i := range who.Servers {
		s := &who.Servers[i]
		names = append(names, s.ArgRefs...)
		for _, set := range slices.Concat(s.Env, s.Headers) {
			names = append(names, set.Refs...)
		}
	}
	if len(who.Servers) > 0 {
		names = append(names, serverVariables...)
	}
	for _, name := range names {
		if !g.SameVariable(name) {
			return errors.New("the environment variable " + diag.Printable(name) + " differs")
		}
	}
	return a.servers.Shareable(g.Older, a.front.Offered(g.Capabilities), g.Work)
}

// serverVariables are environment variables that tool servers receive, or that decide how ambit connects to them. PATH is
// missing, because desktop clients start programs with a shorter one: a shared server finds its programs with the PATH of
// the daemon.
var serverVariables = []string{
	"LANG", "TMPDIR", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
}

// SharesCalls reports whether all calls of an agent go to its tool servers or are HTTP requests or prompts. Programs,
// code bundles and agents on other servers run differently on a daemon, and so do calls to other agents. The servers
// that an agent requires by id are chosen when the agent starts.
func SharesCalls(a *agent.Agent) bool {
	if a.Program != nil || a.Kind == agent.CodeBundle || a.Hosted() || len(a.Requirements) > 0 {
		return false
	}
	for i := range a.Tools {
		switch a.Tools[i].Binding.(type) {
		case agent.OnServer, agent.HTTP, agent.Prompt:
		default:
			return false
		}
	}
	return true
}
