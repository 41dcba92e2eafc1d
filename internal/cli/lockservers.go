package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/supply/registry"
)

// resolve looks up the servers that the manifest requires by their ids, and refuses if a
// required server was not found. It prints the problem of each.
func (l *locking) resolve(ctx context.Context) error {
	o := host.ResolveOptions{Home: l.o.Home, Lock: l.o.Lock, Anew: !l.flags.check}
	if l.flags.update {
		o.Lock = nil
	}
	var err error
	if l.resolved, err = resolveWith(ctx, l.m, o); err != nil {
		return err
	}
	if err := l.interrupted(ctx); err != nil {
		return err
	}
	var missing []string
	code := exitMissing
	for _, f := range l.resolved.Found() {
		if f.Problem == nil {
			continue
		}
		warning := diag.Printable(f.Requirement.Server) + ": " + diag.Printable(f.Problem.Error())
		l.t.notef("%s %s", l.t.paint(yellow, "warning:"), warning)
		if f.Requirement.Optional {
			continue
		}
		missing = append(missing, f.Requirement.Server)
		if !registry.Lacking(f.Problem) {
			code = exitNo
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err = fmt.Errorf("nothing was locked; unavailable: %s", strings.Join(missing, ", "))
	return &failure{code: code, err: err, hint: "see what there is: ambit catalog list"}
}

// found is what the requirement of an id came to; nil for a server that the manifest
// declares.
func (l *locking) found(alias string) *registry.Found {
	for _, f := range l.resolved.Found() {
		if f.Requirement.Server == alias {
			return &f
		}
	}
	return nil
}

// start starts the servers that there are.
func (l *locking) start(ctx context.Context, a *agent.Agent, o toolserver.Options) *toolserver.Manager {
	o.Servers = l.resolved.Servers(o, egress.New(egress.Switches{}), false)
	o.Servers = slices.DeleteFunc(o.Servers, func(s toolserver.Spec) bool { return s.Problem != nil })
	return toolserver.Start(ctx, a, o)
}
