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

// neighbours are the agents that an agent's compose actions can call: those in the folder of
// its manifest, and the installed ones. Each is started at its first call.
type neighbours struct {
	ctx     context.Context
	folders []string
	options host.Options

	mu   sync.Mutex
	live map[string]*host.Agent
}

func newNeighbours(ctx context.Context, m *manifest.Manifest, o host.Options) *neighbours {
	folder := filepath.Dir(m.Path)
	if alwaysManifest(filepath.Base(m.Path)) {
		folder = filepath.Dir(folder) // the agents are in sibling folders
	}
	n := &neighbours{ctx: ctx, folders: []string{folder, o.Home.Agents()}, options: o, live: map[string]*host.Agent{}}
	n.options.Agents, n.options.Sole, n.options.Name = n, false, ""
	return n
}

// CallAgent makes a call through another agent's gateway.
func (n *neighbours) CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	a, stopped := n.find(name)
	if stopped != nil {
		return call.Result{}, call.Unsent(stopped)
	}
	if err := a.Ready(ctx); err != nil {
		return call.Result{}, call.Unsent(call.Refuse("act", call.ServerUnavailable, "the agent %s is not up: %v", name, err))
	}
	return a.Gateway().Call(ctx, c)
}

// find returns the agent with a name, started. An unusable agent keeps its name, as on a
// daemon: no other agent is called in its place.
func (n *neighbours) find(name string) (*host.Agent, *call.Refusal) {
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
		return nil, call.Refuse("act", call.UnknownTool, "there is no agent %s here", name)
	}
	if err = found.Problem; err == nil {
		err = soleID(found.Manifest)
	}
	if err != nil {
		return nil, call.Refuse("act", call.ServerUnavailable, "the agent %s cannot be used: %v", name, err)
	}
	o := n.options
	o.Name, o.Resolved = registered(n.options.Home, found.Manifest), nil
	n.live[name] = host.Start(n.ctx, found.Manifest, o)
	return n.live[name], nil
}

func (n *neighbours) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.live {
		a.Close()
	}
}
