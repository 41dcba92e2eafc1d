// Package dispatch is the queue of intents. An intent is a queued task for a program. The queue stores intents,
// decides their order and stores their answers.
//
// An intent is one row in the store, from the request to the answer. The id of the intent is also the id of its call
// through the agent's gateway. The queue has two implementations with the same behavior.
//
//   - In process, on SQLite: the process that accepts an intent also runs the intent. A process runs at most
//     [Options.Concurrency] intents at the same time. A daemon also runs the intents of dead processes.
//   - On PostgreSQL: River assigns intents to free workers. The transaction that writes the intent also writes the
//     River job. River can deliver a job more than once. Therefore, a worker runs an intent only if it has changed the
//     state of the row from queued to running.
//
// The rules of the queue:
//
//   - An answer is stored in the transaction that records the call (see [Participant]). An intent has an answer if
//     and only if the journal has the outcome of the call. An intent never has two answers.
//   - If a worker dies, its intent runs again if the call never began or can safely be repeated. A program without
//     network can be repeated, because its effects do not outlast the run. Any other intent gets the state [Unknown],
//     and a person must decide. A worker is dead if its lock is free. Clocks are not compared.
//   - After [maxAttempts] workers have died while they ran an intent, the intent also gets the state Unknown, because
//     the intent may have made them crash.
//   - Intents of higher priority run first, but every intent runs eventually. For each [Step] of waiting, an intent
//     rises by one priority level. Within a level, the oldest intent runs first. An intent therefore runs before all
//     intents that are submitted two steps later.
//   - A worker accepts an intent only if the worker serves exactly the same manifest, and if the intent is encrypted
//     with the worker's current root key or an earlier one. The kind of the River job encodes both conditions. If no
//     live worker accepts an intent, the intent is shown in the state [NoWorker].
//   - Each started second of run time costs one credit. If an agent has exceeded its budget, its intents are marked and
//     run at low priority.
//   - An intent begins only if its caller still has access. If the caller's API key was revoked or has
//     expired, the waiting intent is refused.
//   - The number of waiting intents of each principal is limited across all processes. Rate limits and quotas count
//     only calls. Without this limit, a caller that does not wait for answers could fill the store.
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
	"github.com/ambit-run/ambit/internal/store/identity"
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

// level returns the queue level of a priority. An intent with a lower level runs first.
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

// The states of an intent. NoWorker is never stored: a queued intent is shown as NoWorker if no live worker accepts it.
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

// Gateway makes the call of an intent.
type Gateway interface {
	Agent() *agent.Agent
	Call(ctx context.Context, c *call.Call) (call.Result, error)
}

// Gateways finds the gateways of the programs that this process serves.
type Gateways interface {
	// Digests returns the manifest digests of the programs.
	Digests() []string
	// Open returns the gateway of the program with this manifest digest. The gateway stays open until the caller calls
	// the function release. The third result is false if this process does not serve the program.
	Open(digest string) (g Gateway, release func(), ok bool)
}

// Options configure a queue.
type Options struct {
	Store *store.Store
	// URL is the address of the PostgreSQL store. If URL is empty, the queue runs in this process.
	URL string
	// Gateways provides the gateways that run intents in this process. If it is nil, this process runs no intents.
	Gateways Gateways
	// Concurrency is the maximum number of intents that run at the same time. The default is the number of CPUs.
	Concurrency int
	// Daemon makes this process take over the intents of dead processes. On PostgreSQL, a process with Gateways always
	// takes them over.
	Daemon bool
	// Log receives messages for the operator.
	Log func(format string, args ...any)
	// Step is how long an intent waits before it rises by one priority level. The default is the package constant [Step].
	Step time.Duration
}

// Step is the default time that an intent waits before it rises by one priority level.
const Step = 30 * time.Second

// Queue accepts and runs intents.
type Queue struct {
	options Options
	store   *store.Store
	turns   *turnQueue
	shared  *pgQueue // nil if the queue runs in this process

	ctx           context.Context // ends when running intents must stop
	cancel        context.CancelFunc
	accepting     context.Context // canceled when no more intents may be started
	stopAccepting context.CancelFunc
	work          sync.WaitGroup

	// Only the goroutine of [Queue.maintain] uses the next three fields.
	lastDeleted time.Time // when old intents were last deleted
	down        time.Time // when the store became unavailable; zero if it is available
	retired     bool      // set if the rotation of the root key was already logged

	mu sync.Mutex
	// The keys of the following maps are ids of intents.
	cancels  map[string]context.CancelFunc // cancels each intent that is running or reserved in this process
	running  map[string]bool               // the intents that run in this process
	reserved map[string]chan struct{}      // the reserved intents; each channel is closed when its intent is released
	watched  map[string]*watchedIntent     // the intents that callers wait for, except reserved intents
	polling  bool                          // whether pollWatched is running
}

