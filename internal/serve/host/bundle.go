package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// When an agent starts, its code bundle is verified and copied. The code runs from the copy. If the bundle is itself
// an MCP server, it is started, verified and kept running like any tool server.

// bundleAlias is the server alias of a bundle that is itself an MCP server.
const bundleAlias = "bundle"

// openBundle verifies and copies the agent's code. If the code is not allowed to run, openBundle marks the agent as
// failed and returns false.
func (a *Agent) openBundle(o *toolserver.Options) bool {
	who := a.manifest.Agent()
	settings, err := program.Settings(a.options.Home, a.name)
	if err != nil {
		a.fail(call.Refuse("act", call.ServerUnavailable, "%v", err), true)
		return false
	}
	b, err := program.OpenBundle(a.ctx, program.BundleOptions{
		Path: a.manifest.Path, Manifest: a.manifest.Digest(), Isolation: a.options.Isolation, Egress: a.options.Switches,
		Credentials: a.options.Credentials, Settings: settings, Reviewed: a.options.Reviewed,
		Home: a.options.Home, Pool: a.options.Pool,
		Log: func(line string) { a.options.Log(bundleAlias, line) },
	})
	if err != nil {
		r, ok := errors.AsType[*call.Refusal](err)
		if !ok {
			r = call.Refuse("act", call.ServerUnavailable, "%v", err)
		}
		_, lacking := errors.AsType[*program.Lacking](err)
		a.fail(r, lacking)
		return false
	}
	a.bundle = b
	if !b.Native() {
		return true
	}
	launch := func(context.Context) (*toolserver.Launched, error) {
		s, err := b.Launch()
		if err != nil {
			return nil, err
		}
		return &toolserver.Launched{Stdin: s.Stdin, Stdout: s.Stdout, Stop: s.Stop}, nil
	}
	declared := agent.Server{Alias: bundleAlias, Transport: agent.Stdio, Digest: b.Digest()}
	s := toolserver.Spec{Server: declared, Launch: launch}
	for i := range who.Tools {
		s.Tools = append(s.Tools, who.Tools[i].Name)
	}
	o.Servers = []toolserver.Spec{s}
	return true
}

// codeBinding carries out the calls to the tools of a code bundle.
type codeBinding struct{ of *Agent }

var _ call.Binding = codeBinding{}

func (b codeBinding) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	servers, err := binding(b).wait(ctx)
	if err != nil {
		return call.Result{}, call.Unsent(err)
	}
	if !b.of.bundle.Native() {
		return b.of.bundle.Act(ctx, t, c)
	}
	if err := b.of.bundle.Complete(); err != nil {
		return call.Result{}, call.Unsent(err)
	}
	served := *t
	served.Binding = agent.OnServer{Alias: bundleAlias}
	return servers.Act(ctx, &served, c)
}

// UI returns the agent's web pages and the name of the first page. The pages are nil if the agent has no pages or is
// not ready.
func (a *Agent) UI() (pages fs.FS, first string) {
	p := a.manifest.Agent().Program
	if a.manager() == nil || a.bundle == nil || a.trouble() != nil || p == nil || p.UI == "" {
		return nil, ""
	}
	folder, first := path.Clean(p.UI), "index.html"
	if info, err := os.Stat(filepath.Join(a.bundle.Code(), filepath.FromSlash(folder))); err != nil || !info.IsDir() {
		folder, first = path.Dir(folder), path.Base(folder)
	}
	pages, err := fs.Sub(os.DirFS(a.bundle.Code()), folder)
	if err != nil {
		return nil, ""
	}
	return pages, first
}

// isCode reports whether the agent is a code bundle that runs on this machine.
func isCode(a *agent.Agent) bool { return a.Kind == agent.CodeBundle && len(a.Servers) == 0 }
