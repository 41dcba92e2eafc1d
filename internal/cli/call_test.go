package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
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

// drain is an endless file.
type drain struct{ read int }

func (d *drain) Read(p []byte) (int, error) {
	if d.read += len(p); d.read > 64<<20 {
		return 0, errors.New("too much was read")
	}
	return len(p), nil
}

// Arguments and policies are read only up to a limit, so that a wrong file does not fill the memory.
func TestFilesAreReadUpToALimit(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, 64<<20)); err != nil {
		t.Fatal(err)
	}
	for _, input := range []string{"-", "@" + large} {
		c, err := (&callFlags{input: input}).call(t.Context(), &terminal{in: &drain{}}, "tool")
		if err != nil || len(c.Arguments) > 17<<20 {
			t.Errorf("with --input %s, the arguments are not limited: %v", input, err)
		}
	}
	if _, err := (&terminal{}).policyCheck(t.Context(), []string{large}); err == nil || !strings.Contains(err.Error(), "is too large") {
		t.Errorf("the check of a large policy returned %v", err)
	}
}

// A store that a newer ambit upgraded needs that version, even if PostgreSQL runs.
func TestHintForANewerStore(t *testing.T) {
	for _, url := range []string{"", "postgres://db/ambit"} {
		f, ok := errors.AsType[*failure](notOpened(home.At(t.TempDir()), url, fmt.Errorf("opening: %w", state.ErrNewer)))
		if !ok || !strings.HasPrefix(f.hint, "install the newer version of ambit") {
			t.Errorf("with the URL %q, the failure is %+v", url, f)
		}
	}
}
