package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/pack"
	"github.com/ambit-run/ambit/internal/toolserver"
	"github.com/ambit-run/ambit/manifest"
	"github.com/ambit-run/ambit/manifest/diag"
)

// serverOptions are what every verb that starts servers needs.
func (t *terminal) serverOptions(m *manifest.Manifest) (toolserver.Options, error) {
	h, err := home.Find()
	if err != nil {
		return toolserver.Options{}, &failure{code: exitMissing, err: err}
	}
	folder, err := filepath.Abs(filepath.Dir(m.Path))
	if err != nil {
		return toolserver.Options{}, &failure{code: exitMissing, err: err}
	}
	lock, err := readLock(folder)
	if err != nil {
		return toolserver.Options{}, err
	}
	return toolserver.Options{
		Home: h, Folder: folder, Lookup: os.LookupEnv, Lock: lock, Version: version,
		Log: t.serverLog, Progress: t.progress(),
	}, nil
}

// readLock reads the lock file of a folder, nil if there is none.
func readLock(folder string) (*pack.Lock, error) {
	lock, err := pack.ReadLock(filepath.Join(folder, pack.LockName))
	switch {
	case errors.Is(err, pack.LockMissing):
		return nil, nil
	case errors.Is(err, pack.LockInvalid):
		return nil, no("restore it, or remove it and lock anew: ambit lock PATH", "%w", err)
	case err != nil:
		return nil, no(pack.HintOf(err), "%w", err)
	}
	return lock, nil
}

// serverLog shows a line that a server wrote, with its alias in front.
func (t *terminal) serverLog(alias, line string) {
	t.logMu.Lock()
	defer t.logMu.Unlock()
	t.notef("%s %s", t.paint(dim, "["+diag.Printable(alias)+"]"), diag.Printable(line))
}

// progress shows what is being done about each server, to a person who waits
// at a terminal.
func (t *terminal) progress() func(alias, step string) {
	if !t.interactive() {
		return func(string, string) {}
	}
	var mu sync.Mutex
	return func(alias, step string) {
		mu.Lock()
		defer mu.Unlock()
		t.notef("%s %s", t.paint(dim, alias+":"), t.paint(dim, diag.Printable(step)))
	}
}

// onServers refuses agents whose tools are not on servers: what runs the
// others is not built yet.
func onServers(m *manifest.Manifest) error {
	if m.Dialect == agent.Matrix {
		return nil
	}
	return &failure{
		code: exitMissing, err: fmt.Errorf("%s agents cannot be started yet, only Matrix agents", m.Dialect),
		hint: "ambit inspect " + m.Path + " shows what it may do",
	}
}

// open starts and proves an agent's servers and makes its door. Servers that
// could not be proven are shown; the agent is up only if all are.
func (t *terminal) open(ctx context.Context, m *manifest.Manifest) (*gateway.Gateway, *toolserver.Manager, error) {
	if err := onServers(m); err != nil {
		return nil, nil, err
	}
	o, err := t.serverOptions(m)
	if err != nil {
		return nil, nil, err
	}
	servers := toolserver.Start(ctx, m.Agent(), o)
	var first *failure
	for _, p := range servers.Proofs() {
		for _, w := range p.Warnings {
			t.serverLog(p.Alias, "warning: "+w)
		}
		switch {
		case p.OK:
		case first == nil:
			first = refused(p.Refusal)
			if p.Lacking {
				first.code = exitMissing
			}
		default:
			t.serverLog(p.Alias, p.Refusal.Error())
		}
	}
	if first != nil {
		servers.Close()
		return nil, nil, first
	}
	return gateway.New(m.Agent(), servers), servers, nil
}

// refused is a refusal as the end of a verb.
func refused(r *call.Refusal) *failure {
	code := exitNo
	if r.Code == call.IsolationUnavailable || r.Code == call.CredentialMissing {
		code = exitMissing
	}
	return &failure{code: code, err: r, hint: r.Hint}
}
