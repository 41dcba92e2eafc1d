package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/state"
)

// quota counts the call towards what its principal may make of all agents. It comes
// after those who only look: nothing is used up by asking why, or while a person thinks.
// What goes on with a call counts too: unlike rate, spend and approval, which were for
// the whole of it, this is about how often servers are called. Nothing is given back.
func quota(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	if g.quotas == nil {
		return nil
	}
	return g.count(ctx, g.books.DB, p)
}

// quotaLeft says what quota would, and counts nothing.
func quotaLeft(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	return g.count(ctx, undone{g.books.DB}, p)
}

func (g *Gateway) count(ctx context.Context, db state.DB, p *passing) *call.Refusal {
	stopped, err := g.quotas.Count(ctx, db, p.Principal, time.Now())
	if err != nil {
		return StoreFailed(stageLimit, err)
	}
	return stopped
}

// undone is a store that keeps nothing of what is written to it.
type undone struct{ state.DB }

var errUndone = errors.New("undone")

func (u undone) Write(ctx context.Context, f func(state.Tx) error) error {
	err := u.DB.Write(ctx, func(tx state.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return errUndone
	})
	if errors.Is(err, errUndone) {
		return nil
	}
	return err
}
