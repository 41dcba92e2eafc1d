package toolserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Confinement runs the servers of an agent in sandboxes.
type Confinement struct {
	// Agent identifies the agent in commands: its name or the path of its manifest.
	Agent string
	// Unconfined lists the aliases of servers that the owner runs without a sandbox.
	Unconfined []string
	// Access returns what a server can use. It is called whenever a server starts.
	Access func(s *agent.Server) agent.Access
	// Files returns the private folder of a server. It is the server's home and is kept between starts.
	Files func(alias string) string
	// ReadOnly lists files and folders that a server can never change, even if the server can write to a folder that
	// contains them. They need not exist.
	ReadOnly []string
	// Switches are the development switches for network access.
	Switches egress.Switches
	// OnDenial is called each time a sandbox denies an operation of a server. It may be nil.
	OnDenial func(Denial)
	// OnUse is called each time a server tries to use a file, a program or a host, whether or not it succeeds. All paths
	// are paths inside the sandbox. For a path, found reports whether the path exists. For a host, found reports whether
	// the connection is allowed. found must not be called after OnUse returns. If OnUse is nil, servers run faster.
	OnUse func(alias string, use agent.Right, found func() bool)
}

// containerPrograms are programs that start other programs outside the sandbox, through the socket of a container
// engine, or that need rights that a sandbox does not give.
var containerPrograms = []string{
	"docker", "docker-compose", "podman", "nerdctl", "finch", "ctr", "runc", "crun", "apptainer", "singularity",
}

// startConfined starts a server in a sandbox that grants only the server's access. If the server cannot be confined,
// the error is a refusal.
func (s *server) startConfined(l *plan, env []string, log func(string)) (*process, error) {
	if name := filepath.Base(l.argv[0]); slices.Contains(containerPrograms, name) {
		return nil, s.unconfinable(name+" starts containers, which run outside the sandbox", "")
	}
	spec, err := s.confinedSpec(l, env, log)
	if err != nil {
		return nil, err
	}
	p, err := runConfined(spec, log)
	if u, ok := errors.AsType[*sandbox.Unavailable](err); ok {
		return nil, s.unconfinable(u.Missing.What+" is missing on this machine ("+u.Missing.Detail+")", u.Missing.Fix)
	}
	return p, err
}

// unconfinable returns the refusal of a server that cannot run in a sandbox.
func (s *server) unconfinable(reason, fix string) error {
	r := call.Refuse(stage, call.IsolationUnavailable, "server %s cannot be confined: %s", s.alias, reason)
	r.Hint = "if you trust the server with everything that you can do, run it with --unconfined " + diag.ShellWord(s.alias)
	if fix != "" {
		r.Hint = fix + "; or " + r.Hint
	}
	return r
}

// confinedSpec describes the sandbox of a server.
func (s *server) confinedSpec(l *plan, env []string, log func(string)) (spec sandbox.Spec, err error) {
	c := s.options.Confine
	access, err := Absolute(c.Access(&s.spec.Server))
	if err != nil {
		return spec, err
	}
	own, err := ownFolders()
	if err != nil {
		return spec, err
	}
	path, err := exec.LookPath(l.argv[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return spec, err
	}
	spec = sandbox.Spec{
		Tier: sandbox.Confined, Argv: []string{path}, Proofs: s.options.Home.Dir(),
		MaxStderr: 1 << 40, NoExec: true, Grace: grace, OwnerHome: own.home,
	}
	args := slices.Clone(l.argv[1:])
	for i := range args {
		args[i] = own.argument(args[i])
	}
	if args, err = s.arguments(args); err != nil {
		return spec, err
	}
	spec.Argv = append(spec.Argv, args...)
	for _, r := range access.Of(agent.CanExecute) {
		switch {
		case r.What == agent.Any:
			spec.NoExec = false
		case Replaceable(r.What, access):
			s.warn(r.What + " is in a folder that the server can write, so the server cannot start it")
		default:
			spec.Programs = append(spec.Programs, r.What)
		}
	}
	if spec.Mounts, err = s.mounts(l, path, access); err != nil {
		return spec, err
	}
	if slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool {
		// A private folder does not contain the files of the machine's folder at the same path.
		return !m.Hide && (m.To == own.work || sandbox.Inside(own.work, m.To) && !m.Give)
	}) {
		spec.Dir = own.work
	}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if slices.Contains([]string{"HOME", "PATH", "TMPDIR"}, name) {
			continue
		}
		if slices.ContainsFunc(s.spec.Env, func(set agent.Setting) bool { return set.Name == name && len(set.Refs) == 0 }) {
			value = own.expand(value) // the value contains no secret
		}
		spec.Env = append(spec.Env, name+"="+value)
	}
	spec.OnExec = func(path string) { s.execDenied(path, log) }
	if c.OnUse != nil {
		spec.Observe = func(use agent.Right, found func() bool) { c.OnUse(s.alias, use, found) }
	}
	spec.Network = s.network(access.Of(agent.CanConnect), log)
	return spec, nil
}

