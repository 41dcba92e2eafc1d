package agent

import (
	"net/url"
	"slices"
	"strings"
)

// Reach lists the hosts, programs, files, secrets and side effects that an agent can use, according to its manifest.
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
	// Paths lists the files and folders that the manifest names.
	Paths []string
	// Agents lists the tools of other agents that this agent calls, as NAME/tool.
	Agents []string

	paths map[string]bool
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
		r.server(&a.Servers[i])
	}
	for _, s := range a.Slots {
		r.Secrets = append(r.Secrets, Secret{Name: s.Env, For: "slot " + s.Ref, Hosts: s.Hosts, Required: s.Required})
	}
	if a.Program != nil {
		r.program(a)
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

func (r *Reach) server(s *Server) {
	by := "server " + s.Alias
	var hosts []string
	switch s.Transport {
	case StreamableHTTP:
		if u, err := url.Parse(s.Endpoint); err == nil {
			hosts = []string{u.Hostname()}
			r.host(u.Hostname(), by)
		}
	case Stdio:
		r.anyHost("the agent's tool servers are programs that can use the network")
		digest := s.Digest
		if s.Placeholder {
			digest = ""
		}
		r.Programs = append(r.Programs, Command{For: by, Argv: append([]string{s.Command}, s.Args...), Digest: digest})
		for _, arg := range s.Args {
			r.path(arg)
		}
	}
	for _, set := range s.Env {
		r.path(set.Value)
	}
	for _, set := range slices.Concat(s.Env, s.Headers) {
		for _, ref := range set.Refs {
			if slices.Contains(PlainEnv, ref) {
				continue
			}
			r.Secrets = append(r.Secrets, Secret{Name: ref, For: by, Hosts: hosts, Required: true})
		}
	}
}

// path adds s to r.Paths if s looks like a path. If s is a flag such as --dir=/data, only the value of the flag is
// checked and added.
func (r *Reach) path(s string) {
	if _, value, ok := strings.Cut(s, "="); ok && strings.HasPrefix(s, "-") {
		s = value
	}
	if !isPath(s) && s != "$env:HOME" && !strings.HasPrefix(s, "$env:HOME/") {
		return
	}
	if r.paths == nil {
		r.paths = map[string]bool{}
	}
	if !r.paths[s] {
		r.paths[s] = true
		r.Paths = append(r.Paths, s)
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
