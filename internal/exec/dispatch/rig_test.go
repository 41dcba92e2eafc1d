package dispatch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// echo returns a program with the given network access. If credits is positive, the program has a budget.
func echo(network agent.NetworkAccess, credits int64) *agent.Agent {
	effect, digest := agent.Write, "ab"
	if network != agent.NetworkOff {
		effect, digest = agent.Network, "cd"
	}
	return &agent.Agent{
		Dialect: agent.Covenant, ID: "echo@local", Name: "echo", Digest: "sha256:" + strings.Repeat(digest, 32), Kind: agent.ProgramAgent,
		Tools:      []agent.Tool{{Name: "echo", SideEffect: effect, Timeout: time.Minute, Binding: agent.RunProgram{}}},
		Program:    &agent.Program{Runtime: "python3", Entry: "main.py", Contract: agent.OneLine},
		Resources:  &agent.Resources{WallClock: 30 * time.Second, Network: network},
		Settlement: &agent.Settlement{CreditsPerHour: credits, Priority: "normal"},
	}
}

// act is a function that a test uses instead of the program.
type act func(ctx context.Context, c *call.Call) (call.Result, error)

func (f act) Act(ctx context.Context, _ *agent.Tool, c *call.Call) (call.Result, error) {
	return f(ctx, c)
}

// answer is a program that answers with the text of its task.
func answer(_ context.Context, c *call.Call) (call.Result, error) {
	raw := fmt.Sprintf(`{"content":[],"structuredContent":{"intent_id":%q,"status":"ok","text":%q,"sources":[]}}`, UUID(c.ID), textOf(c))
	return call.Result{Raw: jsontext.Value(raw)}, nil
}

func textOf(c *call.Call) string {
	var args struct{ Text, Priority string }
	if err := jsonUnmarshal(c.Arguments, &args); err != nil {
		return err.Error()
	}
	return args.Text + " " + args.Priority
}

// rig is a queue with its store and its gateway, as in one ambit process.
type rig struct {
	*Queue
	t     testing.TB
	place string
	store *store.Store
	agent *agent.Agent
	gate  *gateway.Gateway
	away  atomic.Bool // set while the agent is not served by this queue
	mu    sync.Mutex
	log   []string
}

// gateways contains only the gateway of a rig.
type gateways struct{ rig *rig }

func (g gateways) Digests() []string {
	if g.rig.away.Load() {
		return nil
	}
	return []string{g.rig.agent.Digest}
}

func (g gateways) Open(digest string) (Gateway, func(), bool) {
	return g.rig.gate, func() {}, slices.Contains(g.Digests(), digest)
}

// openStore opens a store as another process would, with the keys in the folder dir.
func openStore(t testing.TB, place, dir string) *store.Store {
	t.Helper()
	keys, err := identity.OpenKeys(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	db := statetest.At(t, place)
	return store.New(db, keys, nil)
}

func urlOf(place string) string {
	if strings.HasPrefix(place, "postgres:") {
		return place
	}
	return ""
}

// newRig opens a queue that runs the intents of an agent. If do is nil, the queue accepts intents
// but does not run them. A test can set Gateways later to run the intents.
func newRig(t testing.TB, place, dir string, a *agent.Agent, do act, o Options) *rig {
	t.Helper()
	r := &rig{t: t, place: place, store: openStore(t, place, dir), agent: a}
	binding := do
	if do == nil {
		binding = answer
	}
	r.gate = gateway.New(a, gateway.Options{Binding: binding, Store: r.store, Participants: []gateway.Participant{Participant(r.store, a, false)}})
	t.Cleanup(r.gate.Close)
	o.Store, o.URL = r.store, urlOf(place)
	if do != nil {
		o.Gateways = gateways{r}
	}
	o.Log = func(format string, args ...any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log = append(r.log, fmt.Sprintf(format, args...))
	}
	d, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r.Queue = d
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		d.Close(ctx)
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r
}

func (r *rig) submit(text string, p Priority) *Intent {
	r.t.Helper()
	i, err := r.Submit(r.t.Context(), Request{Agent: r.agent, Name: "echo", Text: text, Priority: p, Principal: "me@local"})
	if err != nil {
		r.t.Fatal(err)
	}
	return i
}

func (r *rig) wait(id string) *Intent {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	i, err := r.Wait(ctx, id, nil)
	if err != nil {
		r.t.Fatalf("waiting for intent %s: %v", id, err)
	}
	return i
}

// until polls until a condition holds, for at most a minute.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen in time: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// decisions returns the decisions of a call in the journal, oldest first.
func decisions(t testing.TB, b *store.Store, id string) []journal.Decision {
	t.Helper()
	entries, err := b.Journal.Show(t.Context(), journal.Filter{Call: id, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var all []journal.Decision
	for _, e := range entries {
		all = append([]journal.Decision{e.Decision}, all...)
	}
	return all
}

// each runs a test on SQLite and on PostgreSQL.
func each(t *testing.T, test func(t *testing.T, place, dir string)) {
	t.Helper()
	statetest.Places(t, func(t *testing.T, place string) { test(t, place, t.TempDir()) })
}

// onPostgres runs a test only on PostgreSQL, where the queue is shared.
func onPostgres(t *testing.T, test func(t *testing.T, place, dir string)) {
	t.Helper()
	each(t, func(t *testing.T, place, dir string) {
		if urlOf(place) != "" {
			test(t, place, dir)
		}
	})
}

func callRows(t testing.TB, b *store.Store, id string) (n int) {
	t.Helper()
	err := b.DB.Read(t.Context(), func(tx state.Tx) error {
		n = 0
		return tx.Query(`SELECT id FROM calls WHERE id = $1`, []any{id}, func(state.Row) error { n++; return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMain(m *testing.M) {
	if place := os.Getenv(envPlace); place != "" {
		live(place)
		return
	}
	goleak.VerifyTestMain(m)
}
