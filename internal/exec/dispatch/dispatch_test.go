package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

func jsonUnmarshal(b []byte, into any) error { return json.Unmarshal(b, into) }

// TestIntent follows intents from request to answer, on both engines.
func TestIntent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		failing := call.Refuse("act", call.ProgramFailed, "exit_code: no luck")
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
			if strings.HasPrefix(textOf(c), "fail") {
				return call.Result{}, failing
			}
			return answer(ctx, c)
		}, Options{Concurrency: 2})
		asked := r.submit("hello", High)
		i := r.wait(asked.ID)
		if i.State != Done || i.Attempts != 1 || i.Started.IsZero() || i.Ended.Before(i.Started) || i.Principal != "me@local" || !strings.Contains(string(i.Answer()), `"hello high"`) {
			t.Errorf("intent = %+v with the answer %s, want done with the answer to hello", i, i.Answer())
		}
		if got := decisions(t, r.store, i.ID); !slices.Equal(got, []journal.Decision{journal.Allow}) {
			t.Errorf("the journal has the decisions %v", got)
		}
		i = r.wait(r.submit("fail", "").ID)
		if i.State != Failed || i.Refusal == nil || *i.Refusal != *failing || i.Result != nil {
			t.Errorf("intent = %+v, want the refusal of the program", i)
		}
		text, err := json.Marshal(i)
		if err != nil || !strings.Contains(string(text), `"error":{"code":"program_failed"`) || !strings.Contains(string(text), `"intent_id":"`+UUID(i.ID)) {
			t.Errorf("error %v, JSON %s; want the refusal and the id as a UUID", err, text)
		}
		if _, err := r.Get(t.Context(), strings.Repeat("0", 32)); !errors.Is(err, ErrNoIntent) {
			t.Errorf("error = %v, want ErrNoIntent", err)
		}
		for f, want := range map[Filter]int{{Limit: 10}: 2, {Limit: 1}: 1, {State: Failed, Limit: 10}: 1, {Principal: "you", Limit: 10}: 0, {Agent: "echo@local", Limit: 10}: 2} {
			if found, err := r.List(t.Context(), f); err != nil || len(found) != want {
				t.Errorf("List(%+v) returned error %v and %d intents, want %d", f, err, len(found), want)
			}
		}
		if _, err := r.Submit(t.Context(), Request{Agent: &agent.Agent{}}); !errors.Is(err, ErrNotProgram) {
			t.Errorf("error = %v, want ErrNotProgram", err)
		}
	})
}

// TestOrder fills the queue and checks the order of the intents.
func TestOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		var mu sync.Mutex
		var order []string
		block := make(chan struct{})
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
			if strings.HasPrefix(textOf(c), "first") {
				<-block
			}
			mu.Lock()
			order = append(order, strings.Fields(textOf(c))[0])
			mu.Unlock()
			return answer(ctx, c)
		}, Options{Concurrency: 1})
		first := r.submit("first", Low)
		until(t, "the first intent runs", func() bool { i, err := r.Get(t.Context(), first.ID); return err == nil && i.State == Running })
		var last []*Intent
		for _, text := range []string{"low1 low", "normal1 normal", "low2 low", "high1 high", "normal2 normal", "high2 high"} {
			name, p, _ := strings.Cut(text, " ")
			last = append(last, r.submit(name, Priority(p)))
		}
		close(block)
		for _, i := range last {
			r.wait(i.ID)
		}
		if want := []string{"first", "high1", "high2", "normal1", "normal2", "low1", "low2"}; !slices.Equal(order, want) {
			t.Errorf("the intents ran in the order %v, want %v", order, want)
		}
	})
}

// TestNoStarvation checks that an intent of low priority gets its turn while the queue
// is full of urgent intents.
func TestNoStarvation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		var r *rig
		var lowDone atomic.Bool
		more := func() error {
			_, err := r.Submit(context.Background(), Request{Agent: r.agent, Name: "echo", Text: "high", Priority: High, Principal: "me@local"})
			return err
		}
		ready := make(chan struct{})
		r = newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
			<-ready
			if strings.HasPrefix(textOf(c), "low") {
				lowDone.Store(true)
			} else if !lowDone.Load() {
				// Submit the next intent before this one ends, so that an urgent intent is always waiting.
				if err := more(); err != nil {
					return call.Result{}, call.Refuse("act", call.ProgramFailed, "%v", err)
				}
			}
			return answer(ctx, c)
		}, Options{Concurrency: 1, Step: 200 * time.Millisecond})
		for range 5 {
			if err := more(); err != nil {
				t.Fatal(err)
			}
		}
		low := r.submit("low", Low)
		close(ready)
		i := r.wait(low.ID)
		lowDone.Store(true)
		if i.State != Done {
			t.Errorf("the intent of low priority is %+v, want done", i)
		}
	})
}

