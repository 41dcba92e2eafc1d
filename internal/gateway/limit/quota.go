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

// Quota is how many calls a principal may make, over all agents and tools and all
// machines that share a store; 0 is as many as it likes.
//
// Unlike a rate it counts by the clock: a minute is one of the clock's, a day one of
// UTC. That takes one row for each principal, however large the number, and a principal
// that hurries gets twice of it around a full minute. Whatever has passed all that
// could stop it, a person included, counts, also if it then fails.
type Quota struct {
	PerMinute int64 `toml:"calls_per_minute"`
	PerDay    int64 `toml:"calls_per_day"`
}

// Quotas are those of all principals.
type Quotas struct {
	Quota
	// Principals have one of their own instead.
	Principals map[string]Quota `toml:"principals"`
}

// ReadQuotas reads the table [quota] of config.toml, or nil where there is none:
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
		return nil, fmt.Errorf("%s: [quota]: a number of calls is 1 or more, or 0 for as many as one likes", h.Config())
	}
	return q, nil
}

// of is a principal's.
func (q *Quotas) of(principal string) Quota {
	if own, ok := q.Principals[principal]; ok {
		return own
	}
	return q.Quota
}

// countCall begins a span anew where it is over, and otherwise counts only as long as
// the quota lasts. A clock that was set back does not begin it again.
const countCall = `INSERT INTO quotas (principal, span, began, used) VALUES ($1, $2, $3, 1) ON CONFLICT (principal, span) DO UPDATE
	SET used = CASE WHEN quotas.began < $3 THEN 1 ELSE quotas.used + 1 END, began = CASE WHEN quotas.began < $3 THEN $3 ELSE quotas.began END
	WHERE quotas.began < $3 OR quotas.used < $4`

// errQuota undoes what was counted of a call that is refused.
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
				// A clock that was ahead began the span later than this one would.
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
					"your quota of %d calls a %s, over all agents and tools, is used up", span.most, span.name).Again()
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
