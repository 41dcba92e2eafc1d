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

// doing makes the gateway that carries out intents.
type doing func(context.Context, home.Home, *store.Store, *manifest.Manifest) (dispatch.Door, func())

// sandboxed runs the program as ambit does.
func sandboxed(ctx context.Context, h home.Home, b *store.Store, m *manifest.Manifest) (dispatch.Door, func()) {
	a := host.Start(ctx, m, host.Options{Home: h, Books: b})
	return a.Gateway(), a.Close
}

// idle answers at once, and slow takes a moment, so that the queue is what is
// measured.
func idle(_ context.Context, _ home.Home, b *store.Store, m *manifest.Manifest) (dispatch.Door, func()) {
	return without(b, m, 0)
}

func slow(_ context.Context, _ home.Home, b *store.Store, m *manifest.Manifest) (dispatch.Door, func()) {
	return without(b, m, pace)
}

func without(b *store.Store, m *manifest.Manifest, takes time.Duration) (dispatch.Door, func()) {
	g := gateway.New(m.Agent(), gateway.Options{Books: b, Binding: echo(takes), Participants: []gateway.Participant{dispatch.Participant(b, m.Agent(), false)}})
	return g, g.Close
}

type echo time.Duration

func (e echo) Act(_ context.Context, _ *agent.Tool, c *call.Call) (call.Result, error) {
	time.Sleep(time.Duration(e))
	return call.Result{Raw: fmt.Appendf(nil, `{"content":[],"structuredContent":{"intent_id":%q,"status":"ok","text":"","sources":[]}}`, dispatch.UUID(c.ID))}, nil
}

// one contains a single gateway.
type one struct{ door dispatch.Door }

func (o one) Digests() []string { return []string{o.door.Agent().Digest} }

func (o one) Open(digest string) (dispatch.Door, func(), bool) {
	return o.door, func() {}, digest == o.door.Agent().Digest
}