// TestBegin checks that an intent can be claimed only once.
func TestBegin(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
		i := r.submit("x", "")
		for n, want := range []bool{true, false} {
			var stopped *call.Refusal
			err := r.store.DB.Write(t.Context(), func(tx state.Tx) (err error) {
				stopped, err = Participant(r.store, nil, false).Begin(tx, &call.Call{ID: i.ID})
				return err
			})
			if err != nil || (stopped == nil) != want {
				t.Errorf("Begin %d: error %v, refusal %v; want the claim to succeed: %v", n, err, stopped, want)
			}
		}
		// A call that is not an intent is accepted.
		err := r.store.DB.Write(t.Context(), func(tx state.Tx) error {
			stopped, err := Participant(r.store, nil, false).Begin(tx, &call.Call{ID: strings.Repeat("0", 32)})
			if stopped != nil {
				t.Error(stopped)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestBudget checks that an intent runs at low priority if the agent's hourly budget is used up.
func TestBudget(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		r := newRig(t, place, dir, echo(agent.NetworkOff, 2), answer, Options{})
		// Each run costs one credit or more, depending on its duration.
		for n := range 4 {
			used, err := r.Spent(t.Context(), r.agent.ID)
			if err != nil || used < int64(n) {
				t.Fatalf("before run %d: %d credits are used, %v", n, used, err)
			}
			want := used >= 2
			i := r.wait(r.submit("x", High).ID)
			if i.State != Done || i.OverBudget != want || i.Priority != High {
				t.Errorf("run %d: intent = %+v, want done and over budget: %v", n, i, want)
			}
			if low := strings.Contains(string(i.Answer()), `"x low"`); low != want {
				t.Errorf("run %d: the program received the wrong priority: %s", n, i.Answer())
			}
		}
		// Runs from more than an hour ago do not count.
		err := r.store.DB.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE credits SET at = at - $1`, time.Hour.Microseconds())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if i := r.wait(r.submit("x", High).ID); i.OverBudget {
			t.Error("credits from before the last hour count")
		}
	})
}

func TestCredits(t *testing.T) {
	for ran, want := range map[time.Duration]int64{0: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90} {
		if got := credits(ran); got != want {
			t.Errorf("credits(%v) = %d, want %d", ran, got, want)
		}
	}
}

// TestCancel cancels waiting and running intents, from this process and another.
func TestCancel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		began := make(chan struct{}, 10)
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
			began <- struct{}{}
			<-ctx.Done()
			return call.Result{}, call.Refuse("act", call.ProgramFailed, "cancelled: it was ended")
		}, Options{Concurrency: 1, Daemon: true})
		elsewhere := newRig(t, place, dir, r.agent, nil, Options{})
		running := r.submit("a", "")
		<-began
		waiting := r.submit("b", "")
		for _, i := range []*Intent{waiting, running} {
			if err := elsewhere.Cancel(t.Context(), i.ID); err != nil {
				t.Fatal(err)
			}
		}
		for i, attempts := range map[*Intent]int{waiting: 0, running: 1} {
			if got := r.wait(i.ID); got.State != Cancelled || got.Attempts != attempts || got.Refusal == nil {
				t.Errorf("intent = %+v, want cancelled", got)
			}
		}
		// A caller that stops waiting cancels the intent.
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-began; cancel() }()
		i, err := r.Call(ctx, Request{Agent: r.agent, Name: "echo", Text: "c", Principal: "me@local"}, nil)
		if err != nil || i.State != Cancelled {
			t.Errorf("error %v, intent %+v; want cancelled", err, i)
		}
	})
}

// TestTwice checks that an intent runs only once even if River delivers its job twice.
func TestTwice(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		var acts atomic.Int64
		r := newRig(t, place, dir, echo(agent.NetworkFull, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
			acts.Add(1)
			return answer(ctx, c)
		}, Options{Concurrency: 4})
		var all []*Intent
		for range 20 {
			i := r.submit("x", "")
			all = append(all, i)
			again := *i
			if err := r.store.DB.Write(t.Context(), func(tx state.Tx) error { return insertJob(tx, &again) }); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range all {
			if got := r.wait(i.ID); got.State != Done || got.Attempts != 1 {
				t.Errorf("intent = %+v, want done after 1 attempt", got)
			}
		}
		// Workers fetch and complete both jobs of each intent.
		until(t, "River has no job left", func() bool { return r.jobs("completed") == 40 })
		if acts.Load() != 20 {
			t.Errorf("the program ran %d times, want 20", acts.Load())
		}
	})
}

// jobs returns the number of River jobs with this status.
func (r *rig) jobs(status string) (n int64) {
	r.t.Helper()
	err := r.store.DB.Read(r.t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT count(*) FROM river_job WHERE state::text = $1`, []any{status}, func(row state.Row) error { return row.Scan(&n) })
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// TestNoWorker checks an intent for which every worker has a different manifest or root key. The
// intent stays queued and is shown as no_worker.
func TestNoWorker(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, place, dir string) {
		newer := echo(agent.NetworkOff, 0)
		newer.Digest = "sha256:" + strings.Repeat("ef", 32)
		newRig(t, place, dir, newer, answer, Options{})
		newRig(t, place, t.TempDir(), echo(agent.NetworkOff, 0), answer, Options{})
		r := newRig(t, place, dir, echo(agent.NetworkOff, 0), nil, Options{})
		i := r.submit("x", "")
		until(t, "the intent is shown as no_worker", func() bool { got, err := r.Get(t.Context(), i.ID); return err == nil && got.State == NoWorker })
		newRig(t, place, dir, echo(agent.NetworkOff, 0), answer, Options{})
		if got := r.wait(i.ID); got.State != Done {
			t.Errorf("intent = %+v, want done", got)
		}
	})
}

// TestClose checks that Close returns a repeatable running intent to the queue. Any other running
// intent ends as unknown.
func TestClose(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, place, dir string) {
		for network, want := range map[agent.NetworkAccess]State{agent.NetworkOff: Queued, agent.NetworkFull: Unknown} {
			began := make(chan struct{})
			r := newRig(t, place, dir, echo(network, 0), func(ctx context.Context, c *call.Call) (call.Result, error) {
				close(began)
				<-ctx.Done()
				refusal := call.Refuse("act", call.ProgramFailed, "cancelled: it was ended")
				if network != agent.NetworkOff {
					refusal.Effect = call.EffectUnknown
				}
				return call.Result{}, refusal
			}, Options{Concurrency: 1})
			i := r.submit("x", "")
			<-began
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r.Close(ctx)
			got, err := r.Get(t.Context(), i.ID)
			if err != nil || got.State != want {
				t.Errorf("network %s: error %v, intent %+v; want %s", network, err, got, want)
			}
			if _, err := r.Submit(t.Context(), Request{Agent: r.agent, Text: "y"}); err == nil {
				t.Error("a closed queue accepts intents")
			}
			if want != Queued {
				continue
			}
			if n := callRows(t, r.store, i.ID); n != 0 {
				t.Errorf("%d calls of the requeued intent are still stored, want 0", n)
			}
			next := newRig(t, place, dir, r.agent, answer, Options{Daemon: true})
			if got := next.wait(i.ID); got.State != Done || got.Attempts != 2 {
				t.Errorf("intent = %+v, want done after 2 attempts", got)
			}
		}
	})
}

func TestIDs(t *testing.T) {
	id := "0123456789abcdef0123456789abcdef"
	for _, s := range []string{id, UUID(id), strings.ToUpper(UUID(id))} {
		if got, ok := ParseID(s); !ok || got != id {
			t.Errorf("ParseID(%s) = %s, %t; want %s", s, got, ok, id)
		}
	}
	for _, s := range []string{"", "x", id[1:], id + "0", strings.Replace(id, "0", "g", 1)} {
		if _, ok := ParseID(s); ok {
			t.Errorf("ParseID accepts %q", s)
		}
	}
}
