package dispatch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// These tests run the test binary as worker processes and kill the workers with SIGKILL.
const (
	envPlace = "AMBIT_TEST_DISPATCH_PLACE"
	envDir   = "AMBIT_TEST_DISPATCH_DIR"
	envPoint = "AMBIT_TEST_DISPATCH_POINT"
)

// The points at which a worker can stop and wait to be killed.
const (
	atGateway = "gateway" // the worker has fetched the job
	atCall    = "call"    // the worker is about to make the call, and the call would claim the intent
	atWork    = "work"    // the program runs
	atAnswer  = "answer"  // the answer is stored, but the River job is not completed yet
)

// outside returns a program with a lasting effect: it appends the id of the call to a file.
func outside(dir string) act {
	return func(ctx context.Context, c *call.Call) (call.Result, error) {
		f, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, c.ID)
			f.Close()
		}
		if err != nil {
			return call.Result{}, call.Refuse("act", call.ServerUnavailable, "%v", err)
		}
		<-time.After(rand.N(30 * time.Millisecond)) // long enough that some programs are killed during a run
		return answer(ctx, c)
	}
}

func effects(t *testing.T, dir string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, id := range strings.Fields(string(text)) {
		seen[id]++
	}
	return seen
}

// mortal is a gateway that stops its worker at a given point.
type mortal struct {
	*gateway.Gateway
	point string
}

// here marks the point at which the test kills the worker. It prints a line and then blocks.
func here() {
	fmt.Println("here")
	select {}
}

func (m mortal) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	if m.point == atCall {
		here()
	}
	result, err := m.Gateway.Call(ctx, c)
	if m.point == atAnswer {
		here()
	}
	return result, err
}

type mortalGateways struct {
	gateways map[string]mortal
	mu       sync.Mutex
	// passes is how many calls of Open succeed before the worker stops.
	passes int
}

func (m *mortalGateways) Digests() []string {
	var all []string
	for digest := range m.gateways {
		all = append(all, digest)
	}
	return all
}

func (m *mortalGateways) Open(digest string) (Gateway, func(), bool) {
	d, ok := m.gateways[digest]
	m.mu.Lock()
	m.passes--
	stop := ok && d.point == atGateway && m.passes < 0
	m.mu.Unlock()
	if stop {
		here()
	}
	return d, func() {}, ok
}

// live is the main function of a worker. If a point is set, live submits an intent itself and stops
// at that point. Otherwise it keeps running.
func live(place string) {
	ctx := context.Background()
	dir, point := os.Getenv(envDir), os.Getenv(envPoint)
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
	}
	keys, err := identity.OpenKeys(filepath.Join(dir, "root"))
	fail(err)
	db, err := statetest.OpenPlace(ctx, place)
	fail(err)
	b := store.New(db, keys, nil)
	m := &mortalGateways{gateways: map[string]mortal{}}
	if urlOf(place) == "" {
		m.passes = 1 // one more call, because Submit calls Open too
	}
	for _, network := range []agent.NetworkAccess{agent.NetworkOff, agent.NetworkFull} {
		a := echo(network, 0)
		work := outside(dir)
		g := gateway.New(a, gateway.Options{Store: b, Participants: []gateway.Participant{Participant(b, a, false)}, Binding: act(func(ctx context.Context, c *call.Call) (call.Result, error) {
			result, err := work(ctx, c)
			if point == atWork {
				here()
			}
			return result, err
		})})
		fail(g.Recover(ctx))
		m.gateways[a.Digest] = mortal{g, point}
	}
	d, err := Open(ctx, Options{Store: b, URL: urlOf(place), Gateways: m, Concurrency: 4, Daemon: true, Log: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%s: "+format+"\n", append([]any{b.DB.Owner()}, args...)...)
	}})
	fail(err)
	fmt.Println("ready")
	if point != "" {
		network, id, _ := strings.Cut(strings.TrimSpace(readLine()), " ")
		_, err := d.Submit(ctx, Request{ID: id, Agent: echo(agent.NetworkAccess(network), 0), Name: "echo", Text: "x", Principal: "me@local"})
		fail(err)
	}
	select {}
}

func readLine() string {
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		os.Exit(1)
	}
	return line
}

// workerProcess is a running worker.
type workerProcess struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startWorker(t testing.TB, place, dir, point string) *workerProcess {
	t.Helper()
	w := beginWorker(t, place, dir, point)
	w.says(t, "ready")
	return w
}

