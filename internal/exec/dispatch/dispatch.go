// Package dispatch is the queue of intents: tasks for programs, their order and
// their answers.
//
// An intent is a row in the store, from the request to the answer. Its id is also
// the id of its call: one call through the agent's gateway does all the work. The
// queue has two implementations with the same behaviour.
//
//   - In process, on SQLite: the process that accepts an intent runs it, at most
//     [Options.Concurrency] at a time. A daemon also runs intents of dead processes.
//   - On PostgreSQL: River assigns intents to free workers. The River job is written
//     in the transaction that writes the intent. River delivers a job at least once.
//     The row makes that exactly once: only the worker that changes its state from
//     queued to running does the work.
//
// The decisions:
//
//   - An answer is stored in the transaction that records the call (see
//     [Participant]). So an intent has an answer if and only if the journal has its
//     outcome, and it never has two.
//   - If a worker dies, its intent runs again if the call never began, or if the call
//     may be repeated: a program without network has no effects that outlive it.
//     Otherwise the intent becomes unknown and a person decides. An owner is dead
//     when its lock is free; clocks are not compared.
//   - An intent is abandoned after [maxAttempts] dead workers, because it may be the
//     cause of their death.
//   - Priorities are ordered, and no intent starves: an intent rises by one level for
//     each [Step] that it waits, and within a level the oldest is first. So an intent
//     precedes all intents that were submitted two steps after it.
//   - A worker accepts only intents of exactly the manifests that it serves, and only
//     if they were sealed with its root key or an earlier one. The kind of the River
//     job encodes both. Other workers take the rest; without such a worker the
//     intent's state is [NoWorker].
//   - A budget is soft: each started second of run time costs one credit. Over budget,
//     an intent still runs, at low priority, and is marked.
//   - An intent begins only if its caller would still be admitted. If the API key was
//     revoked or has expired, the waiting intent is refused.
//   - The waiting intents of each principal are bounded, over all processes. Limits
//     and quotas count calls, so without this bound a caller that does not wait for
//     answers could fill the store.
package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
)

// Priority is the urgency of an intent.
type Priority string

const (
	Low    Priority = "low"
	Normal Priority = "normal"
	High   Priority = "high"
)

// Priorities lists all priorities, lowest first.
var Priorities = []string{string(Low), string(Normal), string(High)}

// level returns the level of a priority in the queue; lower levels run first.
func (p Priority) level() int64 {
	switch p {
	case High:
		return 1
	case Low:
		return 3
	}
	return 2
}

// State is the progress of an intent.
type State string

// NoWorker is not stored: a Queued intent is shown as NoWorker if no live worker
// accepts it.
const (
	Queued    State = "queued"
	NoWorker  State = "no_worker"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
	Unknown   State = "unknown"
)

// Ended reports whether the intent has an answer.
func (s State) Ended() bool { return s != Queued && s != NoWorker && s != Running }

// Gateway runs the call of an intent.
type Gateway interface {
	Agent() *agent.Agent
	Call(ctx context.Context, c *call.Call) (call.Result, error)
}

// Gateways finds the gateways of the programs that this process serves.
type Gateways interface {
	// Digests returns the digests of their manifests.
	Digests() []string
	// Open returns the gateway for a digest, which stays open until release is
	// called. ok is false if there is none.
	Open(digest string) (g Gateway, release func(), ok bool)
}

// Options configure a queue.
type Options struct {
	Store *store.Store
	// URL is the address of the store's PostgreSQL; without it the queue is in
	// process.
	URL string
	// Gateways run intents in this process; nil leaves all intents to others.
	Gateways Gateways
	// Concurrency is how many intents run at the same time; 0 means the number of
	// CPUs.
	Concurrency int
	// Daemon takes over the intents of dead processes.
	Daemon bool
	// Log receives messages for the operator.
	Log func(format string, args ...any)
	// Step is how long an intent waits before it rises by one level; 0 means [Step].
	Step time.Duration
}

