package agent

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Reach is what a reviewer asks of an agent first. Everything in it is derived
// from the manifest alone.
type Reach struct {
	// SideEffects are the classes of the tools that may be called.
	SideEffects []SideEffect
	// Hosts are the machines that the manifest names.
	Hosts []Host
	// AnyHost says, where it is so, why the agent can reach hosts that the
	// manifest does not name.
	AnyHost string
	// Secrets are the credentials the agent is given.
	Secrets []Secret
	// Programs are what is started on this machine.
	Programs []Command
	// Paths are files and folders that the manifest names.
	Paths []string
	// Agents are the other agents it calls, as NAME/tool.
	Agents []string

	paths map[string]bool
	hosts map[string]int
}

// Host is a machine and what reaches it.
type Host struct {
	Name string
	By   []string
}

// Secret is a credential by name, what it is for, and where it may go.
type Secret struct {
	Name     string
	For      string
	Hosts    []string
	Required bool
}

// Command is a program as it is started.
type Command struct {
	For  string
	Argv []string
	// Digest is that of the package it comes from; empty if nothing pins it.
	Digest string
}

// CommandLine writes a command for people so that each argument can be told
// from its neighbours.
func CommandLine(argv []string) string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		if out[i] = arg; arg == "" || strings.ContainsAny(arg, " \t\n\"'\\|&;<>$`") {
			out[i] = strconv.Quote(arg)
		}
	}
	return strings.Join(out, " ")
}

// Reach derives what the agent can touch.
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
		r.AnyHost = "its servers are chosen by whoever runs it, and reach what they reach"
	}
	return r
}

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
		r.AnyHost = "its tool servers are programs that may use the network"
		r.Programs = append(r.Programs, Command{For: by, Argv: append([]string{s.Command}, s.Args...), Digest: realDigest(s)})
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

// path notes a text that names a place in the file system, also as the value
// of a flag.
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

// PlainEnv are the variables that every tool server is given. They are no
// secrets.
var PlainEnv = []string{"PATH", "HOME", "LANG", "TMPDIR"}

func realDigest(s *Server) string {
	if s.Placeholder {
		return ""
	}
	return s.Digest
}

// isPath tells an argument that names a place in the file system from others.
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
	case p.Runtime == "rust-bin":
		argv = []string{p.Entry}
	default:
		argv = []string{p.Runtime, p.Entry}
	}
	r.Programs = append(r.Programs, Command{For: "the agent itself", Argv: argv})
	for _, h := range p.Hosts {
		r.host(h, "program")
	}
	if a.Resources != nil {
		switch a.Resources.Network {
		case NetworkHTTPS:
			r.AnyHost = "its program may connect to any host over https"
		case NetworkFull:
			r.AnyHost = "its program may connect to any host"
		}
	}
}
