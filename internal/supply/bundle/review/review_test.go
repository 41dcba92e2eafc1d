package review

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// Need uses the last review of a digest, and a review does not affect other digests.
func TestNeed(t *testing.T) {
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	db := statetest.Open(t)
	b := store.New(db, keys, nil)
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

// An attacker who writes to the store cannot approve a bundle, and cannot undo the withdrawal of an approval.
func TestReviewsOfOthers(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
		if err != nil {
			t.Fatal(err)
		}
		b, now := store.New(connect(), keys, nil), time.Now()
		exec := func(statement string) {
			t.Helper()
			err := b.DB.Write(t.Context(), func(tx state.Tx) error { _, err := tx.Exec(statement); return err })
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, v := range []Verdict{Approved, Withdrawn} {
			r := Review{Digest: "sha256:a", Name: "x", Principal: "me@local", Verdict: v, Time: now.Add(time.Duration(i) * time.Second)}
			if err := Record(t.Context(), b, "0123456789abcdef0123456789abcdef", r); err != nil {
				t.Fatal(err)
			}
		}
		exec(`DELETE FROM bundle_reviews WHERE verdict = 'withdrawn'`)
		exec(`INSERT INTO bundle_reviews SELECT 'sha256:b', at, name, principal, verdict, note FROM bundle_reviews`)
		for _, digest := range []string{"sha256:a", "sha256:b"} {
			if err := Need(t.Context(), b, digest); !errors.Is(err, ErrChanged) {
				t.Errorf("%s: Need returned %v, want ErrChanged", digest, err)
			}
		}
	})
}