// beginWorker starts a worker and does not wait until it is ready.
func beginWorker(t testing.TB, place, dir, point string) *workerProcess {
	t.Helper()
	w := &workerProcess{Cmd: exec.Command(os.Args[0])}
	w.Env = append(os.Environ(), envPlace+"="+place, envDir+"="+dir, envPoint+"="+point)
	if testing.Verbose() {
		w.Stderr = os.Stderr // the log shows which worker took over which intent
	}
	out, err := w.StdoutPipe()
	if err == nil {
		w.in, err = w.StdinPipe()
	}
	if err == nil {
		err = w.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	w.out = bufio.NewScanner(out)
	t.Cleanup(func() { _ = w.Process.Kill(); _ = w.Wait() })
	return w
}

func (w *workerProcess) says(t testing.TB, word string) {
	t.Helper()
	if !w.out.Scan() || w.out.Text() != word {
		t.Fatalf("the worker printed %q, not %q", w.out.Text(), word)
	}
}

// kill kills a worker and returns the rest of its output.
func (w *workerProcess) kill() string {
	_ = w.Process.Kill()
	said := ""
	for w.out.Scan() {
		said += w.out.Text()
	}
	_ = w.Wait()
	return said
}

// TestDeath kills a worker at each point and checks what another worker does with the intent.
func TestDeath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		point    string
		network  agent.NetworkAccess
		state    State
		attempts int
		effects  int
		journal  []journal.Decision
	}{
		{atGateway, agent.NetworkFull, Done, 1, 1, []journal.Decision{journal.Allow}},
		{atCall, agent.NetworkFull, Done, 1, 1, []journal.Decision{journal.Allow}},
		{atWork, agent.NetworkOff, Done, 2, 2, []journal.Decision{journal.Allow}},
		{atWork, agent.NetworkFull, Unknown, 1, 1, []journal.Decision{journal.Unknown}},
		{atAnswer, agent.NetworkFull, Done, 1, 1, []journal.Decision{journal.Allow}},
	} {
		t.Run(tt.point+" "+string(tt.network), func(t *testing.T) {
			each(t, func(t *testing.T, place, dir string) {
				w := startWorker(t, place, dir, tt.point)
				id := gateway.NewID()
				if _, err := fmt.Fprintln(w.in, tt.network, id); err != nil {
					t.Fatal(err)
				}
				w.says(t, "here")
				w.kill()
				r := newRig(t, place, dir, echo(tt.network, 0), outside(dir), Options{Daemon: true})
				i := r.wait(id)
				if i.State != tt.state || i.Attempts != tt.attempts {
					t.Errorf("the intent is %s after %d attempts (refusal %v), want %s after %d attempts", i.State, i.Attempts, i.Refusal, tt.state, tt.attempts)
				}
				if got := effects(t, dir)[id]; got != tt.effects {
					t.Errorf("the program had %d effects, want %d", got, tt.effects)
				}
				if err := r.gate.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := decisions(t, r.store, id); !slices.Equal(got, tt.journal) {
					t.Errorf("the journal has %v, want %v", got, tt.journal)
				}
			})
		})
	}
}

// TestKills submits intents and kills workers at random moments, even while they start. No intent
// may be lost or answered twice, and only repeatable intents may run twice.
func TestKills(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		asker := newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
		var workers [4]*workerProcess
		for n := range workers {
			workers[n] = startWorker(t, place, dir, "")
		}
		started := len(workers) // the number of workers that became ready
		stop := make(chan struct{})
		var asked []*Intent
		submitted := make(chan error, 1)
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					submitted <- nil
					return
				case <-time.After(askEvery):
				}
				network := []agent.NetworkAccess{agent.NetworkOff, agent.NetworkFull}[n%2]
				i, err := asker.Submit(context.Background(), Request{Agent: echo(network, 0), Name: "echo", Text: "x", Principal: "me@local"})
				if err != nil {
					submitted <- err
					return
				}
				asked = append(asked, i)
			}
		}()
		begun, ticker := time.Now(), time.NewTicker(killEvery)
		defer ticker.Stop()
		for n := range kills {
			<-ticker.C
			old := workers[n%len(workers)]
			workers[n%len(workers)] = beginWorker(t, place, dir, "")
			switch said := old.kill(); {
			case said == "ready":
				started++
			case said != "":
				t.Errorf("a killed worker printed %q, want nothing or ready", said)
			}
		}
		took := time.Since(begun)
		close(stop)
		if err := <-submitted; err != nil {
			t.Fatal(err)
		}
		for _, i := range asked {
			asker.wait(i.ID)
		}
		done := effects(t, dir) // wait until all intents have ended
		states := map[State]int{}
		again := 0
		for _, i := range asked {
			got := asker.wait(i.ID)
			states[got.State]++
			repeatable := i.repeatable
			switch {
			case got.State != Done && (got.State != Unknown || repeatable):
				t.Errorf("intent %s is %s: %v", i.ID, got.State, got.Refusal)
			case !repeatable && done[i.ID] > 1:
				t.Errorf("intent %s ran %d times, but is not repeatable", i.ID, done[i.ID])
			}
			if got.Attempts > 1 {
				again++
			}
			allowed := 0
			for _, d := range decisions(t, asker.store, i.ID) {
				if d == journal.Allow {
					allowed++
				}
			}
			if want := states[Done]; got.State == Done && allowed != 1 {
				t.Errorf("%s was answered %d times (%d done)", i.ID, allowed, want)
			}
		}
		t.Logf("%d intents and %d kills in %v; %d workers became ready: %v; %d intents ran again", len(asked), kills, took.Round(time.Second), started, states, again)
	})
}