// Step is how long an intent waits before it rises by one level.
const Step = 30 * time.Second

// Queue accepts and runs intents.
type Queue struct {
	options Options
	store   *store.Store
	turns   *turns
	shared  *shared // nil in process

	ctx           context.Context // ends when running intents must stop
	cancel        context.CancelFunc
	accepting     context.Context // ends when no intent may begin any more
	stopAccepting context.CancelFunc
	work          sync.WaitGroup

	// Used by maintain alone: when old intents were last deleted, and whether the
	// handover to another key was logged.
	lastDeleted time.Time
	retired     bool

	mu       sync.Mutex
	cancels  map[string]context.CancelFunc // of intents that run or are reserved here
	running  map[string]bool               // intents that run here
	reserved map[string]chan struct{}      // intents reserved here; closed when released
	watched  map[string]*watched           // intents of other processes that a caller here waits for
	polling  bool                          // whether pollWatched is running
}

// Open opens the queue. Close it before its store.
func Open(ctx context.Context, o Options) (*Queue, error) {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Concurrency <= 0 {
		o.Concurrency = runtime.NumCPU()
	}
	if o.Step <= 0 {
		o.Step = Step
	}
	q := &Queue{
		options: o, store: o.Store, turns: &turns{free: o.Concurrency, step: o.Step},
		cancels: map[string]context.CancelFunc{}, running: map[string]bool{},
		reserved: map[string]chan struct{}{}, watched: map[string]*watched{},
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.accepting, q.stopAccepting = context.WithCancel(q.ctx)
	if o.URL != "" {
		var err error
		if q.shared, err = openShared(ctx, q); err != nil {
			q.cancel()
			return nil, fmt.Errorf("the shared queue cannot be opened: %w", err)
		}
	}
	if o.Daemon || o.URL != "" && o.Gateways != nil {
		q.work.Go(q.maintain)
	}
	return q, nil
}

// Reload accepts the intents of the agents that are served now.
func (q *Queue) Reload(ctx context.Context) error {
	if q.shared == nil {
		return nil
	}
	return q.shared.reload(ctx)
}

// Close begins no more intents and waits for the running ones until ctx ends. Then
// it stops them; those that may be repeated return to the queue.
func (q *Queue) Close(ctx context.Context) {
	q.stopAccepting()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if q.shared != nil {
			q.shared.stop()
		}
		q.work.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		q.requeueRunning()
	}
	q.cancel()
	<-ended
	if q.shared != nil {
		q.shared.pool.Close()
	}
}

// Request describes a new intent.
type Request struct {
	// ID is the intent's id, as 32 hex digits; empty creates one.
	ID        string
	Agent     *agent.Agent
	Name      string // the name under which the agent runs
	Text      string
	Priority  Priority // empty uses the manifest's
	Parent    string   // the parent intent; may be empty
	Principal string
	By        string // the owner who acts for the principal; empty if the principal acts
	// Key is the id of the caller's API key, and Until the expiry of a token that
	// was used instead. Without both, the permission does not expire.
	Key   string
	Until time.Time
}

// ErrNotProgram means that an agent does not accept intents.
var ErrNotProgram = errors.New("the agent is not a program that accepts tasks")

// TakesIntents reports whether an agent is a program that reads one line and
// answers with one.
func TakesIntents(a *agent.Agent) bool {
	return a != nil && a.Program != nil && a.Program.Contract == agent.OneLine && len(a.Tools) == 1
}

