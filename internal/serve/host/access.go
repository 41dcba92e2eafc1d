package host

import (
	"context"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// Confines reports whether ambit runs tool servers in sandboxes on this system.
const Confines = runtime.GOOS == "linux"

// Confinement returns the confinement of an agent's tool servers. The result does not contain their access. The file is
// the agent's manifest, or "" if there is none. Confinement returns nil if ambit cannot confine servers on this system.
func Confinement(h home.Home, file, name, id string) *toolserver.Confinement {
	if !Confines {
		return nil
	}
	c := &toolserver.Confinement{
		Agent: Reference(h, file, name),
		Files: func(alias string) string { return h.ServerFiles(name, id, alias) },
	}
	if path, err := filepath.Abs(file); err == nil && file != "" {
		c.ReadOnly = []string{path, filepath.Join(filepath.Dir(path), pack.LockName)}
	}
	return c
}

// Reference returns the command-line argument that identifies an agent: the agent's name if it is installed, and
// otherwise the path of its manifest.
func Reference(h home.Home, file, name string) string {
	path, err := filepath.Abs(file)
	if rel, errRel := filepath.Rel(h.Agents(), path); file == "" || err == nil && errRel == nil && filepath.IsLocal(rel) {
		return name
	}
	return file
}

// access returns what a server can use. It is computed at each start of the server, because the policy and the known
// tools can change.
func (a *Agent) access(s *agent.Server) agent.Access {
	rights := Rights{Agent: a.who(), Name: a.name, Folder: filepath.Dir(a.manifest.Path), Policy: a.options.Rules.Policy}
	access, list, err := rights.Of(a.ctx, a.options.Store, s)
	if err != nil {
		a.options.Log(s.Alias, "warning: the server starts without the rights that were allowed: "+err.Error())
	}
	for _, w := range allowance.Warnings(list) {
		a.options.Log(s.Alias, "warning: "+w)
	}
	if a.options.Extra != nil {
		access = access.With(a.options.Extra(s))
	}
	if err := a.watchLock(access); err != nil {
		a.options.Log(s.Alias, "warning: ambit cannot detect whether the server creates an ambit.lock: "+err.Error())
	}
	return access
}

// Rights determines what the tool servers of an agent can use.
type Rights struct {
	// Agent is the resolved agent. Name is the name under which ambit knows the agent.
	Agent *agent.Agent
	Name  string
	// Folder is the folder that contains the manifest.
	Folder string
	// Policy determines which tools of required servers the agent can call. Only these tools count for the access of
	// the servers. Policy may be nil.
	Policy gate.Policy
}

// Of returns the access of a server: the rights that the manifest implies, and the rights that a person allowed. The
// second result contains all allowances, including modified ones, which have no effect. If the allowances cannot be
// read, the access consists of the implied rights. The store may be nil.
func (r Rights) Of(
	ctx context.Context, b *store.Store, s *agent.Server,
) (access agent.Access, list []*allowance.Allowance, err error) {
	access, err = toolserver.Absolute(r.Implied(s))
	// Drop rights to "/". If the working folder is "/", the path "." in a manifest would open the whole file system.
	access = slices.DeleteFunc(access, func(r agent.Right) bool { return r.What == "/" })
	if err != nil || b == nil {
		return access, nil, err
	}
	list, err = allowance.Of(b).List(ctx, r.Holder(s))
	return access.With(allowance.Access(list)), list, err
}

// Holder returns the holder of the allowances of a server.
func (r Rights) Holder(s *agent.Server) allowance.Holder {
	return allowance.Holder{Agent: r.Name, ID: r.Agent.ID, Server: s.Alias, Code: pack.ProgramOf(*s)}
}

// Implied returns the rights that the manifest implies: those of [agent.Agent.Access] and, if the server's program is a
// local file, the right to read the folder of the program. The program itself is never writable. The paths are written
// as in the manifest.
func (r Rights) Implied(s *agent.Server) agent.Access {
	access := r.granted(s).Access(s)
	ref, err := pack.Identify(*s)
	if err != nil || ref.Kind != pack.File {
		return access
	}
	access = slices.DeleteFunc(access, func(r agent.Right) bool { return r.What == path.Clean(ref.Name) })
	file := ref.Name
	if !filepath.IsAbs(file) {
		file = filepath.Join(r.Folder, file)
	}
	own := agent.Right{Kind: agent.CanRead, What: filepath.Dir(file), Reason: "the folder of the server's program"}
	const packages = "/node_modules"
	if before, _, ok := strings.Cut(filepath.ToSlash(file), packages+"/"); ok {
		own.What, own.Reason = before+packages, "the packages of the server's program"
	} else if toolserver.TooWide(own.What) {
		own.What, own.Reason = file, "the server's program"
	}
	return access.With(agent.Access{own})
}

// granted returns a copy of the agent with only those tools of a server that the policy can allow. A requirement alone
// grants nothing, so the other tools must not widen the access of the server. If the agent has no requirements, granted
// returns the agent itself.
func (r Rights) granted(s *agent.Server) *agent.Agent {
	if len(r.Agent.Requirements) == 0 || r.Policy == nil {
		return r.Agent
	}
	granted := *r.Agent
	granted.Tools = slices.DeleteFunc(slices.Clone(r.Agent.Tools), func(t agent.Tool) bool {
		on, ok := t.Binding.(agent.OnServer)
		return !ok || on.Alias != s.Alias || !r.Policy.Possible(r.Agent, r.Name, &t)
	})
	return &granted
}
