package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
)

// quota counts the call towards its principal's calls to all agents. It comes after the
// stages that only check, so that neither ambit why nor a pending approval uses quota.
// Every round of a continued call counts, because a quota bounds the requests to servers;
// rate, spend and approval apply to the call as a whole. A count is never returned.
func quota(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if g.quotas == nil {
		return nil
	}
	return g.count(ctx, g.store.DB, p)
}

// quotaLeft checks like quota but counts nothing.
func quotaLeft(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	return g.count(ctx, undone{g.store.DB}, p)
}

func (g *Gateway) count(ctx context.Context, db state.DB, p *inflight) *call.Refusal {
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
