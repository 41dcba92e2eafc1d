package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
)

// quota counts the call towards its principal's calls to all agents. It comes after
// the stages that only check, so that neither ambit why nor a pending approval uses
// quota. Every round of a call counts: rate, spend and approval are for the call as a
// whole, and a quota is about how often servers are called. Nothing is given back.
func quota(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	if g.quotas == nil {
		return nil
	}
	return g.count(ctx, g.books.DB, p)
}

// quotaLeft checks like quota, and counts nothing.
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

// undone is a store that rolls every write back.
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