// Replaceable reports whether a server with this access could replace the file of a program.
func Replaceable(program string, access agent.Access) bool {
	return slices.ContainsFunc(access.Of(agent.CanWrite), func(r agent.Right) bool {
		folder := realPath(r.What)
		return sandbox.Inside(program, r.What) || sandbox.Inside(realPath(program), folder)
	})
}

// network returns the network of a server. A server without access to any host also gets a network, because the
// network reports the names of refused hosts.
func (s *server) network(hosts agent.Access, log func(string)) *egress.Network {
	switches := s.options.Confine.Switches
	switches.LoopbackHTTP = false // this switch is for HTTP actions; a server needs a right for each port of this machine
	dialer := egress.NewDialer(switches)
	network := egress.NewNetwork(dialer, policyFor(hosts), func(d egress.Decision) {
		to, private := net.JoinHostPort(d.Host, d.Port), d.Remedy == egress.AddPrivate
		// The owner of a domain name decides its addresses, so ambit does not suggest a right to private addresses
		// for a name.
		allowable := d.Remedy != egress.NoRemedy && (!private || agent.LocalHost(to))
		if c := s.options.Confine; c.OnUse != nil && (d.Refusal == nil || allowable) {
			use := agent.Right{Kind: agent.CanConnect, What: to, Private: private}
			c.OnUse(s.alias, use, func() bool { return d.Refusal == nil })
		}
		switch {
		case d.Refusal == nil:
			s.observed.contact(to)
		case !d.Unreachable:
			reason := ""
			if private && !allowable {
				reason = "its address is private; private addresses need: ambit allow --private"
			}
			s.denied(Denial{Right: agent.Right{Kind: agent.CanConnect, What: to, Private: private}, Reason: reason}, allowable, log)
		case s.observed.unreachable(to):
			log(s.clean(d.Refusal.Message))
		}
	})
	s.observed.mu.Lock()
	defer s.observed.mu.Unlock()
	s.observed.network = network
	return network
}

func policyFor(hosts agent.Access) egress.Policy {
	policy := egress.Policy{LongRunning: true}
	if len(hosts) > 0 {
		policy.Mode = egress.ModeHosts
	}
	for _, h := range hosts {
		switch {
		case h.What == agent.Any:
			policy.Mode = egress.ModeFull
		case h.Private:
			policy.Private = append(policy.Private, h.What)
		default:
			policy.Hosts = append(policy.Hosts, h.What)
		}
	}
	return policy
}

// execDenied records that a server was not allowed to start a program. It ignores missing files in the system's
// folders, because a server that searches PATH tries many such paths.
func (s *server) execDenied(path string, log func(string)) {
	allowable := filepath.IsAbs(path)
	if inHome, err := filepath.Rel(sandbox.Home, path); err == nil && filepath.IsLocal(inHome) {
		// The private home of a server contains links to declared files in the owner's home, and files that the server
		// created. A program in the owner's home can be allowed, but not a program that the server created.
		home, err := os.UserHomeDir()
		if err == nil {
			_, err = os.Stat(filepath.Join(home, inHome))
		}
		if allowable = err == nil; allowable {
			path = filepath.Join(home, inHome)
		}
	}
	// Check only whether system files exist. Another path, which the server chose, could make this check mount a file
	// system.
	if inSystem(path) {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // for example, /bin is a link to /usr/bin
		if err != nil {
			return
		}
		path = filepath.Join(dir, filepath.Base(path))
		if _, err := os.Stat(path); err != nil {
			return
		}
	}
	d := Denial{Right: agent.Right{Kind: agent.CanExecute, What: path}}
	if sandbox.Inside(path, s.options.Home.Packages()) {
		d.Reason = "the program is part of the server's own package, so each version of the package needs a new right"
	}
	s.denied(d, allowable, log)
}

// runConfined runs a sandbox in the background.
func runConfined(spec sandbox.Spec, log func(string)) (*process, error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{contained: true, exited: make(chan struct{}), drained: make(chan struct{}), end: cancel}
	talking := make(chan struct{})
	spec.Talk = func(stdin io.WriteCloser, stdout io.ReadCloser) {
		p.stdin, p.stdout = stdin, stdout
		close(talking)
	}
	var last tail
	var keys guard.KeyLines
	spec.OnStderr = func(line string) {
		line = keys.Hide(line)
		log(line)
		last.add(line)
	}
	go func() {
		defer close(p.exited)
		defer cancel()
		out, err := sandbox.Run(ctx, spec)
		switch {
		case err != nil:
			p.err = err
		case out.OOM:
			p.err = errors.New("the server was killed because it used more memory than its limit")
		case out.TooLarge != "":
			p.err = fmt.Errorf("the server was stopped because its %s exceeded its limit", out.TooLarge)
		case out.ExitCode != 0:
			p.err = fmt.Errorf("exit status %d", out.ExitCode)
		}
		p.lastOutput = last.String()
		close(p.drained)
	}()
	select {
	case <-talking:
		return p, nil
	case <-p.exited:
		return nil, p.err
	}
}
