package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// docs/metrics.md lists exactly ambit's metrics, with their kinds and labels.
func TestMetricsAreAsDocumented(t *testing.T) {
	m := NewMetrics()
	m.Timed(statetest.Open(t))
	m.Began("a", "t")("deny", "unknown_tool")
	m.reloaded(nil)
	m.denied("a", toolserver.Denial{})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "ambit_") {
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			slices.Sort(labels)
			have[f.GetName()] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",")
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(ambit_\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = row[2] + " " + strings.NewReplacer("`", "", " ", "").Replace(row[3])
	}
	for name, kind := range have {
		if documented[name] != kind {
			t.Errorf("%s is a %s, but is documented as %q", name, kind, documented[name])
		}
	}
	for name := range documented {
		if have[name] == "" {
			t.Errorf("%s is documented, but does not exist", name)
		}
	}
	for _, name := range regexp.MustCompile(`ambit_\w+`).FindAllString(string(text), -1) {
		if have[name] == "" && have[strings.TrimSuffix(name, "_bucket")] == "" {
			t.Errorf("docs/metrics.md mentions %s, which does not exist", name)
		}
	}
}

// Calls with an unknown outcome and pending approvals are counted with both database engines. The metrics report an
// unavailable store.
func TestUnsettledIsCounted(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		m := NewMetrics()
		m.Timed(db)
		if got := gauges(t, m); got["ambit_store_up"] != 1 || got["ambit_calls_unknown"] != 0 || got["ambit_calls_unknown_oldest_seconds"] != 0 || got["ambit_approvals_pending"] != 0 {
			t.Errorf("an empty store has the metrics %v", got)
		}
		err := db.Write(t.Context(), func(tx state.Tx) error {
			for _, query := range []string{
				`INSERT INTO calls (id, state, started) VALUES ('a', 'unknown', 1000000)`,
				`INSERT INTO calls (id, state, started) VALUES ('b', 'unknown', 2000000)`,
				`INSERT INTO calls (id, state, started) VALUES ('c', 'sending', 1)`,
				`INSERT INTO approvals (id, agent, digest, tool, principal, mac, state, asked, expires) VALUES ('x', '', '', '', '', '', 'pending', 1000000, 9000000000000000)`,
				`INSERT INTO approvals (id, agent, digest, tool, principal, mac, state, asked, expires) VALUES ('y', '', '', '', '', '', 'pending', 1, 2)`,
				`INSERT INTO approvals (id, agent, digest, tool, principal, mac, state, asked, expires) VALUES ('z', '', '', '', '', '', 'denied', 1, 9000000000000000)`,
			} {
				if _, err := tx.Exec(query); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got := gauges(t, m)
		if got["ambit_calls_unknown"] != 2 || got["ambit_approvals_pending"] != 1 || got["ambit_calls_unknown_oldest_seconds"] < 1e9 || got["ambit_approvals_oldest_seconds"] < 1e9 {
			t.Errorf("the metrics are %v", got)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if got := gauges(t, m); len(got) != 1 || got["ambit_store_up"] != 0 {
			t.Errorf("the metrics of an unavailable store are %v", got)
		}
	})
}

func gauges(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.CollectorFunc(m.readStore))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return got
}
