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
		t.Errorf("%+v of %+v", r, why)
	}
	if got := Unsent(r); got != error(r) {
		t.Errorf("%v was marked twice", got)
	}
	if got := Unsent(io.EOF); got != io.EOF {
		t.Errorf("%v is no refusal", got)
	}
	if got := Unsent(nil); got != nil {
		t.Error(got)
	}
}
