//go:build prove

// Package soak calls an agent at full load for minutes while its servers crash.
package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/host"
	"github.com/ambit-run/ambit/internal/journal"
	"github.com/ambit-run/ambit/manifest"
)

// The test runs itself again as a tool server that crashes now and then.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "tool-server" {
		serve()
		return
	}
	os.Exit(m.Run())
}

type text struct {
	Text string `json:"text"`
}

func serve() {
	s := mcp.NewServer(&mcp.Implementation{Name: "frail", Version: "1.0.0"}, nil)
	for _, name := range []string{"look", "change"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			if rand.IntN(2000) == 0 {
				os.Exit(1)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	}
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

// used is what a leak would make grow.
type used struct {
	goroutines, files int
	heap              uint64
}

func measure(t *testing.T) used {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return used{runtime.NumGoroutine(), len(open), m.HeapAlloc}
}

// TestSoak runs for AMBIT_SOAK, five minutes if that is not set.
func TestSoak(t *testing.T) {
	span := 5 * time.Minute
	if s := os.Getenv("AMBIT_SOAK"); s != "" {
		var err error
		if span, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	servers := []any{}
	for _, alias := range []string{"one", "two", "three"} {
		servers = append(servers, map[string]any{
			"alias": alias, "transport": "stdio", "command": os.Args[0], "args": []string{"tool-server"}, "version": "1.0.0",
			"package_digest": "sha256:" + strings.Repeat("0", 64),
			"tools":          []any{map[string]any{"name": "look", "side_effect_class": "read"}, map[string]any{"name": "change", "side_effect_class": "write"}},
		})
	}
	manifestText, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/soak", "allowed_side_effects": []string{"read", "write"}, "servers": servers,
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "soak.json")
	if err := os.WriteFile(path, manifestText, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Load(path, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := home.At(filepath.Join(dir, "home"))
	b, err := books.Open(t.Context(), h, "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a := host.Start(t.Context(), m, host.Options{Home: h, Version: "soak", Books: b})
	defer a.Close()
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}

	var made, answered, refused atomic.Int64
	load := func(span time.Duration) {
		var wg sync.WaitGroup
		end := time.Now().Add(span)
		for i := range 16 {
			wg.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					tool := []string{"one_look", "two_change", "three_look", "one_change", "two_look"}[(i+n)%5]
					args, _ := jsontext.AppendFormat(nil, fmt.Appendf(nil, `{"text":"%d %d"}`, i, n))
					made.Add(1)
					_, err := a.Gateway().Call(context.Background(), &call.Call{Tool: tool, Arguments: args, Principal: "soak"})
					switch r, _ := errors.AsType[*call.Refusal](err); {
					case err == nil:
						answered.Add(1)
					case r != nil && (r.Code == call.ServerUnavailable || r.Code == call.OutcomeUnknown):
						refused.Add(1)
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	load(span / 5) // everything that grows once has grown
	before := measure(t)
	load(span * 4 / 5)
	after := measure(t)
	if after.goroutines > before.goroutines+20 || after.files > before.files+20 || after.heap > before.heap+before.heap/2+(8<<20) {
		t.Errorf("something leaks: %+v before, %+v after", before, after)
	}
	report, err := b.Journal.Verify(t.Context(), journal.Check{})
	if err != nil || !report.OK || report.Records != made.Load() {
		t.Errorf("%d calls made, and the journal has %+v, %v", made.Load(), report, err)
	}
	t.Logf("%v: %d calls, %d answered, %d met a crash; before %+v, after %+v", span, made.Load(), answered.Load(), refused.Load(), before, after)
	if refused.Load() == 0 {
		t.Error("no server crashed")
	}
}
