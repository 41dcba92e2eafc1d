package agent

import (
	"net/url"
	"slices"
	"strings"
)

// Reach lists the hosts, programs, files, secrets and side effects that an agent can use, according to its manifest.
// The hosts and files of tool servers are complete only where ambit confines the servers.
type Reach struct {
	// SideEffects lists the classes of the callable tools.
	SideEffects []SideEffect
	// Hosts lists the hosts that the manifest names.
	Hosts []Host
	// AnyHost reports whether the agent can also reach hosts that the manifest does not name.
	AnyHost bool
	// AnyHostReason explains why AnyHost is set.
	AnyHostReason string
	// Secrets lists the credentials that the agent receives.
	Secrets []Secret
	// Programs lists the programs that run on this machine.
	Programs []Command
	// Paths lists the files and folders that tool servers can use.
	Paths []string
	// Agents lists the tools that this agent calls on other agents, as NAME/tool.
	Agents []string

	hosts map[string]int
}

// Host is a host that the agent connects to. The field By lists the tools, servers and programs that connect to the
// host.
type Host struct {
	Name string
	By   []string
}

// Secret is a credential that the agent receives.
type Secret struct {
	Name     string
	For      string   // the slot or server that uses the credential
	Hosts    []string // the hosts that can receive the credential
	Scopes   []string // the scopes of the access token that is sent instead of the credential
	Required bool
}

// Command is the command line that starts a tool server or the agent's own program.
type Command struct {
	For  string
	Argv []string
	// Digest is the digest of the program's package. It is empty if the package is not pinned.
	Digest string
}

// Reach returns the hosts, programs, files, secrets and side effects that the agent can use.
func (a *Agent) Reach() Reach {
	var r Reach
	for i := range a.Tools {
		t := &a.Tools[i]
		if a.Callable(t) && !slices.Contains(r.SideEffects, t.SideEffect) {
			r.SideEffects = append(r.SideEffects, t.SideEffect)
		}
		switch b := t.Binding.(type) {
		case HTTP:
			r.host(b.Host, "tool "+t.Name)
		case Compose:
			if name := b.Agent + "/" + b.Tool; !slices.Contains(r.Agents, name) {
				r.Agents = append(r.Agents, name)
			}
		}
	}
	slices.SortFunc(r.SideEffects, func(x, y SideEffect) int { return x.Rank() - y.Rank() })
	for i := range a.Servers {
		r.server(a, &a.Servers[i])
	}
	for _, s := range a.Slots {
		r.Secrets = append(r.Secrets, Secret{
			Name: s.Env, For: "slot " + s.Ref, Hosts: s.Hosts, Scopes: s.Scopes, Required: s.Required,
		})
	}
	if a.Program != nil {
		r.program(a)
	}
	if u, err := url.Parse(a.Delivery.URL); err == nil && a.Hosted() && len(a.Servers) == 0 {
		r.host(u.Hostname(), "the agent's host")
	}
	if len(a.Servers) < len(a.Requirements) {
		r.anyHost("the operator chooses the agent's servers, and they can reach any host")
	}
	return r
}

func (r *Reach) anyHost(reason string) { r.AnyHost, r.AnyHostReason = true, reason }

func (r *Reach) host(name, by string) {
	if name == "" {
		return
	}
	i, ok := r.hosts[name]
	if !ok {
		if r.hosts == nil {
			r.hosts = map[string]int{}
		}
		i = len(r.Hosts)
		r.hosts[name] = i
		r.Hosts = append(r.Hosts, Host{Name: name})
	}
	if h := &r.Hosts[i]; len(h.By) == 0 || h.By[len(h.By)-1] != by {
		h.By = append(h.By, by)
	}
}

func (r *Reach) server(a *Agent, s *Server) {
	by := "server " + s.Alias
	var hosts []string
	switch s.Transport {
	case StreamableHTTP:
		if u, err := url.Parse(s.Endpoint); err == nil {
			hosts = []string{u.Hostname()}
			r.host(u.Hostname(), by)
		}
	case Stdio:
		for _, right := range a.Access(s) {
			switch isPath := right.Kind == CanRead || right.Kind == CanWrite; {
			case isPath && !slices.Contains(r.Paths, right.What):
				r.Paths = append(r.Paths, right.What)
			case right.Kind == CanConnect && right.What == Any:
				r.anyHost(by + " names no host, so it can connect to any public host")
			case right.Kind == CanConnect:
				host, _ := SplitHost(right.What)
				r.host(host, by)
			}
		}
		digest := s.Digest
		if s.Placeholder {
			digest = ""
		}
		r.Programs = append(r.Programs, Command{For: by, Argv: append([]string{s.Command}, s.Args...), Digest: digest})
	}
	for _, ref := range s.Refs() {
		if slices.Contains(PlainEnv, ref) {
			continue
		}
		r.Secrets = append(r.Secrets, Secret{Name: ref, For: by, Hosts: hosts, Required: true})
	}
}

// PlainEnv lists the environment variables that every tool server receives. They are not secrets.
var PlainEnv = []string{"PATH", "HOME", "LANG", "TMPDIR"}

func isPath(arg string) bool {
	return arg == "." || arg == ".." || arg == "~" || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "./") ||
		strings.HasPrefix(arg, "../") || strings.HasPrefix(arg, "~/") || len(arg) > 2 && arg[1] == ':' && arg[2] == '\\'
}

func (r *Reach) program(a *Agent) {
	p := a.Program
	var argv []string
	switch {
	case p.Contract == NativeMCP:
		argv = append([]string{p.Command}, p.Args...)
	case p.Runtime == RustBin:
		argv = []string{p.Entry}
	default:
		argv = []string{string(p.Runtime), p.Entry}
	}
	r.Programs = append(r.Programs, Command{For: "the agent itself", Argv: argv})
	for _, h := range p.Hosts {
		r.host(h, "program")
	}
	if a.Resources != nil {
		switch a.Resources.Network {
		case NetworkHTTPS:
			r.anyHost("the agent's program can connect to any host over https")
		case NetworkFull:
			r.anyHost("the agent's program can connect to any host")
		}
	}
}
