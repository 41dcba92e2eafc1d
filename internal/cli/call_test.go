package cli

import (
	"errors"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// A cancelled program gets no hint: the caller knows why.
func TestCancelledGivesNoHint(t *testing.T) {
	for _, reason := range []program.Reason{program.Cancelled, program.NoAnswer} {
		r := call.Refuse("act", call.ProgramFailed, "%s", reason)
		r.Reason = string(reason)
		f, ok := errors.AsType[*failure](asFailure(r))
		if !ok || (f.hint == "") != (reason == program.Cancelled) {
			t.Errorf("%s: %+v", reason, f)
		}
	}
}