// Submit stores an intent and schedules it.
func (q *Queue) Submit(ctx context.Context, r Request) (*Intent, error) {
	if !TakesIntents(r.Agent) {
		return nil, ErrNotProgram
	}
	if q.accepting.Err() != nil {
		return nil, call.Refuse(stage, call.ServerUnavailable, "this ambit is shutting down").Again()
	}
	if q.shared == nil {
		_, release, ok := q.gateway(r.Agent.Digest)
		if !ok {
			return nil, call.Refuse(stage, call.ServerUnavailable, "this process does not serve the agent")
		}
		release()
	}
	i, args, err := q.newIntent(ctx, r)
	if err != nil {
		return nil, err
	}
	start, release := func() {}, func() {}
	if q.shared == nil {
		start, release = q.reserve(i)
	}
	if err := q.insert(ctx, i, args); err != nil {
		release()
		if stopped, ok := errors.AsType[*call.Refusal](err); ok {
			return nil, stopped
		}
		return nil, gateway.StoreFailed(stage, err)
	}
	start()
	return i, nil
}

// maxArguments bounds the arguments of an intent. The gateway has the same limit.
const maxArguments = 16 << 20

func (q *Queue) newIntent(ctx context.Context, r Request) (*Intent, []byte, error) {
	priority := r.Priority
	if s := r.Agent.Settlement; s != nil {
		priority = cmp.Or(priority, Priority(s.Priority))
	}
	i := &Intent{
		ID: cmp.Or(r.ID, gateway.NewID()), Agent: r.Agent.ID, Digest: r.Agent.Digest, Name: r.Name,
		Principal: r.Principal, Parent: r.Parent, Priority: cmp.Or(priority, Normal), State: Queued,
		Asked: time.Now(), repeatable: repeatable(r.Agent),
	}
	over, err := q.OverBudget(ctx, r.Agent)
	if err != nil {
		return nil, nil, gateway.StoreFailed(stage, err)
	}
	i.OverBudget = over
	args, err := json.Marshal(map[string]string{"text": r.Text, "priority": string(i.effective())})
	if err != nil {
		return nil, nil, err
	}
	if len(args) > maxArguments {
		return nil, nil, call.Refuse(stage, call.InputTooLong,
			"the task has %d bytes; the limit is %d", len(args), maxArguments)
	}
	sealed, err := json.Marshal(sealedRequest{
		Principal: r.Principal, By: r.By, Key: r.Key, Until: r.Until, Arguments: args,
	})
	return i, sealed, err
}

// repeatable reports whether an interrupted call may be repeated.
func repeatable(a *agent.Agent) bool {
	if a.Tools[0].Policy.Idempotent {
		return true
	}
	return a.Resources != nil && a.Resources.Network == agent.NetworkOff
}

const stage = "dispatch"

func (q *Queue) gateway(digest string) (Gateway, func(), bool) {
	if q.options.Gateways == nil {
		return nil, nil, false
	}
	return q.options.Gateways.Open(digest)
}

// Call submits an intent and waits for its answer. onChange, if not nil, is called
// with the new intent and with each later state. The end of ctx cancels the intent.
func (q *Queue) Call(ctx context.Context, r Request, onChange func(*Intent)) (*Intent, error) {
	i, err := q.Submit(ctx, r)
	if err != nil {
		return nil, err
	}
	if onChange != nil {
		onChange(i)
	}
	ended, err := q.Wait(ctx, i.ID, onChange)
	if err == nil {
		return ended, nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if cancelErr := q.Cancel(last, i.ID); cancelErr != nil {
		return nil, errors.Join(err, cancelErr)
	}
	if ended, waitErr := q.Wait(last, i.ID, nil); waitErr == nil {
		return ended, nil
	}
	return nil, err
}

// cancelTimeout is how long a cancelled intent has to end.
const cancelTimeout = 10 * time.Second

// UUID formats the 32 hex digits of an id as a UUID, the form shown outside.
func UUID(id string) string {
	if len(id) != 32 {
		return id
	}
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

// ParseID reads an id in either form and returns its 32 hex digits.
func ParseID(s string) (string, bool) {
	id := strings.ToLower(strings.ReplaceAll(s, "-", ""))
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", false
	}
	return id, true
}