// Open opens the queue. The caller must close the queue before closing the store.
func Open(ctx context.Context, o Options) (*Queue, error) {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), runtime.NumCPU())
	o.Step = cmp.Or(max(o.Step, 0), Step)
	q := &Queue{
		options: o, store: o.Store, turns: &turnQueue{free: o.Concurrency, step: o.Step},
		cancels: map[string]context.CancelFunc{}, running: map[string]bool{},
		reserved: map[string]chan struct{}{}, watched: map[string]*watchedIntent{},
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.accepting, q.stopAccepting = context.WithCancel(q.ctx)
	if o.URL != "" {
		var err error
		if q.shared, err = openShared(ctx, q); err != nil {
			q.cancel()
			return nil, fmt.Errorf("cannot open the queue on PostgreSQL: %w", err)
		}
	}
	if o.Daemon || o.URL != "" && o.Gateways != nil {
		q.work.Go(q.maintain)
	}
	return q, nil
}

// Reload makes the queue accept intents for the agents that [Options.Gateways] serves now.
func (q *Queue) Reload(ctx context.Context) error {
	if q.shared == nil {
		return nil
	}
	return q.shared.reload(ctx)
}

// Close stops the queue. It starts no more intents and waits for the running intents until ctx is canceled. It then
// stops the remaining intents and puts the repeatable ones back into the queue.
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
	// ID is the intent's id, 32 hex digits. If ID is empty, [Queue.Submit] creates an id.
	ID         string
	Agent      *agent.Agent
	Name       string // the name under which the agent runs
	Text       string
	Priority   Priority // if empty, the manifest's priority is used
	Parent     string   // the id of the parent intent; may be empty
	Principal  string
	Attributes *identity.Attributes // the caller's attributes from its verified credential
	By         string               // the owner who acts on behalf of Principal; empty if Principal itself acts
	// Key is the id of the caller's API key. Key is empty if the caller used a token.
	Key string
	// Until is the time when the caller's token expires. It is zero if the caller used an API key. If Key is empty and
	// Until is zero, the caller's access does not expire.
	Until time.Time
}

// ErrNotProgram means that an agent does not accept intents.
var ErrNotProgram = errors.New("the agent is not a program that accepts tasks")

// TakesIntents reports whether an agent accepts intents. Such an agent is a program that reads one line of input and
// answers with one line of output.
func TakesIntents(a *agent.Agent) bool {
	return a != nil && a.Program != nil && a.Program.Contract == agent.OneLine && len(a.Tools) == 1
}

// Submit stores a new intent and schedules it.
func (q *Queue) Submit(ctx context.Context, r Request) (*Intent, error) {
	if !TakesIntents(r.Agent) {
		return nil, ErrNotProgram
	}
	if q.accepting.Err() != nil {
		return nil, call.Refuse(stage, call.ServerUnavailable, "this ambit process is shutting down").Again()
	}
	if q.shared == nil {
		_, release, ok := q.gateway(r.Agent.Digest)
		if !ok {
			return nil, call.Refuse(stage, call.ServerUnavailable, "this ambit process does not serve the agent %s", r.Agent.ID)
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
		return nil, gateway.StoreFailed(ctx, stage, err)
	}
	start()
	return i, nil
}

// maxArguments is the maximum size of an intent's arguments in bytes. It is the same as the gateway's limit.
const maxArguments = 16 << 20

func (q *Queue) newIntent(ctx context.Context, r Request) (*Intent, []byte, error) {
	priority := r.Priority
	if s := r.Agent.Settlement; s != nil {
		priority = cmp.Or(priority, Priority(s.Priority))
	}
	i := &Intent{
		ID: cmp.Or(r.ID, gateway.NewID()), Agent: r.Agent.ID, Digest: r.Agent.Digest, Name: r.Name,
		Principal: r.Principal, Parent: r.Parent, Priority: cmp.Or(priority, Normal), State: Queued,
		Asked: time.Now(), repeatable: isRepeatable(r.Agent),
	}
	over, err := q.OverBudget(ctx, r.Agent)
	if err != nil {
		return nil, nil, gateway.StoreFailed(ctx, stage, err)
	}
	i.OverBudget = over
	args, err := json.Marshal(map[string]string{"text": r.Text, "priority": string(i.effectivePriority())})
	if err != nil {
		return nil, nil, err
	}
	if len(args) > maxArguments {
		return nil, nil, call.Refuse(stage, call.InputTooLong,
			"the task is %d bytes long; the limit is %d bytes", len(args), maxArguments)
	}
	sealed, err := json.Marshal(sealedRequest{
		Digest: i.Digest, Name: r.Name, Principal: r.Principal, Attributes: r.Attributes, By: r.By, Key: r.Key, Until: r.Until,
		Arguments: args,
	})
	return i, sealed, err
}

// isRepeatable reports whether an interrupted call to an agent can safely be repeated. A repetition is safe if the tool
// is idempotent or the program has no network access.
func isRepeatable(a *agent.Agent) bool {
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

// Call submits an intent and waits for its answer. If onChange is not nil, Call runs it when the intent is stored, and
// again after each change of state until the intent ends. If ctx is canceled, Call cancels the intent.
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

// cancelTimeout is how long Call waits for a cancelled intent to stop.
const cancelTimeout = 10 * time.Second

// UUID formats an id of 32 hex digits as a UUID. Users and the API see ids as UUIDs.
func UUID(id string) string {
	if len(id) != 32 {
		return id
	}
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

// ParseID parses an id in the form of a UUID or 32 hex digits. The result has 32 hex digits.
func ParseID(s string) (string, bool) {
	id := strings.ToLower(strings.ReplaceAll(s, "-", ""))
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", false
	}
	return id, true
}
