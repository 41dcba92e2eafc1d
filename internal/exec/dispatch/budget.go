package dispatch

import (
	"context"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
)

// window is the period that a budget covers.
const window = time.Hour

// credits returns the cost of a run: one credit for each second or part of a second.
func credits(ran time.Duration) int64 {
	return max(1, int64((ran+time.Second-1)/time.Second))
}

const (
	insertCredits = `INSERT INTO credits (agent, at, call, used) VALUES ($1, $2, $3, $4)
ON CONFLICT (agent, at, call) DO NOTHING`
	// PostgreSQL returns a sum as NUMERIC, so the query casts it.
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

// Turn waits until this process is allowed to run one more call to a program. Intents and other calls share the limit
// [Options.Concurrency]. A call that belongs to an intent does not wait, because the intent already has a turn. The
// caller must call the returned function when the call has ended.
func (q *Queue) Turn(ctx context.Context, a *agent.Agent, p Priority) (done func(), err error) {
	if ctx.Value(hasTurn{}) != nil {
		return func() {}, nil
	}
	if s := a.Settlement; p == "" && s != nil {
		p = Priority(s.Priority)
	}
	over, err := q.OverBudget(ctx, a)
	if err != nil {
		return nil, gateway.StoreFailed(ctx, stage, err)
	}
	if over {
		p = Low
		q.options.Log("agent %s has exceeded its budget of %d credits an hour; this call runs at low priority",
			a.ID, a.Settlement.CreditsPerHour)
	}
	return q.turns.wait(ctx, p.level(), time.Now())
}

// hasTurn is the context key that marks a call of an intent. Such a call does not wait for a turn, because its intent
// already has one.
type hasTurn struct{}

// participant claims intents and stores their answers. Both happen in transactions of the gateway.
type participant struct {
	store      *store.Store
	agent      *agent.Agent
	unconfined bool
}

// Participant returns a participant that connects the queue with the calls to an agent's program. If unconfined is
// true, the program runs without a sandbox, and an interrupted intent is never repeated, even if the manifest allows
// repetition.
func Participant(b *store.Store, a *agent.Agent, unconfined bool) gateway.Participant {
	return participant{b, a, unconfined}
}

// Begin claims the queued intent of a call, so that no other process runs it. A call that is not in the queue needs no
// claim. If another process has already claimed the intent, Begin refuses the call.
func (p participant) Begin(tx state.Tx, c *call.Call) (*call.Refusal, error) {
	n, err := tx.Exec(claimIntent, p.store.DB.Owner(), time.Now().UnixMicro(), toInt(p.unconfined), c.ID)
	if err != nil || n == 1 {
		return nil, err
	}
	found, err := exists(tx, stateOf, c.ID)
	if found {
		return call.Refuse(stage, call.ServerUnavailable, "%v", errTaken), nil
	}
	return nil, err
}

// Record stores the answer to an intent and charges the run to the agent's budget.
func (p participant) Record(tx state.Tx, c *call.Call, o call.Outcome) error {
	if err := settle(tx, p.store, c.ID, o); err != nil {
		return err
	}
	if p.agent.Settlement == nil || p.agent.Settlement.CreditsPerHour <= 0 || !startedProgram(o.Refusal) {
		return nil
	}
	now := time.Now()
	if _, err := tx.Exec(deleteOldCredits, p.agent.ID, now.Add(-window).UnixMicro()); err != nil {
		return err
	}
	_, err := tx.Exec(insertCredits, p.agent.ID, now.UnixMicro(), c.ID, credits(o.Result.Duration))
	return err
}

// startedProgram reports whether a call started the program. Only such a call costs credits. The argument is the
// refusal of the call, or nil.
func startedProgram(refusal *call.Refusal) bool {
	return refusal == nil || refusal.Code == call.ProgramFailed ||
		refusal.Code == call.TimedOut && refusal.Effect != call.NoEffect
}
