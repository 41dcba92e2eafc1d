package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

const (
	// proveLimit is the maximum number of agents that are started and verified at the same time.
	proveLimit = 4
	// settleTime is how long a reload waits for new agents to be verified. After this time, new agents replace the old
	// ones even if the new ones are still starting.
	settleTime = 2 * time.Minute
)

// fleet contains the agents of a daemon. A reload replaces the whole list of agents.
type fleet struct {
	options *Options
	ctx     context.Context // the context of all agents
	stop    context.CancelFunc
	open    context.Context // canceled when the daemon begins to shut down
	shut    context.CancelFunc

	reloading sync.Mutex
	current   atomic.Pointer[lineup]
	leaving   sync.WaitGroup // retired agents that are still running
	proved    chan struct{}  // gets a value after agents were verified, so that a search for unfinished calls begins
}

// lineup is an immutable list of all agents, including rejected ones.
type lineup struct {
	all    []*entry // the agents, in the order of their folders
	byName map[string]*entry
}

func newLineup(all []*entry) *lineup {
	l := &lineup{all: all, byName: map[string]*entry{}}
	for _, e := range all {
		// If several entries have the same name, byName contains the accepted entry.
		if l.byName[e.Name] == nil || !e.rejected() {
			l.byName[e.Name] = e
		}
	}
	return l
}

// StrictError reports agents that cannot be served. With [Options.Strict], every such agent causes this error. Without
// Strict, the error occurs only if a reload would replace a working agent with one that cannot be served.
type StrictError struct{ Rejected []Found }

func (e *StrictError) Error() string {
	first := e.Rejected[0]
	more := ""
	if n := len(e.Rejected); n > 1 {
		more = fmt.Sprintf(" (and %d more)", n-1)
	}
	return fmt.Sprintf("%s cannot be served: %v%s", first.Name, first.Problem, more)
}

// newFleet reads the agents but does not start them.
func newFleet(o *Options) (*fleet, error) {
	f := &fleet{options: o, proved: make(chan struct{}, 1)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.open, f.shut = context.WithCancel(f.ctx)
	found, err := f.find()
	if err != nil {
		return nil, err
	}
	all := make([]*entry, len(found))
	for i := range found {
		all[i] = f.entry(found[i])
	}
	f.current.Store(newLineup(all))
	return f, nil
}

// find reads the folders and checks every agent. With [Options.Strict], it returns a *StrictError if an agent is
// rejected.
func (f *fleet) find() ([]Found, error) {
	found, err := readAll(f.options.Reading, f.options.Folders)
	if err != nil {
		return nil, fmt.Errorf("the agents cannot be read: %w", err)
	}
	allowed := map[string]string{}
	if f.options.Allowed != nil {
		if allowed, err = f.options.Allowed(); err != nil {
			return nil, fmt.Errorf("the rights of the agents' servers cannot be read: %w", err)
		}
	}
	for i := range found {
		one := &found[i]
		if one.Problem == nil && f.options.CanRun != nil {
			one.Problem = f.options.CanRun(one.Manifest)
		}
		if one.Problem == nil && f.options.Production {
			one.Problem = one.fitForProduction()
		}
		one.seal += allowed[one.Name]
	}
	settle(found)
	strict := &StrictError{}
	for i := range found {
		if found[i].Problem != nil {
			strict.Rejected = append(strict.Rejected, found[i])
		}
	}
	if f.options.Strict && len(strict.Rejected) > 0 {
		return nil, strict
	}
	return found, nil
}

func (f *fleet) entry(found Found) *entry {
	e := newEntry(found, f.options.Idle, func() Running { return f.options.Start(f.ctx, found.Name, found.Manifest) })
	e.ended = f.options.Journal.HandedOver
	return e
}

// prove starts and verifies agents, at most proveLimit at a time. It returns when every agent is verified or has
// failed, or when ctx is done.
func (f *fleet) prove(ctx context.Context, entries []*entry) {
	turns := make(chan struct{}, proveLimit)
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		select {
		case f.proved <- struct{}{}:
		default: // a search for unfinished calls is already due
		}
	}()
	for _, e := range entries {
		if e.rejected() {
			continue
		}
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-turns }()
			running, leave, ok := e.enter()
			if !ok {
				return
			}
			defer leave()
			if err := running.Ready(ctx); err != nil && ctx.Err() == nil {
				f.options.Log("agent %s: %v", e.Name, err)
			}
		})
	}
}

