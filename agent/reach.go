package agent

import (
	"net/url"
	"slices"
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
	// Agents are the other agents it calls, as NAME.tool.
	Agents []string
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
			if name := b.Agent + "." + b.Tool; !slices.Contains(r.Agents, name) {
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
	if len(a.Requirements) > 0 {
		r.AnyHost = "its servers are chosen by whoever runs it, and reach what they reach"
	}
	return r
}

func (r *Reach) host(name, by string) {
	if name == "" {
		return
	}
	for i := range r.Hosts {
		if r.Hosts[i].Name == name {
			if !slices.Contains(r.Hosts[i].By, by) {
				r.Hosts[i].By = append(r.Hosts[i].By, by)
			}
			return
		}
	}
	r.Hosts = append(r.Hosts, Host{Name: name, By: []string{by}})
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
			if isPath(arg) && !slices.Contains(r.Paths, arg) {
				r.Paths = append(r.Paths, arg)
			}
		}
	}
	for _, set := range s.Env {
		if path := set.Value; (isPath(path) || strings.HasPrefix(path, "$env:HOME/")) && !slices.Contains(r.Paths, path) {
			r.Paths = append(r.Paths, path)
		}
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
