package dispatch

import (
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/state"
)

// Begin is what the door of a program does when it commits to a call: if the call
// is an intent it is claimed, in the same transaction. So whoever was believed
// dead meanwhile, or came second, does not begin. A program that runs unconfined
// may not be repeated, whatever its manifest says.
func Begin(b *books.Books, unconfined bool) func(state.Tx, *call.Call) (*call.Refusal, error) {
	return func(tx state.Tx, c *call.Call) (*call.Refusal, error) {
		n, err := tx.Exec(claimIntent, b.DB.Owner(), time.Now().UnixMicro(), number(unconfined), c.ID)
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
}

// Keep is what the door of a program does when it records a call: if the call is
// an intent its answer is kept, and what the run used of the budget is counted,
// both in the transaction of the record.
func Keep(b *books.Books, a *agent.Agent) func(state.Tx, *call.Call, call.Result, *call.Refusal, bool) error {
	return func(tx state.Tx, c *call.Call, r call.Result, stopped *call.Refusal, begun bool) error {
		if _, err := settle(tx, b, c.ID, r, stopped, begun); err != nil {
			return err
		}
		if a.Settlement == nil || a.Settlement.CreditsPerHour <= 0 || !ran(stopped) {
			return nil
		}
		now := time.Now()
		if _, err := tx.Exec(forgetCredits, a.ID, now.Add(-window).UnixMicro()); err != nil {
			return err
		}
		_, err := tx.Exec(insertCredits, a.ID, now.UnixMicro(), c.ID, credits(r.Duration))
		return err
	}
}

// ran reports whether the program was running when the call ended.
func ran(stopped *call.Refusal) bool {
	return stopped == nil || stopped.Code == call.ProgramFailed || stopped.Code == call.TimedOut && stopped.Effect != call.NoEffect
}
