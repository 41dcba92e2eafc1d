package daemon

import (
	stdlog "log"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Metrics are the daemon's metrics:
//
//	ambit_calls_total{agent,tool,decision,code}   calls to the gateway, by decision
//	ambit_call_duration_seconds{agent}            duration of calls
//	ambit_calls_in_flight{agent}                  open calls
//	ambit_agents{state}                           agents, by state
//	ambit_store_write_seconds                     duration of durable transactions
//	ambit_reloads_total{result}                   reloads, ok or failed
//	ambit_store_up                                whether the store can be read
//	ambit_calls_unknown, …_oldest_seconds         calls with an unknown outcome
//	ambit_approvals_pending, …_oldest_seconds     approvals that wait for a person
//
// together with those of the Go runtime and the process. docs/metrics.md promises
// the names. Labels are bounded: an agent or tool that no manifest names is
// counted as "other", so that callers cannot create series by inventing names.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	store    prometheus.Histogram
	reloads  *prometheus.CounterVec
	meters   sync.Map // *meter by [2]string{agent, tool}: looking up labels takes longer than counting
	fleet    atomic.Pointer[fleet]
	db       atomic.Pointer[state.DB]
}

// other replaces undeclared names.
const other = "other"

const decisionAllow = "allow"

// maxTools bounds how many tools of one agent have series of their own.
const maxTools = 256

func NewMetrics() *Metrics {
	seconds := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ambit_calls_total", Help: "Calls to the gateway, by decision."}, []string{"agent", "tool", "decision", "code"}),
		took:     prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ambit_call_duration_seconds", Help: "Duration of calls.", Buckets: seconds}, []string{"agent"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ambit_calls_in_flight", Help: "Open calls."}, []string{"agent"}),
		store:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "ambit_store_write_seconds", Help: "Duration of durable store transactions.", Buckets: seconds}),
		reloads:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ambit_reloads_total", Help: "Reloads, by result."}, []string{"result"}),
	}
	m.registry.MustRegister(m.calls, m.took, m.inFlight, m.store, m.reloads, (*agentStates)(m), (*unsettled)(m),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) watch(f *fleet) { m.fleet.Store(f) }

// Began counts an open call. The returned function records its outcome.
func (m *Metrics) Began(agent, tool string) (ended func(decision, code string)) {
	t := m.meter(m.known(agent, tool))
	t.flying.Inc()
	start := time.Now()
	return func(decision, code string) {
		t.flying.Dec()
		t.took.Observe(time.Since(start).Seconds())
		if decision == decisionAllow {
			t.allowed.Inc()
			return
		}
		m.calls.WithLabelValues(t.agent, t.tool, decision, code).Inc()
	}
}

// meter counts the calls of one tool.
type meter struct {
	agent, tool string
	flying      prometheus.Gauge
	took        prometheus.Observer
	allowed     prometheus.Counter
}

func (m *Metrics) meter(agent, tool string) *meter {
	key := [2]string{agent, tool}
	if t, ok := m.meters.Load(key); ok {
		return t.(*meter)
	}
	t, _ := m.meters.LoadOrStore(key, &meter{
		agent, tool, m.inFlight.WithLabelValues(agent), m.took.WithLabelValues(agent),
		m.calls.WithLabelValues(agent, tool, decisionAllow, ""),
	})
	return t.(*meter)
}

func (m *Metrics) reloaded(err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.reloads.WithLabelValues(result).Inc()
}

// known replaces names that no manifest declares by other.
func (m *Metrics) known(agent, tool string) (string, string) {
	f := m.fleet.Load()
	if f == nil {
		return other, other
	}
	e := f.current.Load().byName[agent]
	if e == nil || e.rejected() {
		return other, other
	}
	a := e.Manifest.Agent()
	for i := range a.Tools[:min(len(a.Tools), maxTools)] {
		t := &a.Tools[i]
		if t.Name == tool || t.URI != nil && t.URI.String() == tool {
			return agent, t.Name
		}
	}
	return agent, other
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// agentStates counts agents at each scrape.
type agentStates Metrics

var agentsDesc = prometheus.NewDesc("ambit_agents", "Agents, by state.", []string{"state"}, nil)

func (s *agentStates) Describe(out chan<- *prometheus.Desc) { out <- agentsDesc }

func (s *agentStates) Collect(out chan<- prometheus.Metric) {
	counts := map[State]int{Starting: 0, Ready: 0, Quarantined: 0, Failed: 0, Rejected: 0}
	if f := s.fleet.Load(); f != nil {
		for _, e := range f.current.Load().all {
			state, _ := e.state()
			counts[state]++
		}
	}
	for state, n := range counts {
		out <- prometheus.MustNewConstMetric(agentsDesc, prometheus.GaugeValue, float64(n), string(state))
	}
}

// logTo returns the log of the HTTP server.
func logTo(log func(string, ...any)) *stdlog.Logger { return stdlog.New(logWriter(log), "", 0) }

type logWriter func(string, ...any)

func (log logWriter) Write(p []byte) (int, error) {
	log("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}
