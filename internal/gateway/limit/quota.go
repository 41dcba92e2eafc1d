package limit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Quota limits how many calls one principal can make, across all agents and tools and all machines that share a
// store. The value 0 means no limit.
//
// A quota counts calls in clock minutes and UTC days, so that the store needs only one row for each principal and
// time span. As a result, a principal can make twice the allowed number of calls around the end of a span. A call
// counts as soon as it has passed every check and approval, even if it then fails.
type Quota struct {
	PerMinute int64 `toml:"calls_per_minute"`
	PerDay    int64 `toml:"calls_per_day"`
}

// Quotas contains the quotas of all principals.
type Quotas struct {
	Quota
	// Principals maps principals to their own quotas. A principal's own quota replaces the general quota.
	Principals map[string]Quota `toml:"principals"`
}

// ReadQuotas reads the [quota] table of config.toml. It returns nil if the table is missing. Example:
//
//	[quota]
//	calls_per_minute = 600
//	calls_per_day = 50000
//
//	[quota.principals."ci"]
//	calls_per_minute = 6000
func ReadQuotas(h home.Home) (*Quotas, error) {
	q := &Quotas{}
	found, err := home.ReadTable(h.Config(), "quota", q)
	if err != nil || !found {
		return nil, err
	}
	wrong := q.PerMinute < 0 || q.PerDay < 0
	for _, own := range q.Principals {
		wrong = wrong || own.PerMinute < 0 || own.PerDay < 0
	}
	if wrong {
		return nil, fmt.Errorf("%s: in [quota], a number of calls must be at least 1, or 0 for no limit", h.Config())
	}
	return q, nil
}

func (q *Quotas) of(principal string) Quota {
	if own, ok := q.Principals[principal]; ok {
		return own
	}
	return q.Quota
}

// countCall counts a call if the quota allows it. If the stored time span has ended, it starts a new one. Moving the
// clock back does not start a new span.
const countCall = `INSERT INTO quotas (principal, span, began, used) VALUES ($1, $2, $3, 1)
	ON CONFLICT (principal, span) DO UPDATE SET used = CASE WHEN quotas.began < $3 THEN 1 ELSE quotas.used + 1 END,
	began = CASE WHEN quotas.began < $3 THEN $3 ELSE quotas.began END
	WHERE quotas.began < $3 OR quotas.used < $4`

// errUndone makes the store roll back the transaction. It is not returned to the caller.
var errUndone = errors.New("undone")

// Count counts a call of the principal, or returns a refusal if the quota is exhausted. If dryRun is set, Count changes
// nothing.
func (q *Quotas) Count(
	ctx context.Context, db state.DB, principal string, now time.Time, dryRun bool,
) (stopped *call.Refusal, err error) {
	quota := q.of(principal)
	if quota == (Quota{}) {
		return nil, nil
	}
	err = db.Write(ctx, func(tx state.Tx) error {
		stopped = nil
		for _, span := range []struct {
			name string
			long time.Duration
			most int64
		}{{"minute", time.Minute, quota.PerMinute}, {"day", 24 * time.Hour, quota.PerDay}} {
			if span.most == 0 {
				continue
			}
			began := now.UTC().Truncate(span.long)
			rows, err := tx.Exec(countCall, principal, span.name, began.UnixMicro(), span.most)
			if err != nil {
				return err
			}
			if rows == 0 {
				// The stored span can begin later than now if another machine's clock is ahead.
				err := tx.Query(`SELECT began FROM quotas WHERE principal = $1 AND span = $2`,
					[]any{principal, span.name}, func(r state.Row) error {
						var at int64
						err := r.Scan(&at)
						began = time.UnixMicro(at)
						return err
					})
				if err != nil {
					return err
				}
				stopped = call.Refuse(stage, call.RateLimited,
					"you used up your quota of %d calls a %s for all agents and tools", span.most, span.name).Again()
				stopped.RetryAfter = max(began.Add(span.long).Sub(now), time.Millisecond)
				stopped.Hint = tryAgain(stopped.RetryAfter)
				return errUndone
			}
		}
		if dryRun {
			return errUndone
		}
		return nil
	})
	if errors.Is(err, errUndone) {
		err = nil
	}
	return stopped, err
}
