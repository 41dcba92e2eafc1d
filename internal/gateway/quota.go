package gateway

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/internal/call"
)

// quota counts the call towards what its principal may make of all agents. It comes
// after those who only look: nothing is used up by asking why, or while a person thinks.
// What goes on with a call counts too: unlike rate, spend and approval, which were for
// the whole of it, this is about how often servers are called. Nothing is given back.
func quota(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	if g.quotas == nil {
		return nil
	}
	stopped, err := g.quotas.Count(ctx, g.books.DB, p.Principal, time.Now())
	if err != nil {
		return storeFailed(stageLimit, err)
	}
	return stopped
}