// Change reports what a reload did. The first five lists contain names of agents.
type Change struct {
	Added    []string `json:"added"`
	Changed  []string `json:"changed"`
	Removed  []string `json:"removed"`
	Kept     []string `json:"kept"`
	Rejected []string `json:"rejected"`
	// Reasons contains the name and the problem of each rejected agent.
	Reasons []string `json:"reasons"`
	// Widened lists what changed agents may do now but could not do before. Each element begins with the agent's name.
	Widened []string `json:"widened"`
}

var errLeaving = errors.New("the daemon is shutting down")

// reload reads the folders again and replaces the list of agents in one step. Unchanged agents keep running. New and
// changed agents are started and verified while the old agents still serve requests. Each old agent is closed after its
// last call. If an agent that cannot be served would replace a working agent, reload changes nothing and returns a
// *StrictError.
func (f *fleet) reload(ctx context.Context) (Change, error) {
	f.reloading.Lock()
	defer f.reloading.Unlock()
	if f.open.Err() != nil {
		return Change{}, errLeaving
	}
	found, err := f.find()
	if err != nil {
		return Change{}, err
	}
	old := f.current.Load()
	if err := f.vanished(old); err != nil {
		return Change{}, err
	}
	c := Change{
		Added: []string{}, Changed: []string{}, Removed: []string{}, Kept: []string{}, Rejected: []string{},
		Reasons: []string{}, Widened: []string{},
	}
	var all, fresh []*entry
	kept := map[*entry]bool{}
	if lost := old.lost(found); len(lost) > 0 {
		return Change{}, &StrictError{Rejected: lost}
	}
	names := map[string]bool{}
	for _, one := range found {
		names[one.Name] = true
		was := old.byName[one.Name]
		switch {
		case one.Problem != nil:
			c.Rejected = append(c.Rejected, one.Name)
			c.Reasons = append(c.Reasons, fmt.Sprintf("%s: %v", one.Name, one.Problem))
		case was != nil && was.seal == one.seal && !kept[was] && was.healthy():
			c.Kept = append(c.Kept, one.Name)
			kept[was] = true
			all = append(all, was)
			continue
		case was != nil && !was.rejected():
			c.Changed = append(c.Changed, one.Name)
			c.Widened = append(c.Widened, widened(was, one)...)
		default:
			c.Added = append(c.Added, one.Name)
		}
		e := f.entry(one)
		all, fresh = append(all, e), append(fresh, e)
	}
	for _, e := range old.all {
		if !e.rejected() && !names[e.Name] {
			c.Removed = append(c.Removed, e.Name)
		}
	}
	// A reload continues even if the caller disconnects.
	wait, cancel := context.WithTimeout(f.open, settleTime)
	defer cancel()
	f.prove(wait, fresh)
	if f.open.Err() != nil {
		f.retire(fresh)
		return Change{}, errLeaving
	}
	if lost := old.unproven(fresh); len(lost) > 0 {
		f.retire(fresh)
		return Change{}, &StrictError{Rejected: lost}
	}
	f.current.Store(newLineup(all))
	f.retire(slices.DeleteFunc(slices.Clone(old.all), func(e *entry) bool { return kept[e] }))
	return c, nil
}

// widened describes what the new agent may do and the old agent could not do.
func widened(was *entry, one Found) (all []string) {
	for _, w := range manifest.Diff(was.Manifest.Agent(), one.Manifest.Agent()).Widened {
		all = append(all, fmt.Sprintf("%s: %s: %s", one.Name, w.What, w.Detail))
	}
	return all
}

// retire closes agents in the background. Each agent is closed after its last call, or after Options.Grace.
func (f *fleet) retire(entries []*entry) {
	for _, e := range entries {
		f.leaving.Go(func() {
			ctx, cancel := context.WithTimeout(f.ctx, f.options.Grace)
			defer cancel()
			e.retire(ctx, false)
		})
	}
}

// lost returns the agents that are served now but would not be served after the reload, although their files still
// exist.
func (l *lineup) lost(found []Found) []Found {
	var lost []Found
	byPath := map[string]*Found{}
	for i := range found {
		byPath[found[i].Path] = &found[i]
	}
	for _, e := range l.all {
		now := byPath[e.Path]
		if e.rejected() || now != nil && now.Problem == nil {
			continue
		}
		if _, err := os.Lstat(e.Path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // the agent's file was removed
		}
		one := e.Found
		if one.Problem = errors.New("the agent's file is no longer a manifest"); now != nil {
			one.Problem = now.Problem
		}
		lost = append(lost, one)
	}
	return lost
}

