package call

import (
	"errors"
	"io"
	"testing"
)

// Calls may share a refusal, so marking one call must not mark the others.
func TestUnsent(t *testing.T) {
	why := Refuse("act", ServerUnavailable, "it is not running")
	r, ok := errors.AsType[*Refusal](Unsent(why))
	if !ok || !r.Unsent || r.Message != why.Message || why.Unsent {
		t.Errorf("Unsent returned %+v for %+v", r, why)
	}
	if got := Unsent(r); got != error(r) {
		t.Errorf("Unsent copied a refusal that was marked already: %v", got)
	}
	if got := Unsent(io.EOF); got != io.EOF {
		t.Errorf("Unsent(io.EOF) = %v, want io.EOF", got)
	}
	if got := Unsent(nil); got != nil {
		t.Error(got)
	}
}
