package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// opener returns a gateway for the intents, and a function that closes the gateway.
type opener func(context.Context, home.Home, *store.Store, *manifest.Manifest) (dispatch.Gateway, func())

// sandboxed returns a gateway that runs the program in the sandbox.
func sandboxed(ctx context.Context, h home.Home, b *store.Store, m *manifest.Manifest) (dispatch.Gateway, func()) {
	a := host.Start(ctx, m, host.Options{Home: h, Store: b})
	return a.Gateway(), a.Close
}

// idle returns a gateway that answers at once without running a program, so only the cost of the queue remains.
func idle(_ context.Context, _ home.Home, b *store.Store, m *manifest.Manifest) (dispatch.Gateway, func()) {
	return without(b, m, 0)
}

// slow returns a gateway that answers after a short time without running a program.
func slow(_ context.Context, _ home.Home, b *store.Store, m *manifest.Manifest) (dispatch.Gateway, func()) {
	return without(b, m, pace)
}

func without(b *store.Store, m *manifest.Manifest, delay time.Duration) (dispatch.Gateway, func()) {
	g := gateway.New(m.Agent(), gateway.Options{Store: b, Binding: echo(delay), Participants: []gateway.Participant{dispatch.Participant(b, m.Agent(), false)}})
	return g, g.Close
}

// echo is a binding that answers after a delay.
type echo time.Duration

func (e echo) Act(_ context.Context, _ *agent.Tool, c *call.Call) (call.Result, error) {
	time.Sleep(time.Duration(e))
	return call.Result{Raw: fmt.Appendf(nil, `{"content":[],"structuredContent":{"intent_id":%q,"status":"ok","text":"","sources":[]}}`, dispatch.UUID(c.ID))}, nil
}

// The type one implements dispatch.Gateways with a single gateway.
type one struct{ gateway dispatch.Gateway }

func (o one) Digests() []string { return []string{o.gateway.Agent().Digest} }

func (o one) Open(digest string) (dispatch.Gateway, func(), bool) {
	return o.gateway, func() {}, digest == o.gateway.Agent().Digest
}
