package daemon

import (
	"context"
	"time"
)

// recoverEvery is how often the daemon searches for calls of processes that died.
const recoverEvery = 15 * time.Second

// recover takes over the calls of processes that died, until ctx is done. One search serves all agents, because a search
// of each agent would cost an idle daemon CPU time in proportion to the number of agents.
func (d *Daemon) recover(ctx context.Context) {
	if d.options.Abandoned == nil {
		return
	}
	ticker := time.NewTicker(d.options.recoverEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.fleet.proved:
		case <-ticker.C:
		}
		names, err := d.options.Abandoned(ctx)
		if err != nil && ctx.Err() == nil {
			d.options.Log("cannot search for unfinished calls of processes that have exited: %v", err)
		}
		d.fleet.recover(names)
	}
}

// recover lets the agents with these names take over calls. If none of them is running, another agent does it: every
// agent can record that the outcome of a call is unknown, but only the agent of the call can send it again.
func (f *fleet) recover(names []string) {
	if len(names) == 0 {
		return
	}
	l, done := f.current.Load(), false
	for _, name := range names {
		if e := l.byName[name]; e != nil && e.recover() {
			done = true
		}
	}
	for i := 0; i < len(l.all) && !done; i++ {
		done = l.all[i].recover()
	}
}
