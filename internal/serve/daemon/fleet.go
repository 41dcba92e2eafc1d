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

	"github.com/ambit-run/ambit/internal/store/identity"
)

const (
	// proveLimit bounds how many agents are proven at the same time.
	proveLimit = 4
	// settleTime bounds how long a reload waits for new agents to be proven. After that they take
	// over anyway.
	settleTime = 2 * time.Minute
)

// fleet is the agents of a daemon. The served agents are one immutable list, which a reload
// replaces as a whole.
type fleet struct {
	options *Options
	ctx     context.Context // of all agents
	stop    context.CancelFunc
	open    context.Context // ends when the daemon begins to shut down
	shut    context.CancelFunc

	reloading sync.Mutex
	current   atomic.Pointer[lineup]
	leaving   sync.WaitGroup // retired agents that are still running
}

// lineup is the list of agents at one time.
type lineup struct {
	all    []*entry // in the order of the folders
	byName map[string]*entry
}

func newLineup(all []*entry) *lineup {
	l := &lineup{all: all, byName: map[string]*entry{}}
	for _, e := range all {
		// A name belongs to the agent that is served under it, if there is one.
		if l.byName[e.Name] == nil || !e.rejected() {
			l.byName[e.Name] = e
		}
	}
	return l
}

// StrictError reports rejected agents where none are allowed.
type StrictError struct{ Rejected []Found }

func (e *StrictError) Error() string {
	first := e.Rejected[0]
	more := ""
	if n := len(e.Rejected); n > 1 {
		more = fmt.Sprintf(" (and %d more)", n-1)
	}
	return fmt.Sprintf("%s cannot be served: %v%s", first.Name, first.Problem, more)
}

