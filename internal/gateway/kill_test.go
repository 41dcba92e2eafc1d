package gateway

import (
	"bufio"
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// The kill test starts this test binary as worker processes that call tools in a loop. It kills the workers with
// SIGKILL at random moments.
const (
	envWorker = "AMBIT_TEST_WORKER_HOME"
	envStore  = "AMBIT_TEST_WORKER_STORE"
	workers   = 4
	dayCap    = "250.00"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envWorker); dir != "" {
		if at := os.Getenv(envStage); at != "" {
			dieAt(at, home.At(dir), os.Getenv(envStore))
		}
		work(home.At(dir), os.Getenv(envStore))
		return
	}
	goleak.VerifyTestMain(m)
}

// outside records the effects of calls in a file that survives killed processes. One line
// is one effect.
type outside struct{ file *os.File }

func (o outside) Act(_ context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	key := c.IdempotencyKey
	if key == "" {
		key = "-"
	}
	// A single small write to a file opened with O_APPEND does not interleave with writes by other processes.
	if _, err := fmt.Fprintf(o.file, "%s %s %s %s\n", c.ID, t.Name, key, c.Arguments); err != nil {
		return call.Result{}, call.Refuse("act", call.ServerUnavailable, "%v", err)
	}
	return call.Result{Raw: jsontext.Value(`{"content":[]}`)}, nil
}

func spender() *agent.Agent {
	a := behaviorAgent()
	a.Tools = nil
	for name, policy := range map[string]agent.ToolPolicy{
		"send": {}, "repeat": {Idempotent: true}, "pay": {Spend: &agent.Cap{PerCall: "1", PerDay: dayCap}},
	} {
		a.Tools = append(a.Tools, agent.Tool{Name: name, SideEffect: agent.Write, Policy: policy, Binding: agent.OnServer{Alias: "s"}})
	}
	a.Tools = append(a.Tools, agent.Tool{Name: "look", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "s"}})
	return a
}

// work makes calls until the worker is killed. It prints a line to stdout for every answered call.
func work(h home.Home, storeURL string) {
	ctx := context.Background()
	b, err := store.OpenLong(ctx, h, storeURL)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	file, err := os.OpenFile(filepath.Join(h.Dir(), "effects"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	g := New(spender(), Options{Binding: outside{file}, Store: b})
	if err := g.Recover(ctx); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			for {
				c := &call.Call{ID: NewID(), Principal: "me", Arguments: jsontext.Value(`{"amount":0.25}`)}
				c.Tool = []string{"send", "repeat", "pay", "look"}[rand.IntN(4)]
				if rand.IntN(2) == 0 {
					c.IdempotencyKey = NewID()
				}
				_, err := g.Call(ctx, c)
				if r, ok := err.(*call.Refusal); ok && r.Code == call.AmountExceeded {
					continue
				}
				if err != nil {
					fmt.Println("failed", c.ID, err)
					os.Exit(1)
				}
				fmt.Println("answered", c.ID)
			}
		})
	}
	calls.Wait()
}

// TestKill kills workers at random moments, and then compares the effects of their calls with the journal.
func TestKill(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		if !strings.HasPrefix(place, "postgres://") {
			place = "" // the default store in the workers' home directory
		}
		testKill(t, place)
	})
}

