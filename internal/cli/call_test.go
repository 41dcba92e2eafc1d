package cli

import (
	"errors"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// The error of a cancelled program has no hint, because the caller cancelled it.
func TestCancelledGivesNoHint(t *testing.T) {
	for _, reason := range []program.Reason{program.Cancelled, program.NoAnswer} {
		r := call.Refuse("act", call.ProgramFailed, "%s", reason)
		r.Reason = string(reason)
		f, ok := errors.AsType[*failure](asFailure(r))
		if !ok || (f.hint == "") != (reason == program.Cancelled) {
			t.Errorf("%s: got the failure %+v, want a hint unless the program was cancelled", reason, f)
		}
	}
}
