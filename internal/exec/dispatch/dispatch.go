// Package dispatch is the queue of intents: what was asked of programs, in which
// order it is done, and what became of it.
//
// An intent is a row, from the asking to the answer, and its id is that of the
// call that it becomes: that call through the agent's gateway does the work, and
// nothing else does. The queue has two homes with one meaning.
//
//   - In process, on SQLite: the process that takes an intent does it, so many
//     at a time as it was told. A daemon also does what dead processes left.
//   - On PostgreSQL: River hands intents to whichever worker is free. Its job is
//     written in the transaction that writes the intent. River delivers at least
//     once; the row makes that once: the worker that moves it from queued to
//     running does the work, and the others leave it.
//
// The decisions:
//
//   - An answer is kept in the transaction that records the call (see [Participant]).
//     So an intent has an answer exactly if the journal has its outcome, and it
//     has one answer.
//   - What a dead worker had under way is done again if its call never began, or
//     if it may be repeated: a program without a network has changed nothing
//     that is left when it is gone. Anything else becomes unknown, for a person.
//     Whether an owner is dead is known by its lock, not by a clock.
//   - An intent whose workers die again and again is abandoned: it may be what
//     kills them.
//   - Priorities are ordered, and no intent starves: each time an intent has waited
//     for [Step] it rises by one level, and within a level the oldest is first.
//     So what was asked two steps before anything else goes before it.
//   - A worker takes only intents of manifests that it has, to the byte, and that
//     were sealed with its own root key, or one before it; that is what the kind
//     of a River job says. It leaves the rest to others, and the intent
//     reports if there is no such worker.
//   - A budget is soft: one credit for each second of run time that was begun. Over
//     budget, an intent runs all the same, at low priority, and says so.
//   - An intent is begun only while its caller would still be admitted: a key
//     that was revoked, or has ended, takes what waits with it.
//   - Waiting intents are bounded for each principal, wherever they were asked:
//     limits and quotas count calls, and a caller that does not wait for answers
//     could fill the store before.
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

// Priority is how urgent an intent is.
type Priority string

// The priorities.
const (
	Low    Priority = "low"
	Normal Priority = "normal"
	High   Priority = "high"
)

// Priorities are all of them, the least first.
var Priorities = []string{string(Low), string(Normal), string(High)}

// level is the place of a priority in the queue; less is sooner.
func (p Priority) level() int64 {
	switch p {
	case High:
		return 1
	case Low:
		return 3
	}
	return 2
}

// State is how far an intent has come.
type State string

// The states. An intent that is Queued may be NoWorker when it is looked at: no
// worker that lives can take it.
const (
	Queued    State = "queued"
	NoWorker  State = "no_worker"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
	Unknown   State = "unknown"
)

// Ended reports whether there is an answer.
func (s State) Ended() bool { return s != Queued && s != NoWorker && s != Running }

// Gateway is where the work of an intent is done.
type Gateway interface {
	Agent() *agent.Agent
	Call(ctx context.Context, c *call.Call) (call.Result, error)
}

// Gateways are those of the programs that can be run here.
type Gateways interface {
	// Digests are those of the manifests.
	Digests() []string
	// Open finds a door, which stays until leave is called. It is false if there
	// is none.
	Open(digest string) (d Gateway, leave func(), ok bool)
}

// Options say how a desk works.
type Options struct {
	Store *store.Store
	// URL is that of the books' PostgreSQL; empty keeps the queue in process.
	URL string
	// Gateways are what this desk does intents at; nil leaves all to others.
	Gateways Gateways
	// Concurrency is how many intents are done at the same time; 0 means the
	// number of CPUs.
	Concurrency int
	// Daemon takes over what dead processes left.
	Daemon bool
	// Log gets messages for the operator.
	Log func(format string, args ...any)
	// Step is how long an intent waits for a rise; 0 means [Step].
	Step time.Duration
}

// Step is how long an intent waits before it rises by one level.
const Step = 30 * time.Second

// Queue takes intents, and does them.
type Queue struct {
	options Options
	books   *store.Store
	line    *line
	shared  *shared // nil in process

	ctx    context.Context // ends when nothing may go on
	cancel context.CancelFunc
	open   context.Context // ends when nothing new is begun
	shut   context.CancelFunc
	work   sync.WaitGroup

	// For tend alone: when old intents were last deleted, and whether it was said
	// that another key has taken over.
	forgot  time.Time
	retired bool

	mu      sync.Mutex
	running map[string]context.CancelFunc // what is under way here, or waits to be
	doing   map[string]bool               // what is under way here
	settled map[string]chan struct{}      // closed when what is in hand here no longer is
	watched map[string]*watched           // intents of other processes that a caller here waits for
	looking bool                          // whether look is running
}

// Open opens the desk. It must be closed before its books are.
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
	d := &Queue{
		options: o, books: o.Store, line: newLine(o.Concurrency, o.Step),
		running: map[string]context.CancelFunc{}, doing: map[string]bool{}, settled: map[string]chan struct{}{}, watched: map[string]*watched{},
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.open, d.shut = context.WithCancel(d.ctx)
	if o.URL != "" {
		var err error
		if d.shared, err = openShared(ctx, d); err != nil {
			d.cancel()
			return nil, fmt.Errorf("the shared queue cannot be opened: %w", err)
		}
	}
	if o.Daemon || o.URL != "" && o.Gateways != nil {
		d.work.Go(d.tend)
	}
	return d, nil
}

