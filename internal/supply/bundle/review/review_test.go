package review

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// Need uses the last review of a digest, and a review does not affect other digests.
func TestNeed(t *testing.T) {
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	db := statetest.Open(t)
	b := &store.Store{DB: db, Keys: keys, Journal: journal.New(db, keys.Signer(), "test")}
	ctx, now := t.Context(), time.Now()
	if err := Need(ctx, b, "sha256:a"); !errors.Is(err, ErrMissing) {
		t.Errorf("without a review: %v", err)
	}
	record := func(v Verdict, after time.Duration) {
		t.Helper()
		if err := Record(ctx, b, "0123456789abcdef0123456789abcdef", Review{Digest: "sha256:a", Name: "x", Principal: "me@local", Verdict: v, Time: now.Add(after)}); err != nil {
			t.Fatal(err)
		}
	}
	record(Approved, 0)
	if err := Need(ctx, b, "sha256:a"); err != nil {
		t.Errorf("approved: %v", err)
	}
	if err := Need(ctx, b, "sha256:b"); !errors.Is(err, ErrMissing) {
		t.Errorf("another digest: %v", err)
	}
	record(Withdrawn, time.Second)
	if err := Need(ctx, b, "sha256:a"); err == nil || errors.Is(err, ErrMissing) {
		t.Errorf("withdrawn: %v", err)
	}
}
