//go:build prove

package soak

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// TestMain makes the test binary run as a tool server if its first argument is tool-server.
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
	s := mcp.NewServer(&mcp.Implementation{Name: "soak", Version: "1.0.0"}, nil)
	for _, name := range []string{"look", "change"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	}
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

var aliases = []string{"one", "two", "frail"}

// rig is an agent that is served over HTTP. Its three tool servers are copies of this test binary.
type rig struct {
	t      *testing.T
	marker string // a text that identifies the servers' command lines
	store  *store.Store
	agent  *host.Agent
	url    string
	client *http.Client
	looks  int64 // calls that check whether the servers were restarted
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, marker: "soak-" + crand.Text()}
	dir := t.TempDir()
	h := home.At(filepath.Join(dir, "home"))
	var err error
	if r.store, err = store.Open(t.Context(), h, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.store.Close() })
	r.store.Journal.StartWAL() // serve the agent as a daemon does
	r.agent = host.Start(t.Context(), r.declare(dir), host.Options{Home: h, Version: "soak", Store: r.store})
	t.Cleanup(r.agent.Close)
	if err := r.agent.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	face := front.NewHTTP(r.agent.Front(), front.HTTPOptions{Keys: r.store.Keys})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// These are the same settings as the daemon's.
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { face.Serve(w, req, "soak", nil) }),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		face.Close()
		_ = server.Close()
		<-served
	})
	r.url, r.client = "http://"+l.Addr().String(), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

func (r *rig) declare(dir string) *manifest.Manifest {
	r.t.Helper()
	servers := []any{}
	for _, alias := range aliases {
		servers = append(servers, map[string]any{
			"alias": alias, "transport": "stdio", "command": os.Args[0], "args": []string{"tool-server", r.marker, alias}, "version": "1.0.0",
			"package_digest": "sha256:" + strings.Repeat("0", 64),
			"tools":          []any{map[string]any{"name": "look", "side_effect_class": "read"}, map[string]any{"name": "change", "side_effect_class": "write"}},
		})
	}
	doc, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/soak", "allowed_side_effects": []string{"read", "write"}, "servers": servers,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(dir, "soak.json")
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		r.t.Fatal(err)
	}
	m, err := manifest.Load(path, manifest.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// processes returns the processes of the server with this alias, or of all servers if the alias is empty. The
// processes of a server are its program and its sandbox.
func (r *rig) processes(alias string) (found []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range list {
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), "\x00"+r.marker+"\x00"+alias) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// kill kills servers until stop is called, and counts the kills.
func (r *rig) kill(kills map[string]int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, alias := range aliases {
		// ambit restarts a server without delay if the server is killed less often than once every
		// 12 seconds.
		pause := func() time.Duration { return 14*time.Second + rand.N(8*time.Second) }
		if alias == "frail" {
			pause = func() time.Duration { return rand.N(time.Second) }
		}
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause()):
				}
				pids := r.processes(alias)
				if len(pids) == 0 {
					continue
				}
				if syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL) == nil {
					mu.Lock()
					kills[alias]++
					mu.Unlock()
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	r.t.Cleanup(stop)
	return stop
}

const workers = 16

// load makes calls for the given time. It divides the time into len(into) parts, and counts each call in the
// part in which the call began.
func (r *rig) load(into []counts, span time.Duration) {
	var wg sync.WaitGroup
	start := time.Now()
	for i := range workers {
		do := r.direct
		if i%2 == 1 {
			do = r.post
		}
		wg.Go(func() {
			for n := 0; ; n++ {
				part := int(time.Since(start) * time.Duration(len(into)) / span)
				if part >= len(into) {
					return
				}
				alias := aliases[n%2]
				if i < 2 {
					alias = "frail" // only two workers call this server, because most of its calls are refused
				}
				c := into[part][alias]
				c.made.Add(1)
				switch why := do(alias+"_"+[]string{"look", "change"}[n/2%2], fmt.Sprintf(`{"text":"%d %d"}`, i, n)); {
				case why == "":
					c.answered.Add(1)
				case strings.Contains(why, "next attempt in"):
					c.rested.Add(1)
					c.refused.Add(1)
					time.Sleep(10 * time.Millisecond) // a client waits before it retries
				case strings.HasPrefix(why, string(call.ServerUnavailable)), strings.HasPrefix(why, string(call.OutcomeUnknown)):
					c.refused.Add(1)
				default:
					r.t.Errorf("a call of %s failed: %s", alias, why)
					return
				}
			}
		})
	}
	wg.Wait()
}

// direct makes a call through the gateway. It returns "" if the call succeeded, and otherwise the code and the
// message of the refusal.
func (r *rig) direct(tool, args string) string {
	_, err := r.agent.Gateway().Call(context.Background(), &call.Call{Tool: tool, Arguments: []byte(args), Principal: "soak"})
	if refusal, ok := errors.AsType[*call.Refusal](err); ok {
		return string(refusal.Code) + ": " + refusal.Message
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// post is like direct, but makes the call over HTTP.
func (r *rig) post(tool, args string) string {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequest(http.MethodPost, r.url, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		req.Header.Set(name, value)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	var answer struct {
		Error  json.RawMessage
		Result struct {
			IsError bool
			Content []text
		}
	}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Error != nil || len(answer.Result.Content) != 1 {
		return fmt.Sprintf("%d %s", resp.StatusCode, raw)
	}
	if answer.Result.IsError {
		return answer.Result.Content[0].Text
	}
	return ""
}

// used contains the amounts of the resources that grow if there is a leak.
type used struct {
	goroutines, files, children int
	heap, resident              uint64
}

// measure returns the smallest values over some time, because closed resources take a moment to disappear.
func (r *rig) measure() used {
	r.t.Helper()
	r.client.CloseIdleConnections()
	least := r.look()
	for calm := 0; calm < 20; calm++ {
		time.Sleep(50 * time.Millisecond) // poll interval
		now := r.look()
		if now.goroutines < least.goroutines || now.files < least.files {
			calm = 0
		}
		least = used{
			goroutines: min(least.goroutines, now.goroutines), files: min(least.files, now.files), children: min(least.children, now.children),
			heap: min(least.heap, now.heap), resident: min(least.resident, now.resident),
		}
	}
	return least
}

func (r *rig) look() used {
	r.t.Helper()
	debug.FreeOSMemory()
	samples := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		r.t.Fatal(err)
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		r.t.Fatal(err)
	}
	pages, err := strconv.ParseUint(string(bytes.Fields(statm)[1]), 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return used{
		goroutines: int(samples[0].Value.Uint64()), files: len(open), children: len(r.processes("")),
		heap: samples[1].Value.Uint64(), resident: pages * uint64(os.Getpagesize()),
	}
}
