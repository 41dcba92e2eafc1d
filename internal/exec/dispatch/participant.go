package dispatch

import (
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
)

// participant claims intents and stores their answers in the transactions of the
// gateway that carries them out.
type participant struct {
	store      *store.Store
	agent      *agent.Agent
	unconfined bool
}

// Participant returns the queue's part in the calls of a program. A program that
// runs unconfined is never repeated, even if its manifest allows it.
func Participant(b *store.Store, a *agent.Agent, unconfined bool) gateway.Participant {
	return participant{b, a, unconfined}
}

// Begin claims the intent of a call, if there is one. It refuses if another process
// has claimed it, or has taken it over because this one seemed dead.
func (p participant) Begin(tx state.Tx, c *call.Call) (*call.Refusal, error) {
	n, err := tx.Exec(claimIntent, p.store.DB.Owner(), time.Now().UnixMicro(), toInt(p.unconfined), c.ID)
	if err != nil || n == 1 {
		return nil, err
	}
	found := false
	err = tx.Query(stateOf, []any{c.ID}, func(state.Row) error { found = true; return nil })
	if err == nil && found {
		return call.Refuse(stage, call.ServerUnavailable, "%v", errTaken), nil
	}
	return nil, err
}

// Record stores the answer to an intent and charges the run to the budget.
func (p participant) Record(tx state.Tx, c *call.Call, o call.Outcome) error {
	if _, err := settle(tx, p.store, c.ID, o); err != nil {
		return err
	}
	if p.agent.Settlement == nil || p.agent.Settlement.CreditsPerHour <= 0 || !ran(o.Refusal) {
		return nil
	}
	now := time.Now()
	if _, err := tx.Exec(deleteOldCredits, p.agent.ID, now.Add(-window).UnixMicro()); err != nil {
		return err
	}
	_, err := tx.Exec(insertCredits, p.agent.ID, now.UnixMicro(), c.ID, credits(o.Result.Duration))
	return err
}

// ran reports whether the program was running when the call ended.
func ran(stopped *call.Refusal) bool {
	return stopped == nil || stopped.Code == call.ProgramFailed ||
		stopped.Code == call.TimedOut && stopped.Effect != call.NoEffect
}
