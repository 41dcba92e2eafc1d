package dispatch

import (
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/state"
)

// Keep is what the door of a program does when it records a call: if the call is
// an intent its answer is kept, and what the run used of the budget is counted,
// both in the transaction of the record.
func Keep(b *books.Books, a *agent.Agent) func(state.Tx, *call.Call, call.Result, *call.Refusal) error {
	return func(tx state.Tx, c *call.Call, r call.Result, stopped *call.Refusal) error {
		if _, err := settle(tx, b, c.ID, r, stopped); err != nil {
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