func testKill(t *testing.T, storeURL string) {
	h := home.At(t.TempDir())
	var mu sync.Mutex
	answered := map[string]bool{}
	killed := 0
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				done := killed >= kills
				killed++
				mu.Unlock()
				if done {
					return
				}
				ids, problem := liveAndDie(h, storeURL)
				mu.Lock()
				for _, id := range ids {
					answered[id] = true
				}
				mu.Unlock()
				if problem != "" {
					t.Error(problem)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	b, err := store.Open(t.Context(), h, storeURL)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	file, err := os.OpenFile(filepath.Join(h.Dir(), "effects"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// PostgreSQL may need a moment to notice that a client has died.
	g := New(spender(), Options{Binding: outside{file}, Store: b})
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := g.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if underWay(t, b) == 0 || time.Now().After(until) {
			break
		}
	}
	judgeKilled(t, h, b, answered)
}

// underWay returns the number of unfinished calls.
func underWay(t *testing.T, b *store.Store) (open int64) {
	t.Helper()
	err := b.DB.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT COUNT(*) FROM calls WHERE state <> 'unknown'`, nil, func(row state.Row) error { return row.Scan(&open) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// liveAndDie runs one worker, and kills it after a random number of answers. If that number is 0, the worker is
// killed while it starts.
func liveAndDie(h home.Home, storeURL string) (ids []string, problem string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envWorker+"="+h.Dir(), envStore+"="+storeURL)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err.Error()
	}
	lives := rand.IntN(40)
	lines := bufio.NewScanner(out)
	// A worker that hangs is killed after a minute.
	later := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	for lives > 0 && lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		if verb == "failed" {
			problem = "a worker failed: " + rest
			break
		}
		ids = append(ids, rest)
		lives--
	}
	later.Stop()
	// The delay is random, so that the worker is also killed in the middle of a call.
	time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
	for lines.Scan() {
		if verb, rest, _ := strings.Cut(lines.Text(), " "); verb == "answered" {
			ids = append(ids, rest)
		} else if problem == "" {
			problem = "a worker failed: " + rest
		}
	}
	_ = cmd.Wait()
	return ids, problem
}

// effect matches a complete line. The kernel may cut off the write of a killed process at the end of a page. Such a
// fragment is followed by the line of another process, and is not an effect.
var effect = regexp.MustCompile(`([0-9a-f]{32}) (\w+) (\S+) \{.*\}\n`)

// judgeKilled compares the effects of the calls, the answers, the store and the journal.
func judgeKilled(t *testing.T, h home.Home, b *store.Store, answered map[string]bool) {
	text, err := os.ReadFile(filepath.Join(h.Dir(), "effects"))
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]int{}
	keys := map[string]string{}
	spent := new(big.Rat)
	for _, f := range effect.FindAllStringSubmatch(string(text), -1) {
		id, tool, key := f[1], f[2], f[3]
		sent[id]++
		switch {
		case tool == "repeat" && sent[id] == 2 && keys[id] == key:
		case sent[id] > 1:
			t.Errorf("a call of %s was sent %d times, with keys %s and %s", tool, sent[id], keys[id], key)
		}
		keys[id] = key
		if tool == "pay" {
			spent.Add(spent, big.NewRat(1, 4))
		}
	}
	most, _ := new(big.Rat).SetString(dayCap)
	if spent.Cmp(most) > 0 {
		t.Errorf("spent %s of %s", spent.FloatString(2), dayCap)
	}

	decisions := map[string][]journal.Decision{}
	entries, err := b.Journal.Show(t.Context(), journal.Filter{Limit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		decisions[e.Record.Call] = append(decisions[e.Record.Call], e.Record.Decision)
	}
	unknown := 0
	for id := range sent {
		// An interrupted read has no effect, so the journal need not contain it.
		if len(decisions[id]) == 0 && !strings.Contains(string(text), id+" look ") {
			t.Errorf("call %s was sent, but is not in the journal", id)
		}
	}
	for id, d := range decisions {
		if len(d) != 1 {
			t.Errorf("call %s has %d journal records, want 1: %v", id, len(d), d)
		}
		if d[0] == journal.Allow && sent[id] == 0 {
			t.Errorf("the journal records call %s as made, but the call was not sent", id)
		}
		if d[0] == journal.Unknown {
			unknown++
		}
	}
	for id := range answered {
		if d := decisions[id]; len(d) != 1 || d[0] != journal.Allow {
			t.Errorf("call %s was answered, but the journal has the decisions %v; want one allow", id, d)
		}
	}
	report, err := b.Journal.Verify(t.Context(), journal.Check{})
	if err != nil || !report.OK {
		t.Errorf("verifying the journal failed: %+v, %v", report, err)
	}
	if open := underWay(t, b); open != 0 {
		t.Errorf("%d calls are still unfinished after recovery", open)
	}
	t.Logf("killed %d workers; %d calls sent, %d answered, %d unknown; spent %s of %s; %d journal records",
		kills, len(sent), len(answered), unknown, spent.FloatString(2), dayCap, report.Records)
	if len(sent) == 0 || unknown == 0 {
		t.Error("the test proves nothing: no call was sent, or no worker was killed during a call")
	}
}
