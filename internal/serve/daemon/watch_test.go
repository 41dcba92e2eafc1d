package daemon

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func TestMetrics(t *testing.T) {
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha"), "bad.json": `{"schema_version": 1, "agent": 7}`}, nil)
	r.Prove(t.Context())
	m := r.options.Metrics
	m.Began("alpha", "echo")("allow", "")
	m.Began("alpha", "matrix://tool/mcp/demo/echo@1.0.0")("allow", "")
	m.Began("alpha", "made-up-1")("deny", "unknown_tool")
	m.Began("alpha", "made-up-2")("deny", "unknown_tool")
	m.Began("undeclared", "echo")("deny", "unknown_tool")
	under := m.Began("alpha", "echo")
	defer under("allow", "")
	if err := m.Timed(r.db).Write(t.Context(), func(state.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := r.ask(r.admin, "GET", "/metrics", "").body
	for _, line := range []string{
		`ambit_calls_total{agent="alpha",code="",decision="allow",tool="echo"} 2`,
		`ambit_calls_total{agent="alpha",code="unknown_tool",decision="deny",tool="other"} 2`,
		`ambit_calls_total{agent="other",code="unknown_tool",decision="deny",tool="other"} 1`,
		`ambit_calls_in_flight{agent="alpha"} 1`,
		`ambit_agents{state="ready"} 1`,
		`ambit_agents{state="rejected"} 1`,
		`ambit_agents{state="failed"} 0`,
		`ambit_call_duration_seconds_count{agent="alpha"} 4`,
		`ambit_store_write_seconds_count 1`,
		`ambit_reloads_total{result="ok"} 1`,
		`go_goroutines `,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("the metrics do not contain %s", line)
		}
	}
	if strings.Contains(text, "made-up") || strings.Contains(text, "undeclared") {
		t.Error("an undeclared name became a label")
	}
	open := newRig(t, nil, func(_ *rig, o *Options) { o.MetricsOpen = true })
	if a := open.ask("", "GET", "/metrics", ""); a.status != 200 {
		t.Errorf("with --metrics-open: %d", a.status)
	}
}

func TestTrace(t *testing.T) {
	sent := make(chan map[string]any, 1)
	var header http.Header
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var doc map[string]any
		if err != nil || r.URL.Path != "/v1/traces" || json.Unmarshal(body, &doc) != nil {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		header = r.Header.Clone()
		sent <- doc
	}))
	defer collector.Close()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b"}
	trace, err := TraceFromEnv(func(name string) string { return env[name] }, "1")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, func(_ *rig, o *Options) { o.Trace = trace })
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.server.URL+"/api/v1/agents/alpha/call", strings.NewReader(`{"tool":"echo","arguments":{"secret":"canary"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.admin)
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if a := r.do(req); a.status != 200 {
		t.Fatal(a.body)
	}
	if err := trace.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc := <-sent
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"traceId":"0af7651916cd43dd8448eb211c80319c"`, `"parentSpanId":"b7ad6b7169203331"`, `"name":"POST /api/v1/agents/{name}/call"`, `"kind":2`,
		`{"key":"ambit.agent","value":{"stringValue":"alpha"}}`, `{"key":"http.response.status_code","value":{"intValue":"200"}}`, `{"key":"service.name","value":{"stringValue":"ambit"}}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the trace does not contain %s: %s", want, text)
		}
	}
	if strings.Contains(string(text), "canary") || strings.Contains(string(text), "ambit_") {
		t.Error("the trace reveals the content or the caller")
	}
	if header.Get("X-Team") != "a b" {
		t.Errorf("the spans were sent without the configured headers: %v", header)
	}
	if none, err := TraceFromEnv(func(string) string { return "" }, "1"); none != nil || err != nil {
		t.Errorf("without an endpoint: %v, %v", none, err)
	}
	if _, err := TraceFromEnv(func(string) string { return "localhost:4317" }, "1"); err == nil {
		t.Error("an endpoint that is not a URL was accepted")
	}
}

func TestPresence(t *testing.T) {
	h := home.At(t.TempDir())
	if _, err := FindDaemon(h); err == nil {
		t.Fatal("FindDaemon found a daemon before one was announced")
	}
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	file, err := WriteKey(h, r.admin)
	if err != nil {
		t.Fatal(err)
	}
	p := Presence{URL: r.server.URL, KeyFile: file, PID: 1}
	if other, err := Announce(t.Context(), h, p); other != nil || err != nil {
		t.Fatal(other, err)
	}
	for _, name := range []string{file, filepath.Join(h.Dir(), "daemon.json")} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	c, err := FindDaemon(h)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Agents []Card }
	if err := c.Do(t.Context(), "GET", "/api/v1/agents", &doc); err != nil || len(doc.Agents) != 1 || doc.Agents[0].Name != "alpha" {
		t.Errorf("the list of agents is %+v, %v", doc, err)
	}
	if err := c.Do(t.Context(), "GET", "/api/v1/agents/none", &doc); err == nil || err.Error() != "there is no agent with this name" {
		t.Errorf("the error for an unknown agent is %v", err)
	}
	// A second daemon does not overwrite the daemon.json of the first.
	second := Presence{URL: "http://127.0.0.1:1", KeyFile: filepath.Join(h.Dir(), "run", "x.key")}
	if other, err := Announce(t.Context(), h, second); err != nil || other == nil || other.URL != p.URL {
		t.Errorf("Announce of a second daemon returned %v, %v; want the first daemon", other, err)
	}
	// A daemon at the address of a killed daemon does not take itself for that daemon.
	file2, err := WriteKey(h, r.admin)
	if err != nil {
		t.Fatal(err)
	}
	again := Presence{URL: p.URL, KeyFile: file2, PID: 2}
	if other, err := Announce(t.Context(), h, again); other != nil || err != nil {
		t.Errorf("Announce of a daemon at the same address returned %v, %v", other, err)
	}
	if c, err := FindDaemon(h); err != nil || c.PID != 2 {
		t.Errorf("FindDaemon returned %v, %v; want the daemon that was announced last", c, err)
	}
	file = file2
	Leave(h, second)
	if _, err := FindDaemon(h); err != nil {
		t.Errorf("the second daemon removed the daemon.json of the first: %v", err)
	}
	// The next daemon removes the files of a killed daemon.
	r.server.Close()
	if other, err := Announce(t.Context(), h, second); other != nil || err != nil {
		t.Errorf("after the first daemon was killed, Announce returned %v, %v", other, err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the key file of the killed daemon still exists")
	}
	Leave(h, second)
	if _, err := FindDaemon(h); err == nil {
		t.Error("Leave did not remove daemon.json")
	}
}

// The client of a daemon with TLS accepts only the certificate that daemon.json names.
func TestPresencePinsTheCertificate(t *testing.T) {
	r := newRig(t, nil, func(_ *rig, o *Options) { o.Cert, o.Key = certificate(t, t.TempDir()) })
	l, url, err := r.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := contextOf(t)
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx, l) }()
	defer func() { stop(); <-ended }()
	h := home.At(t.TempDir())
	for print, want := range map[string]bool{r.Certificate(): true, Fingerprint([]byte("another")): false} {
		file, err := WriteKey(h, r.admin)
		if err != nil {
			t.Fatal(err)
		}
		p := Presence{URL: url, KeyFile: file, Certificate: print}
		if other, err := Announce(t.Context(), h, p); other != nil || err != nil {
			t.Fatal(other, err)
		}
		c, err := FindDaemon(h)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Alive(t.Context()); got != want {
			t.Errorf("with the certificate %.8s, Alive returned %v, want %v", print, got, want)
		}
		Leave(h, p)
	}
}
