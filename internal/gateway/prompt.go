package gateway

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/call"
)

// Prompt gives out one of the agent's own prompts, made by get. It passes the
// scan that every result passes, and the journal says who read it.
func (g *Gateway) Prompt(ctx context.Context, principal, name string, get func(ctx context.Context, name string) (jsontext.Value, error)) (jsontext.Value, error) {
	if stopped := g.unrecorded(); stopped != nil {
		return nil, stopped
	}
	start := time.Now()
	var found passing
	answer, err := get(ctx, name)
	if err == nil {
		var stopped *call.Refusal
		if answer, stopped = g.guards.scan(answer, found.note); stopped != nil {
			stopped.Effect = call.NoEffect // it was read, and nothing else
			err = stopped
		}
	}
	return g.recorded(start, &call.Forward{ID: NewID(), Principal: principal}, "prompt:"+name, found.notes, answer, err)
}