// Reload takes intents of the agents that are served now.
func (d *Queue) Reload(ctx context.Context) error {
	if d.shared == nil {
		return nil
	}
	return d.shared.reload(ctx)
}

// Close begins nothing more, and lets what is under way end until ctx does. What
// has to be stopped then, and may be repeated, goes back into the queue.
func (d *Queue) Close(ctx context.Context) {
	d.shut()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if d.shared != nil {
			d.shared.stop()
		}
		d.work.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		d.putBackRunning()
	}
	d.cancel()
	<-ended
	if d.shared != nil {
		d.shared.pool.Close()
	}
}

// Request is an intent as it is asked for.
type Request struct {
	// ID names the intent, as 32 hex digits; empty makes one.
	ID        string
	Agent     *agent.Agent
	Name      string // what the agent runs under
	Text      string
	Priority  Priority // empty is what the manifest says
	Parent    string   // another intent; empty if there is none
	Principal string
	By        string // the owner who asks in the principal's name; empty if the principal asks
	// Key is the id of the API key by which it is asked, and Until the end of what
	// was shown instead of one. Without either, nothing can end.
	Key   string
	Until time.Time
}

// ErrNotProgram means that an agent takes no intents.
var ErrNotProgram = errors.New("the agent is not a program that takes tasks")

// TakesIntents reports whether an agent is a program with one line in, one out.
func TakesIntents(a *agent.Agent) bool {
	return a != nil && a.Program != nil && a.Program.Contract == agent.OneLine && len(a.Tools) == 1
}

// Submit writes an intent down, and has it done in its turn.
func (d *Queue) Submit(ctx context.Context, r Request) (*Intent, error) {
	if !TakesIntents(r.Agent) {
		return nil, ErrNotProgram
	}
	if d.open.Err() != nil {
		return nil, call.Refuse(stage, call.ServerUnavailable, "this ambit is shutting down").Again()
	}
	if d.shared == nil {
		_, leave, ok := d.door(r.Agent.Digest)
		if !ok {
			return nil, call.Refuse(stage, call.ServerUnavailable, "the agent is not served here")
		}
		leave()
	}
	i, args, err := d.newIntent(ctx, r)
	if err != nil {
		return nil, err
	}
	start, leave := func() {}, func() {}
	if d.shared == nil {
		start, leave = d.hold(i)
	}
	if err := d.insert(ctx, i, args); err != nil {
		leave()
		if stopped, ok := errors.AsType[*call.Refusal](err); ok {
			return nil, stopped
		}
		return nil, gateway.StoreFailed(stage, err)
	}
	start()
	return i, nil
}

// maxAsked is how many bytes of arguments an intent may have: as many as its door
// admits.
const maxAsked = 16 << 20

func (d *Queue) newIntent(ctx context.Context, r Request) (*Intent, []byte, error) {
	asked := r.Priority
	if s := r.Agent.Settlement; s != nil {
		asked = cmp.Or(asked, Priority(s.Priority))
	}
	i := &Intent{
		ID: cmp.Or(r.ID, gateway.NewID()), Agent: r.Agent.ID, Digest: r.Agent.Digest, Name: r.Name, Principal: r.Principal,
		Parent: r.Parent, Priority: cmp.Or(asked, Normal), State: Queued, Asked: time.Now(), repeatable: repeatable(r.Agent),
	}
	over, err := d.OverBudget(ctx, r.Agent)
	if err != nil {
		return nil, nil, gateway.StoreFailed(stage, err)
	}
	i.OverBudget = over
	args, err := json.Marshal(map[string]string{"text": r.Text, "priority": string(i.effective())})
	if err != nil {
		return nil, nil, err
	}
	if len(args) > maxAsked {
		return nil, nil, call.Refuse(stage, call.InputTooLong,
			"what is asked has %d bytes; at most %d are taken", len(args), maxAsked)
	}
	sealed, err := json.Marshal(asking{Principal: r.Principal, By: r.By, Key: r.Key, Until: r.Until, Arguments: args})
	return i, sealed, err
}

// repeatable reports whether a call that was begun may be made again.
func repeatable(a *agent.Agent) bool {
	if a.Tools[0].Policy.Idempotent {
		return true
	}
	return a.Resources != nil && a.Resources.Network == agent.NetworkOff
}

const stage = "dispatch"

func (d *Queue) door(digest string) (Gateway, func(), bool) {
	if d.options.Gateways == nil {
		return nil, nil, false
	}
	return d.options.Gateways.Open(digest)
}

// Call submits an intent and waits for its answer. The end of ctx cancels the
// intent.
func (d *Queue) Call(ctx context.Context, r Request, told func(*Intent)) (*Intent, error) {
	i, err := d.Submit(ctx, r)
	if err != nil {
		return nil, err
	}
	if told != nil {
		told(i)
	}
	ended, err := d.Wait(ctx, i.ID, told)
	if err == nil {
		return ended, nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	if cancelErr := d.Cancel(last, i.ID); cancelErr != nil {
		return nil, errors.Join(err, cancelErr)
	}
	if ended, waitErr := d.Wait(last, i.ID, nil); waitErr == nil {
		return ended, nil
	}
	return nil, err
}

// cancelTime is how long a cancelled intent has to end.
const cancelTime = 10 * time.Second

// UUID writes the 32 hex digits of an id as people and programs see it.
func UUID(id string) string {
	if len(id) != 32 {
		return id
	}
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

// ParseID reads an id in either form.
func ParseID(s string) (string, bool) {
	id := strings.ToLower(strings.ReplaceAll(s, "-", ""))
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", false
	}
	return id, true
}
