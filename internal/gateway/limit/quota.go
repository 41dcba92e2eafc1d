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

// Quota bounds the calls of a principal to all agents and tools, over all machines that
// share a store; 0 means no bound.
//
// Unlike a rate, a quota uses fixed spans: the minutes of the clock and the days of UTC.
// It needs one row per principal and span, whatever its size; around a full minute a
// principal can make up to twice the number of calls. A call counts once it has passed
// every check and approval, even if it then fails.
type Quota struct {
	PerMinute int64 `toml:"calls_per_minute"`
	PerDay    int64 `toml:"calls_per_day"`
}

// Quotas has the quotas of all principals.
type Quotas struct {
	Quota
	// Principals overrides the quota for some principals.
	Principals map[string]Quota `toml:"principals"`
}

// ReadQuotas reads the table [quota] of config.toml. It returns nil if there is none:
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
		return nil, fmt.Errorf("%s: [quota]: a number of calls must be at least 1, or 0 for no limit", h.Config())
	}
	return q, nil
}

// of returns the quota of a principal.
func (q *Quotas) of(principal string) Quota {
	if own, ok := q.Principals[principal]; ok {
		return own
	}
	return q.Quota
}

// countCall starts a new span if the old one is over; otherwise it counts up to the
// quota. A clock that was set back does not restart a span.
const countCall = `INSERT INTO quotas (principal, span, began, used) VALUES ($1, $2, $3, 1) ON CONFLICT (principal, span) DO UPDATE
	SET used = CASE WHEN quotas.began < $3 THEN 1 ELSE quotas.used + 1 END, began = CASE WHEN quotas.began < $3 THEN $3 ELSE quotas.began END
	WHERE quotas.began < $3 OR quotas.used < $4`

// errQuota rolls back the count of a refused call.
var errQuota = errors.New("the quota is used up")

// Count counts a call of a principal, or refuses it.
func (q *Quotas) Count(ctx context.Context, db state.DB, principal string, now time.Time) (stopped *call.Refusal, err error) {
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
				// A clock that was ahead may have started the span later.
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
					"you reached your quota of %d calls a %s over all agents and tools", span.most, span.name).Again()
				stopped.RetryAfter = max(began.Add(span.long).Sub(now), time.Millisecond)
				stopped.Hint = tryAgain(stopped.RetryAfter)
				return errQuota
			}
		}
		return nil
	})
	if stopped != nil && errors.Is(err, errQuota) {
		err = nil
	}
	return stopped, err
}
