package daemon

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ambit-run/ambit/internal/store/state"
)

// unsettled reports the numbers that need a person's attention, read from the store at each scrape.
// All daemons of a store report the same numbers. If the store cannot be read, only ambit_store_up
// is reported.
type unsettled Metrics

// scrapeTime bounds reading the store.
const scrapeTime = 5 * time.Second

var (
	storeDesc     = prometheus.NewDesc("ambit_store_up", "Whether the store can be read: 1 or 0.", nil, nil)
	unknownDesc   = prometheus.NewDesc("ambit_calls_unknown", "Calls with an unknown outcome, which a person must settle.", nil, nil)
	unknownAge    = prometheus.NewDesc("ambit_calls_unknown_oldest_seconds", "The age of the oldest such call; 0 if there is none.", nil, nil)
	approvalsDesc = prometheus.NewDesc("ambit_approvals_pending", "Approvals that wait for a person.", nil, nil)
	approvalsAge  = prometheus.NewDesc("ambit_approvals_oldest_seconds", "The age of the oldest such approval; 0 if there is none.", nil, nil)
)

func (u *unsettled) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeDesc, unknownDesc, unknownAge, approvalsDesc, approvalsAge} {
		out <- d
	}
}

func (u *unsettled) Collect(out chan<- prometheus.Metric) {
	db := u.db.Load()
	if db == nil {
		return
	}
	now := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	var unknown, unknownSince, pending, pendingSince int64
	err := (*db).Read(ctx, func(tx state.Tx) error {
		look := func(n, since *int64, query string, args ...any) error {
			return tx.Query(query, args, func(r state.Row) error { return r.Scan(n, since) })
		}
		if err := look(&unknown, &unknownSince, `SELECT COUNT(*), MIN(started) FROM calls WHERE state = 'unknown' AND settled IS NULL`); err != nil {
			return err
		}
		return look(&pending, &pendingSince, `SELECT COUNT(*), MIN(asked) FROM approvals WHERE state = 'pending' AND expires > $1`, now.UnixMicro())
	})
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	if err != nil {
		gauge(storeDesc, 0)
		return
	}
	age := func(n, since int64) float64 {
		if n == 0 {
			return 0
		}
		return max(0, now.Sub(time.UnixMicro(since)).Seconds())
	}
	gauge(storeDesc, 1)
	gauge(unknownDesc, float64(unknown))
	gauge(unknownAge, age(unknown, unknownSince))
	gauge(approvalsDesc, float64(pending))
	gauge(approvalsAge, age(pending, pendingSince))
}
