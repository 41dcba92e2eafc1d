package dispatch

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/store/state"
)

// window is what a budget is for.
const window = time.Hour

// credits is what a run costs: one for each second that was begun.
func credits(ran time.Duration) int64 {
	return max(1, int64((ran+time.Second-1)/time.Second))
}

const (
	insertCredits = `INSERT INTO credits (agent, at, call, used) VALUES ($1, $2, $3, $4) ON CONFLICT (agent, at, call) DO NOTHING`
	// A sum is a numeric to PostgreSQL.
	sumCredits    = `SELECT CAST(coalesce(sum(used), 0) AS BIGINT) FROM credits WHERE agent = $1 AND at > $2`
	forgetCredits = `DELETE FROM credits WHERE agent = $1 AND at <= $2`
)

// Spent is what an agent's program has used in the last hour.
func (d *Queue) Spent(ctx context.Context, agent string) (used int64, err error) {
	err = d.books.DB.Read(ctx, func(tx state.Tx) error {
		return tx.Query(sumCredits,
			[]any{agent, time.Now().Add(-window).UnixMicro()}, func(row state.Row) error { return row.Scan(&used) })
	})
	return used, err
}

// OverBudget reports whether an agent has used up its budget.
func (d *Queue) OverBudget(ctx context.Context, a *agent.Agent) (bool, error) {
	if a.Settlement == nil || a.Settlement.CreditsPerHour <= 0 {
		return false, nil
	}
	used, err := d.Spent(ctx, a.ID)
	return used >= a.Settlement.CreditsPerHour, err
}

// Turn waits until a call of a program that is no intent may go on here: it has
// its place in the same line. Call done when it has ended.
func (d *Queue) Turn(ctx context.Context, a *agent.Agent, p Priority) (done func(), err error) {
	if ctx.Value(turnTaken{}) != nil {
		return func() {}, nil
	}
	if s := a.Settlement; p == "" && s != nil {
		p = Priority(s.Priority)
	}
	over, err := d.OverBudget(ctx, a)
	if err != nil {
		return nil, gateway.StoreFailed(stage, err)
	}
	if over {
		p = Low
		d.options.Log("agent %s is over its budget of %d credits an hour: this call runs at low priority", a.ID, a.Settlement.CreditsPerHour)
	}
	return d.line.wait(ctx, p.level(), time.Now())
}

// turnTaken is in the context of an intent's call: it has had its turn.
type turnTaken struct{}