// newFleet reads the agents. It starts none.
func newFleet(o *Options) (*fleet, error) {
	f := &fleet{options: o}
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

// find reads the folders and checks every agent.
func (f *fleet) find() ([]Found, error) {
	found, err := readAll(f.options.Reading, f.options.Folders)
	if err != nil {
		return nil, fmt.Errorf("the agents cannot be read: %w", err)
	}
	for i := range found {
		one := &found[i]
		if one.Problem == nil && f.options.CanRun != nil {
			one.Problem = f.options.CanRun(one.Manifest)
		}
		if one.Problem == nil && f.options.Production {
			one.Problem = one.fitForProduction()
		}
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

// prove starts agents, a few at a time, and waits until each is proven or has failed.
func (f *fleet) prove(ctx context.Context, entries []*entry) {
	turns := make(chan struct{}, proveLimit)
	var wg sync.WaitGroup
	defer wg.Wait()
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

// Change lists the agents that a reload affected, by name.
type Change struct {
	Added    []string `json:"added"`
	Changed  []string `json:"changed"`
	Removed  []string `json:"removed"`
	Kept     []string `json:"kept"`
	Rejected []string `json:"rejected"`
}

var errLeaving = errors.New("the daemon is shutting down")

// reload reads the folders again. Unchanged agents keep running. The others are started and proven
// beside the old ones; then the list is replaced in one step, and old agents end after their last
// call. If a working agent would be replaced by one that cannot be served, reload changes nothing.
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
	c := Change{Added: []string{}, Changed: []string{}, Removed: []string{}, Kept: []string{}, Rejected: []string{}}
	var all, fresh []*entry
	kept := map[*entry]bool{}
	if lost := old.lost(found); len(lost) > 0 {
		return Change{}, &StrictError{Rejected: lost}
	}
	for _, one := range found {
		was := old.byName[one.Name]
		switch {
		case one.Problem != nil:
			c.Rejected = append(c.Rejected, one.Name)
		case was != nil && was.seal == one.seal && !kept[was] && was.well():
			c.Kept = append(c.Kept, one.Name)
			kept[was] = true
			all = append(all, was)
			continue
		case was != nil && !was.rejected():
			c.Changed = append(c.Changed, one.Name)
		default:
			c.Added = append(c.Added, one.Name)
		}
		e := f.entry(one)
		all, fresh = append(all, e), append(fresh, e)
	}
	for _, e := range old.all {
		if !e.rejected() && !slices.ContainsFunc(found, func(one Found) bool { return one.Name == e.Name }) {
			c.Removed = append(c.Removed, e.Name)
		}
	}
	// A reload completes even if the caller disconnects.
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

// retire ends agents after their last call.
func (f *fleet) retire(entries []*entry) {
	for _, e := range entries {
		f.leaving.Go(func() {
			ctx, cancel := context.WithTimeout(f.ctx, f.options.Grace)
			defer cancel()
			e.retire(ctx, false)
		})
	}
}

// lost returns the served agents that would no longer be served although their files exist.
func (l *lineup) lost(found []Found) []Found {
	var lost []Found
	for _, e := range l.all {
		at := slices.IndexFunc(found, func(one Found) bool { return one.Path == e.Path })
		if e.rejected() || at >= 0 && found[at].Problem == nil {
			continue
		}
		if _, err := os.Lstat(e.Path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // it was removed
		}
		one := e.Found
		if one.Problem = errors.New("its file is no longer a manifest"); at >= 0 {
			one.Problem = found[at].Problem
		}
		lost = append(lost, one)
	}
	return lost
}

// unproven returns the new agents that failed where the old agent works.
func (l *lineup) unproven(fresh []*entry) []Found {
	var lost []Found
	for _, e := range fresh {
		if s, why := e.state(); (s == Failed || s == Quarantined) && slices.ContainsFunc(l.all, func(was *entry) bool { return was.succeeded(e) && was.well() }) {
			one := e.Found
			one.Problem = fmt.Errorf("the agent is %s: %s", s, why)
			lost = append(lost, one)
		}
	}
	return lost
}

// succeeded reports whether by replaces the agent.
func (e *entry) succeeded(by *entry) bool {
	return e.Name == by.Name || e.Path == by.Path || e.id() != "" && e.id() == by.id()
}

// vanished reports a folder that is missing together with its agents: more likely an unmounted disk
// than a decision.
func (f *fleet) vanished(old *lineup) error {
	for _, folder := range f.options.Folders {
		_, err := os.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) && slices.ContainsFunc(old.all, func(e *entry) bool { return !e.rejected() && within(folder, e.Path) }) {
			return fmt.Errorf("the agents cannot be read: %w", err)
		}
	}
	return nil
}

// well reports whether an agent may keep running as it is. A reload starts failed agents again.
func (e *entry) well() bool {
	s, _ := e.state()
	return s == Ready || s == Starting
}

// visit is one request's use of an agent.
type visit struct {
	*entry
	running Running
	leave   func()
}

// enter finds an agent for a principal and counts the request.
func (f *fleet) enter(name string, p *identity.Principal) (*visit, *problem) {
	for {
		e, trouble := f.see(name, p)
		if trouble != nil {
			return nil, trouble
		}
		if e.rejected() {
			return nil, rejectedProblem(name)
		}
		if running, leave, ok := e.enter(); ok {
			return &visit{e, running, leave}, nil
		}
		if f.open.Err() != nil {
			return nil, leavingProblem()
		}
		// It retired meanwhile; its successor is already in the list.
	}
}

// see finds an agent that a principal may know about.
func (f *fleet) see(name string, p *identity.Principal) (*entry, *problem) {
	e := f.current.Load().byName[name]
	switch {
	case !p.MayUse(name):
		// The same answer whether the agent exists or not.
		return nil, &problem{
			status: 403, Code: "forbidden", Message: "this key may not use an agent with this name",
			Hint: "request a key for it: ambit key new --agents NAME",
		}
	case e == nil:
		return nil, &problem{status: 404, Code: "not_found", Message: "there is no agent with this name", Hint: "list them: ambit agents"}
	}
	return e, nil
}

func rejectedProblem(name string) *problem {
	return &problem{
		status: 503, Code: "agent_rejected", Message: "the agent " + name + " cannot be served",
		Hint: "see the reason: ambit agents",
	}
}

// close retires every agent. Open calls may continue until ctx ends.
func (f *fleet) close(ctx context.Context) {
	f.shut() // a waiting reload ends
	f.reloading.Lock()
	defer f.reloading.Unlock()
	for _, e := range f.current.Load().all {
		f.leaving.Go(func() { e.retire(ctx, true) })
	}
	// Agents that a reload retired have their own deadline, but not beyond ctx.
	defer context.AfterFunc(ctx, f.stop)()
	f.leaving.Wait()
	f.stop()
}
