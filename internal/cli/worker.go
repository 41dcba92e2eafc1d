package cli

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/manifest"
)

type workerFlags struct {
	store       string
	folders     []string
	concurrency int
	grace       time.Duration
	production  bool
	isolation   isolationFlag
	logFormat   string
}

func newWorker(t *terminal) *cobra.Command {
	var f workerFlags
	cmd := verb("worker --store URL", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		return t.worker(ctx, &f)
	})
	cmd.Flags().StringVar(&f.store, "store", "", "the store as a postgres:// `URL`")
	cmd.Flags().StringArrayVar(&f.folders, "agents", nil,
		"a `folder` of programs; can be repeated (default agents/ in AMBIT_HOME)")
	cmd.Flags().IntVar(&f.concurrency, "concurrency", runtime.NumCPU(),
		"how many dispatches run at the same time (`N`)")
	cmd.Flags().DurationVar(&f.grace, "grace", 20*time.Second,
		"how much `time` running dispatches have to finish at shutdown")
	cmd.Flags().BoolVar(&f.production, "production", false, "refuse settings that are safe only for development")
	f.isolation.flag(cmd)
	logFlag(cmd, &f.logFormat)
	return cmd
}

func (t *terminal) worker(ctx context.Context, f *workerFlags) error {
	switch {
	case f.store == "":
		return usage("add --store postgres://…, or run ambit dispatch if you use only one machine",
			"a worker takes tasks from a shared store, but --store is missing")
	case f.concurrency < 1:
		return usage("use 1 or more", "--concurrency cannot be %d", f.concurrency)
	}
	folders, err := agentFolders(t.home, f.folders...)
	if err != nil {
		return err
	}
	if f.production {
		if err := fitForProduction(f.store); err != nil {
			return err
		}
	}
	if err := t.startLog(f.logFormat); err != nil {
		return err
	}
	o, err := t.hostOptions(development{isolation: f.isolation}, f.production)
	if err != nil {
		return err
	}
	if !o.Unconfined {
		if err := sandbox.Check(ctx, o.Isolation, o.Home.Dir()); err != nil {
			return asFailure(err) // otherwise the worker would accept tasks that it cannot run
		}
	}
	b, err := t.openStore(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	o.Store, o.Pool = b, sandbox.NewPool(f.concurrency+1, true)
	defer o.Pool.Close()
	ctx, reloads, stop := takeSignals(ctx)
	defer stop()
	programs := new(daemon.Served)
	d, err := t.programDaemon(o, folders, programs)
	if err != nil {
		return err
	}
	defer d.Close()
	names := t.programNames(d)
	if len(names) == 0 {
		return no("put a program's folder into one of these folders, or name another folder with --agents",
			"no program in %s takes tasks", strings.Join(folders, ", "))
	}
	queue, err := dispatch.Open(ctx, dispatch.Options{
		Store: b, URL: f.store, Gateways: programs, Concurrency: f.concurrency, Log: t.troublef,
	})
	if err != nil {
		return err
	}
	defer closeQueue(ctx, queue, f.grace)
	if t.json {
		err = t.jsonLine(map[string]any{"programs": names, "concurrency": f.concurrency})
	} else {
		what := count(len(names), "program")
		t.printf("%s tasks for %s, at most %s at a time\n", t.paint(green, "taking"), what, count(f.concurrency, "task"))
		err = t.flush()
	}
	if t.logsElsewhere() {
		address, _ := withoutPassword(f.store)
		t.logf("ambit %s takes tasks for %s, with the store at %s", version, strings.Join(names, ", "), address)
	}
	for err == nil {
		select {
		case <-ctx.Done():
			t.logf("shutting down; running dispatches can finish within the grace period")
			return nil
		case <-reloads:
			t.reload(ctx, d)
			t.programNames(d)
			if err := queue.Reload(ctx); err != nil {
				t.troublef("the queue could not be notified: %v", err)
			}
		}
	}
	return err
}

var errNoProgram = errors.New("the agent is not a program that takes tasks")

// programDaemon returns the daemon of a worker. The daemon runs the programs in the given folders, but does not listen
// for requests.
func (t *terminal) programDaemon(
	o host.Options, folders []string, programs *daemon.Served,
) (*daemon.Daemon, error) {
	hosting := &daemon.Hosting{
		Host: o, HTTP: front.HTTPOptions{Keys: o.Store.Keys}, Metrics: daemon.NewMetrics(),
		Log: func(agent, alias, line string) { logLine(t.log, line, "agent", agent, "source", alias) },
	}
	return daemon.New(daemon.Options{
		Folders: folders, Start: hosting.Start, Journal: o.Store.Journal,
		Served: programs, Log: t.troublef,
		Grace: 24 * time.Hour, // running dispatches of a replaced program can finish
		CanRun: func(m *manifest.Manifest) error {
			if !dispatch.TakesIntents(m.Agent()) {
				return errNoProgram
			}
			return nil
		},
	})
}

// programNames returns the names of the usable programs. It logs why other programs cannot be used.
func (t *terminal) programNames(d *daemon.Daemon) (names []string) {
	for _, c := range d.Agents() {
		switch {
		case c.State != daemon.Rejected:
			names = append(names, c.Name)
		case c.Error != errNoProgram.Error():
			t.troublef("%s cannot be used: %s", c.Name, c.Error)
		}
	}
	slices.Sort(names)
	return names
}

// openQueue opens the dispatch queue of a daemon. If the store is shared and this machine cannot isolate programs,
// the queue leaves all dispatches to workers.
func (t *terminal) openQueue(ctx context.Context, s *serveFlags, o *host.Options) (*dispatch.Queue, error) {
	if s.concurrency < 1 {
		return nil, usage("use 1 or more", "--concurrency cannot be %d", s.concurrency)
	}
	options := dispatch.Options{
		Store: o.Store, URL: s.store, Gateways: s.Served, Concurrency: s.concurrency, Daemon: true, Log: t.troublef,
	}
	if s.store != "" && !o.Unconfined {
		if err := sandbox.Check(ctx, o.Isolation, o.Home.Dir()); err != nil {
			t.troublef("dispatches are left to workers, because this machine cannot isolate programs: %v", err)
			options.Gateways = nil
		}
	}
	d, err := dispatch.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	s.Intents = d
	return d, nil
}

// closeQueue closes a queue. Running dispatches can finish within the grace period, even if ctx is already cancelled.
func closeQueue(ctx context.Context, d *dispatch.Queue, grace time.Duration) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	d.Close(last)
}
