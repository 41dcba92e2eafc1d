// Package review stores the reviews of code bundles.
//
// A review contains the name of the reviewer and the digest of the bundle. Because the digest covers every file, a
// changed bundle needs a new review. A review is stored in the same transaction as its journal record. Only the latest
// review of a bundle is in effect, so an approval can be withdrawn later. An approval is valid only while the register
// of authority contains an identical row, so an attacker who can write to the store cannot approve a bundle.
package review

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Verdict is the decision of a reviewer.
type Verdict string

// The verdicts.
const (
	Approved  Verdict = "approved"
	Withdrawn Verdict = "withdrawn"
)

// Review is one person's decision on one bundle.
type Review struct {
	Digest string `json:"digest"`
	// Name is the name of the bundle, and ID is the id of its agent.
	Name      string    `json:"name"`
	ID        string    `json:"-"`
	Principal string    `json:"principal"`
	Verdict   Verdict   `json:"verdict"`
	Note      string    `json:"note"`
	Time      time.Time `json:"time"`
}

// Record stores a review and adds it to the journal.
func Record(ctx context.Context, b *store.Store, callID string, r Review) error {
	decision := journal.Deny
	if r.Verdict == Approved {
		decision = journal.Allow
	}
	return b.DB.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`INSERT INTO bundle_reviews (digest, at, name, principal, verdict, note) `+
			`VALUES ($1, $2, $3, $4, $5, $6)`,
			r.Digest, r.Time.UnixMicro(), r.Name, r.Principal, string(r.Verdict), r.Note)
		if err == nil && r.Verdict == Approved {
			err = b.Authority.Put(tx, r.row())
		} else if err == nil {
			_, err = b.Authority.Remove(tx, authority.Review, r.Digest)
		}
		if err != nil {
			return err
		}
		_, err = b.Journal.Append(tx, &journal.Record{
			Time: r.Time, Call: callID, Agent: r.Name, ID: r.ID, Digest: r.Digest, Principal: r.Principal, Tool: "bundle review",
			Decision: decision, Stage: "review", Detail: "the bundle was " + string(r.Verdict) + " by " + r.Principal,
		})
		return err
	})
}

func (r *Review) row() authority.Row {
	content := authority.ID(strconv.FormatInt(r.Time.UnixMicro(), 10), r.Name, r.Principal, string(r.Verdict))
	return authority.Row{Kind: authority.Review, ID: r.Digest, Content: []byte(content)}
}

// Last returns the last review of the bundle with the given digest, or nil. If the review is an approval that the
// register does not contain, Last returns ErrChanged.
func Last(ctx context.Context, b *store.Store, digest string) (last *Review, err error) {
	err = b.Authority.Read(ctx, func(tx state.Tx, v *authority.View) error {
		last = nil
		list, err := query(tx, `WHERE digest = $1 ORDER BY at DESC LIMIT 1`, digest)
		for _, r := range list {
			if r.Digest != digest || r.Verdict == Approved && !v.Has(r.row()) {
				return ErrChanged
			}
			last = r
		}
		return err
	})
	return last, err
}

func query(tx state.Tx, where string, args ...any) (list []*Review, err error) {
	err = tx.Query(`SELECT digest, at, name, principal, verdict, note FROM bundle_reviews `+where, args,
		func(row state.Row) error {
			var at int64
			var verdict string
			r := &Review{}
			err := row.Scan(&r.Digest, &at, &r.Name, &r.Principal, &verdict, &r.Note)
			r.Verdict, r.Time = Verdict(verdict), time.UnixMicro(at).UTC()
			list = append(list, r)
			return err
		})
	return list, err
}

// Claims returns the approvals that no later review of the same bundle replaces. It does not check whether the register
// contains them.
func Claims(tx state.Tx) (rows []authority.Row, err error) {
	list, err := query(tx, `r WHERE verdict = 'approved' AND NOT EXISTS (
SELECT 1 FROM bundle_reviews later WHERE later.digest = r.digest AND later.at > r.at)`)
	for _, r := range list {
		row := r.row()
		row.Gives = fmt.Sprintf("the bundle %s is allowed to run, approved by %s on %s",
			r.Name, r.Principal, r.Time.Format(time.DateOnly))
		rows = append(rows, row)
	}
	return rows, err
}

// ErrChanged means that something other than ambit wrote or removed a review.
var ErrChanged = errors.New("the review of this bundle was modified in the store by something other than ambit")

// ErrMissing means that a bundle has not been reviewed.
var ErrMissing = errors.New("this bundle has not been reviewed")

// Need returns nil if the bundle with the given digest is approved. Otherwise it returns an error with the reason. An
// installation that requires reviews must not run a bundle without an approval.
func Need(ctx context.Context, b *store.Store, digest string) error {
	last, err := Last(ctx, b, digest)
	switch {
	case err != nil:
		return fmt.Errorf("the reviews of this bundle cannot be read: %w", err)
	case last == nil:
		return fmt.Errorf("%w (%s)", ErrMissing, digest)
	case last.Verdict != Approved:
		return fmt.Errorf("%s withdrew the approval of this bundle (%s)", last.Principal, digest)
	}
	return nil
}
