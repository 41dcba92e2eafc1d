package daemon

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Metrics collects the metrics of a daemon:
//
//	ambit_calls_total{agent,tool,decision,code}   calls to the gateway, by decision
//	ambit_call_duration_seconds{agent}            duration of calls
//	ambit_calls_in_flight{agent}                  open calls
//	ambit_denials_total{agent,kind}               what sandboxes refused to tool servers
//	ambit_agents{state}                           agents, by state
//	ambit_store_write_seconds                     duration of durable transactions
//	ambit_reloads_total{result}                   reloads, ok or failed
//	ambit_store_up                                whether the store can be read
//	ambit_calls_unknown                           calls with an unknown outcome
//	ambit_calls_unknown_oldest_seconds            age of the oldest of these calls
//	ambit_approvals_pending                       approvals that wait for a person
//	ambit_approvals_oldest_seconds                age of the oldest of these approvals
//
// Metrics also collects the metrics of the Go runtime and the process. The metric names are stable; see
// docs/metrics.md. Calls to an undeclared agent or tool have the label "other". Callers therefore cannot create new
// time series by inventing names.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	store    prometheus.Histogram
	reloads  *prometheus.CounterVec
	denials  *prometheus.CounterVec
	daemon   atomic.Pointer[Daemon]
	db       atomic.Pointer[state.DB]
}

// otherLabel is the label of agents and tools that no manifest declares.
const otherLabel = "other"

// maxTools is the maximum number of tools per agent that have their own time series. Additional tools have the label
// "other".
const maxTools = 256

func NewMetrics() *Metrics {
	seconds := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ambit_calls_total", Help: "Calls to the gateway, by decision.",
		}, []string{"agent", "tool", "decision", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ambit_call_duration_seconds", Help: "Duration of calls.", Buckets: seconds,
		}, []string{"agent"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ambit_calls_in_flight", Help: "Open calls.",
		}, []string{"agent"}),
		store: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ambit_store_write_seconds", Help: "Duration of durable store transactions.", Buckets: seconds,
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ambit_reloads_total", Help: "Reloads, by result.",
		}, []string{"result"}),
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ambit_denials_total", Help: "Connections and programs that sandboxes refused to tool servers, by kind.",
		}, []string{"agent", "kind"}),
	}
	m.registry.MustRegister(m.calls, m.took, m.inFlight, m.store, m.reloads, m.denials,
		prometheus.CollectorFunc(m.countAgents), prometheus.CollectorFunc(m.readStore), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Began records that a call has started. The caller must call the returned function with the outcome when the call has
// ended.
func (m *Metrics) Began(agent, tool string) (ended func(decision, code string)) {
	agent, tool = m.labelsFor(agent, tool)
	flying := m.inFlight.WithLabelValues(agent)
	flying.Inc()
	start := time.Now()
	return func(decision, code string) {
		flying.Dec()
		m.took.WithLabelValues(agent).Observe(time.Since(start).Seconds())
		m.calls.WithLabelValues(agent, tool, decision, code).Inc()
	}
}

func (m *Metrics) denied(agent string, d toolserver.Denial) {
	agent, _ = m.labelsFor(agent, "")
	m.denials.WithLabelValues(agent, string(d.Kind)).Inc()
}

func (m *Metrics) reloaded(err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.reloads.WithLabelValues(result).Inc()
}

// labelsFor returns the labels for an agent and a tool. It replaces names that no manifest declares with the label
// "other".
func (m *Metrics) labelsFor(agent, tool string) (string, string) {
	d := m.daemon.Load()
	if d == nil {
		return otherLabel, otherLabel
	}
	e := d.fleet.current.Load().byName[agent]
	if e == nil || e.rejected() {
		return otherLabel, otherLabel
	}
	a := e.Manifest.Agent()
	for i := range a.Tools[:min(len(a.Tools), maxTools)] {
		t := &a.Tools[i]
		if t.Name == tool || t.URI != nil && t.URI.String() == tool {
			return agent, t.Name
		}
	}
	return agent, otherLabel
}

var agentsDesc = prometheus.NewDesc("ambit_agents", "Agents, by state.", []string{"state"}, nil)

// countAgents collects ambit_agents. Prometheus calls countAgents at each scrape.
func (m *Metrics) countAgents(out chan<- prometheus.Metric) {
	counts := map[State]int{Starting: 0, Ready: 0, Quarantined: 0, Failed: 0, Rejected: 0}
	if d := m.daemon.Load(); d != nil {
		problem := d.storeProblem()
		for _, e := range d.fleet.current.Load().all {
			state, _ := e.state()
			counts[Card{State: state}.within(problem).State]++
		}
	}
	for state, n := range counts {
		out <- prometheus.MustNewConstMetric(agentsDesc, prometheus.GaugeValue, float64(n), string(state))
	}
}

// logWriter is an io.Writer that passes the HTTP server's log lines to a log function.
type logWriter func(string, ...any)

func (log logWriter) Write(p []byte) (int, error) {
	log("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// scrapeTime is the time limit for reading the store during a scrape.
const scrapeTime = 5 * time.Second

// readStore collects the metrics that come from the store. They count the calls and approvals that need a person's
// attention. Daemons that share a store report the same numbers. If the store cannot be read, readStore collects only
// ambit_store_up.
func (m *Metrics) readStore(out chan<- prometheus.Metric) {
	db := m.db.Load()
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
		return errors.Join(
			look(&unknown, &unknownSince, `SELECT COUNT(*), MIN(started) FROM calls
WHERE state = 'unknown' AND settled IS NULL`),
			look(&pending, &pendingSince, `SELECT COUNT(*), MIN(asked) FROM approvals
WHERE state = 'pending' AND expires > $1`, now.UnixMicro()))
	})
	gauge := func(name, help string, v float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, v)
	}
	const up = "1 if the store can be read, otherwise 0."
	if err != nil {
		gauge("ambit_store_up", up, 0)
		return
	}
	age := func(n, since int64) float64 {
		if n == 0 {
			return 0
		}
		return max(0, now.Sub(time.UnixMicro(since)).Seconds())
	}
	gauge("ambit_store_up", up, 1)
	gauge("ambit_calls_unknown", "Calls with an unknown outcome, which a person must settle.", float64(unknown))
	gauge("ambit_calls_unknown_oldest_seconds", "Age of the oldest call with an unknown outcome; 0 if there is none.",
		age(unknown, unknownSince))
	gauge("ambit_approvals_pending", "Approvals that wait for a person's decision.", float64(pending))
	gauge("ambit_approvals_oldest_seconds", "Age of the oldest approval that waits for a decision; 0 if there is none.",
		age(pending, pendingSince))
}
