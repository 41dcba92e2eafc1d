package cli

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/manifest"
)

// neighbours contains the other agents that an agent can call. These are the agents in the folder of its manifest, and
// the installed agents. An agent is started when it is called for the first time.
type neighbours struct {
	ctx     context.Context
	folders []string
	options host.Options

	mu   sync.Mutex
	live map[string]*neighbour
}

// neighbour is a started agent and the path of its manifest.
type neighbour struct {
	*host.Agent
	path string
}

func newNeighbours(ctx context.Context, m *manifest.Manifest, o host.Options) *neighbours {
	folder := filepath.Dir(m.Path)
	if alwaysManifest(filepath.Base(m.Path)) {
		// An agent.toml or findagent.json has its own folder, so other agents are in sibling folders.
		folder = filepath.Dir(folder)
	}
	n := &neighbours{ctx: ctx, folders: []string{folder, o.Home.Agents()}, options: o, live: map[string]*neighbour{}}
	n.options.Agents, n.options.Sole, n.options.Name, n.options.UnconfinedServers = n, false, "", nil
	n.options.OnUse, n.options.Extra = nil, nil
	return n
}

// CallAgent makes a call through the gateway of the named agent.
func (n *neighbours) CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	a, stopped := n.find(name)
	if stopped != nil {
		return call.Result{}, call.Unsent(stopped)
	}
	if err := a.Ready(ctx); err != nil {
		return call.Result{}, call.Unsent(daemon.WithManifest(err, a.path))
	}
	result, err := a.Gateway().Call(ctx, c)
	return result, daemon.WithManifest(err, a.path)
}

// find returns the named agent, and starts the agent if necessary. If the agent cannot be used, find returns a refusal,
// even if another agent has the same name. The daemon follows the same rule.
func (n *neighbours) find(name string) (*neighbour, *call.Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.live[name]; a != nil {
		return a, nil
	}
	all, err := daemon.FindAs(manifest.Options{LoopbackHTTP: n.options.Switches.LoopbackHTTP}, n.folders...)
	if err != nil {
		return nil, call.Refuse("act", call.ServerUnavailable, "cannot search for agents: %v", err)
	}
	found := daemon.Pick(all, func(f *daemon.Found) bool { return f.Name == name })
	if found == nil {
		r := call.Refuse("act", call.UnknownTool, "there is no agent %s that this agent can call", name)
		r.Hint = "put the agent " + name + " next to this agent, or correct \"agent\" in this agent's action"
		return nil, r
	}
	if err = found.Problem; err == nil {
		err = soleID(found.Manifest)
	}
	if err != nil {
		r := call.Refuse("act", call.ServerUnavailable, "the agent %s cannot be used: %v", name, err)
		r.Hint = "correct the manifest of the agent " + name
		return nil, r
	}
	o := n.options
	o.Name, o.Resolved = registeredName(n.options.Home, found.Manifest), nil
	n.live[name] = &neighbour{host.Start(n.ctx, found.Manifest.Remote(), o), found.Manifest.Path}
	return n.live[name], nil
}

func (n *neighbours) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.live {
		a.Close()
	}
}
