package dispatch

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/store/state"
)

// window is the period of a budget.
const window = time.Hour

// credits returns the cost of a run: one for each started second.
func credits(ran time.Duration) int64 {
	return max(1, int64((ran+time.Second-1)/time.Second))
}

const (
	insertCredits = `INSERT INTO credits (agent, at, call, used) VALUES ($1, $2, $3, $4)
ON CONFLICT (agent, at, call) DO NOTHING`
	// PostgreSQL's sum returns numeric.
	sumCredits       = `SELECT CAST(coalesce(sum(used), 0) AS BIGINT) FROM credits WHERE agent = $1 AND at > $2`
	deleteOldCredits = `DELETE FROM credits WHERE agent = $1 AND at <= $2`
)

// Spent returns the credits that an agent's program has used in the last hour.
func (q *Queue) Spent(ctx context.Context, agent string) (used int64, err error) {
	err = q.store.DB.Read(ctx, func(tx state.Tx) error {
		return tx.Query(sumCredits,
			[]any{agent, time.Now().Add(-window).UnixMicro()}, func(row state.Row) error { return row.Scan(&used) })
	})
	return used, err
}

// OverBudget reports whether an agent has used up its budget.
func (q *Queue) OverBudget(ctx context.Context, a *agent.Agent) (bool, error) {
	if a.Settlement == nil || a.Settlement.CreditsPerHour <= 0 {
		return false, nil
	}
	used, err := q.Spent(ctx, a.ID)
	return used >= a.Settlement.CreditsPerHour, err
}

// Turn waits for the turn of a program's call that is not an intent: such calls and
// intents share the turns of this process. The caller calls done at its end.
func (q *Queue) Turn(ctx context.Context, a *agent.Agent, p Priority) (done func(), err error) {
	if ctx.Value(hasTurn{}) != nil {
		return func() {}, nil
	}
	if s := a.Settlement; p == "" && s != nil {
		p = Priority(s.Priority)
	}
	over, err := q.OverBudget(ctx, a)
	if err != nil {
		return nil, gateway.StoreFailed(stage, err)
	}
	if over {
		p = Low
		q.options.Log("agent %s is over its budget of %d credits an hour: this call runs at low priority",
			a.ID, a.Settlement.CreditsPerHour)
	}
	return q.turns.wait(ctx, p.level(), time.Now())
}

// hasTurn is the context key of an intent's call, which already has a turn.
type hasTurn struct{}
