package agent

import (
	"net/url"
	"slices"
	"strings"
)

// Reach lists what an agent can touch. It is derived from the manifest alone.
type Reach struct {
	// SideEffects are the classes of the callable tools.
	SideEffects []SideEffect
	// Hosts are the hosts that the manifest names.
	Hosts []Host
	// AnyHost reports whether the agent can also reach hosts that the manifest does not name, and AnyHostReason why.
	AnyHost       bool
	AnyHostReason string
	// Secrets are the credentials that the agent receives.
	Secrets []Secret
	// Programs are the programs that run on this machine.
	Programs []Command
	// Paths are the files and folders that the manifest names.
	Paths []string
	// Agents are the tools of other agents that it calls, as NAME/tool.
	Agents []string

	paths map[string]bool
	hosts map[string]int
}

// Host is a host, and the tools and servers that reach it.
type Host struct {
	Name string
	By   []string
}

// Secret is the name of a credential, its user, and the hosts that may receive it.
type Secret struct {
	Name     string
	For      string
	Hosts    []string
	Required bool
}

// Command is a program with its arguments.
type Command struct {
	For  string
	Argv []string
	// Digest is the digest of the program's package; empty if the package is not pinned.
	Digest string
}

// Reach returns what the agent can touch.
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
		r.anyHost("it depends on the servers you choose; they may reach any host")
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
		r.anyHost("its tool servers are programs that may use the network")
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

// path adds s, or the value of the flag s, if it is a path.
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

// PlainEnv are the variables that every tool server receives. They are not secrets.
var PlainEnv = []string{"PATH", "HOME", "LANG", "TMPDIR"}

// isPath reports whether an argument looks like a path.
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
			r.anyHost("its program may connect to any host over https")
		case NetworkFull:
			r.anyHost("its program may connect to any host")
		}
	}
}