// unproven returns the new agents that could not be verified but would replace a working agent.
func (l *lineup) unproven(fresh []*entry) []Found {
	var lost []Found
	for _, e := range fresh {
		replaces := func(was *entry) bool { return was.replacedBy(e) && was.healthy() }
		if s, why := e.state(); (s == Failed || s == Quarantined) && slices.ContainsFunc(l.all, replaces) {
			one := e.Found
			one.Problem = fmt.Errorf("the agent is %s: %s", s, why)
			lost = append(lost, one)
		}
	}
	return lost
}

// replacedBy reports whether the new entry replaces the entry e. This is the case if both have the same name, path or
// id.
func (e *entry) replacedBy(next *entry) bool {
	return e.Name == next.Name || e.Path == next.Path || e.id() != "" && e.id() == next.id()
}

// vanished returns an error if a folder is missing although agents from that folder are served. The folder is probably
// missing by accident. For example, its disk may not be mounted.
func (f *fleet) vanished(old *lineup) error {
	for _, folder := range f.options.Folders {
		_, err := os.Stat(folder)
		served := func(e *entry) bool { return !e.rejected() && sandbox.Inside(e.Path, folder) }
		if errors.Is(err, fs.ErrNotExist) && slices.ContainsFunc(old.all, served) {
			return fmt.Errorf("the agents cannot be read: %w", err)
		}
	}
	return nil
}

// healthy reports whether the agent works or is still starting. A reload restarts an agent that is not healthy, even if
// its files are unchanged.
func (e *entry) healthy() bool {
	s, _ := e.state()
	return s == Ready || s == Starting
}

// visit represents one request that uses an agent. The caller must call leave when the request has been answered.
type visit struct {
	*entry
	running Running
	leave   func()
}

// readyTime is the maximum time that a call waits for its agent to be verified.
const readyTime = time.Minute

func (v *visit) call(ctx context.Context, c *call.Call) (call.Result, error) {
	wait, cancel := context.WithTimeout(ctx, readyTime)
	_ = v.running.Ready(wait) // the agent may be not ready; the gateway then rejects the call and gives the reason
	cancel()
	return v.running.Call(ctx, c)
}

// enter starts the named agent if necessary and registers the request as a user of the agent. It returns a problem if
// the principal is not allowed to use the agent or the agent cannot be served.
func (f *fleet) enter(name string, p *identity.Principal) (*visit, *problem) {
	for {
		e, trouble := f.lookup(name, p)
		if trouble != nil {
			return nil, trouble
		}
		if e.rejected() {
			return nil, rejectedProblem(name)
		}
		if p.Kind == identity.ByKey && needsSignIn(e.agent()) {
			return nil, failure(codeBadKey, "the agent "+name+" requires a sign-in, so an API key is not enough",
				"sign in with the OpenID provider that the daemon's owner configured under [oidc] in config.toml")
		}
		if running, leave, ok := e.enter(); ok {
			return &visit{e, running, leave}, nil
		}
		if f.open.Err() != nil {
			return nil, leavingProblem()
		}
		// The agent retired after f.lookup returned it. The list already contains its successor, so try again.
	}
}

// lookup returns the named agent, even if the agent was rejected. It returns a problem if the principal is not allowed
// to use the agent, or if there is no such agent.
func (f *fleet) lookup(name string, p *identity.Principal) (*entry, *problem) {
	e := f.current.Load().byName[name]
	switch {
	case !p.MayUse(name):
		// The answer does not reveal whether the agent exists.
		return nil, failure("forbidden", "this key gives no access to an agent with this name",
			"ask an administrator to create a key with: ambit key new --agents NAME")
	case e == nil:
		return nil, failure("not_found", "there is no agent with this name", "to list the agents, run: ambit agents")
	}
	return e, nil
}

func rejectedProblem(name string) *problem {
	return failure("agent_rejected", "the agent "+name+" cannot be served", "to see the reason, run: ambit agents")
}

// close retires all agents and waits until they are closed. When ctx is done, close cancels the calls that are still
// running.
func (f *fleet) close(ctx context.Context) {
	f.shut() // cancels a reload that waits for new agents
	f.reloading.Lock()
	defer f.reloading.Unlock()
	for _, e := range f.current.Load().all {
		f.leaving.Go(func() { e.retire(ctx, true) })
	}
	// Agents that were retired by a reload have their own deadline. They must also stop when ctx is done.
	defer context.AfterFunc(ctx, f.stop)()
	f.leaving.Wait()
	f.stop()
}
