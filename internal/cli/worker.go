package cli

import (
	"context"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
)

// workerFlags are the flags of ambit worker.
type workerFlags struct {
	store       string
	concurrency int
	grace       time.Duration
	production  bool
	isolation   isolationFlag
}

func newWorker(t *terminal) *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:     "worker --store URL",
		GroupID: groupRun,
		Short:   "Take dispatches from the shared queue",
		Long: "Take dispatches from the queue that a PostgreSQL store holds, and do them. There may be any number of workers,\n" +
			"on any machines; each does what the programs in its own AMBIT_HOME and COVENANT_HOME can do, to the byte of their\n" +
			"manifests, and leaves the rest to others. All of them need the same root key: copy keys/root in AMBIT_HOME.\n" +
			"SIGHUP reloads the programs; running dispatches continue. SIGTERM and SIGINT finish running dispatches, then\n" +
			"exit.",
		Example: "  ambit worker --store postgres://ambit@db/ambit\n  ambit worker --store postgres://ambit@db/ambit --concurrency 8",
		Args:    exactly(0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.worker(cmd.Context(), &f) },
	}
	cmd.Flags().StringVar(&f.store, "store", "", "the store as a postgres:// `URL`")
	cmd.Flags().IntVar(&f.concurrency, "concurrency", runtime.NumCPU(), "how many dispatches are done at the same time (`N`)")
	cmd.Flags().DurationVar(&f.grace, "grace", 20*time.Second, "how much `time` dispatches under way have at the end")
	cmd.Flags().BoolVar(&f.production, "production", false, "refuse what is only good for trying things out")
	f.isolation.flag(cmd)
	return cmd
}

func (t *terminal) worker(ctx context.Context, f *workerFlags) error {
	switch {
	case f.store == "":
		return usage("give --store postgres://…; on one machine ambit dispatch needs no worker", "a worker takes from a shared store, and none is named")
	case f.concurrency < 1:
		return usage("give 1 or more", "a worker that does %d dispatches at a time does none", f.concurrency)
	}
	if f.production {
		if err := fitForProduction(f.store); err != nil {
			return err
		}
	}
	o, err := t.hostOptions(development{isolation: f.isolation}, f.production)
	if err != nil {
		return err
	}
	if !o.Unconfined {
		if err := sandbox.Check(ctx, o.Isolation, o.Home.Dir()); err != nil {
			return asFailure(err) // it would take what it cannot do
		}
	}
	b, err := t.openStore(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	o.Books, o.Pool = b, sandbox.NewPool(f.concurrency+1, true)
	defer o.Pool.Close()
	ctx, reloads, stop := takeSignals(ctx)
	defer stop()
	bench := &programSet{programs: map[string]*runningProgram{}}
	defer bench.close()
	if err := t.loadPrograms(ctx, bench, o); err != nil {
		return err
	}
	if len(bench.Digests()) == 0 {
		return no("put their folders into agents/ in AMBIT_HOME or COVENANT_HOME", "there is no program here that could be given a task")
	}
	return t.takeDispatches(ctx, f, b, bench, func(d *dispatch.Queue) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-reloads:
				t.reloadPrograms(ctx, d, bench, o)
			}
		}
	})
}

// reloadPrograms reads the programs again. If that fails, nothing changes.
func (t *terminal) reloadPrograms(ctx context.Context, d *dispatch.Queue, w *programSet, o host.Options) {
	err := t.loadPrograms(ctx, w, o)
	if err == nil {
		err = d.Reload(ctx)
	}
	if err != nil {
		t.logf("the programs could not be read again: %v", err)
		return
	}
	t.logf("read again: taking dispatches to %s", count(len(w.Digests()), "program"))
}

// takeDispatches takes dispatches until the function until returns.
func (t *terminal) takeDispatches(ctx context.Context, f *workerFlags, b *store.Store, w *programSet, until func(*dispatch.Queue)) error {
	d, err := dispatch.Open(ctx, dispatch.Options{
		Store: b, URL: f.store, Gateways: w, Concurrency: f.concurrency, Log: t.logf,
	})
	if err != nil {
		return err
	}
	if t.json {
		line, err := json.Marshal(map[string]any{"programs": w.names(), "concurrency": f.concurrency})
		if err != nil {
			return err
		}
		t.printf("%s\n", line)
	} else {
		t.printf("%s dispatches to %s, %d at a time\n", t.paint(green, "taking"), count(len(w.Digests()), "program"), f.concurrency)
	}
	if err := t.flush(); err != nil {
		return err
	}
	until(d)
	t.logf("finishing what is under way")
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.grace)
	defer cancel()
	d.Close(last)
	return nil
}

// programSet is the programs of a worker, by the digest of their manifest.
type programSet struct {
	mu       sync.Mutex
	programs map[string]*runningProgram
	closing  sync.WaitGroup
}

// runningProgram is a program with the number of its running dispatches. A removed program is
// closed after the last of them.
type runningProgram struct {
	*host.Agent
	users int
	gone  bool
}

// loadPrograms starts new programs and releases removed ones. It logs and skips programs that
// cannot be used.
func (t *terminal) loadPrograms(ctx context.Context, w *programSet, o host.Options) error {
	found, err := daemon.Find(programFolders(o.Home)...)
	if err != nil {
		return err
	}
	usable := map[string]daemon.Found{}
	for _, f := range found {
		switch {
		case f.Problem != nil:
			t.logf("%s cannot be used: %v", f.Name, f.Problem)
		case dispatch.TakesIntents(f.Manifest.Agent()):
			usable[f.Manifest.Agent().Digest] = f
		}
	}
	w.replace(usable, func(f daemon.Found) *host.Agent {
		one := o
		one.Name = f.Name
		one.Log = func(_, line string) { t.serverLog(f.Name, line) }
		// Programs go on to their end: the desk says when.
		return host.Start(context.WithoutCancel(ctx), f.Manifest, one)
	})
	return nil
}

// replace makes the programs those that were found.
func (w *programSet) replace(found map[string]daemon.Found, start func(daemon.Found) *host.Agent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for digest, s := range w.programs {
		if f, ok := found[digest]; ok && f.Manifest.Path == s.Manifest().Path && f.Name == s.Name() {
			delete(found, digest)
			continue
		}
		delete(w.programs, digest)
		if s.gone = true; s.users == 0 {
			w.closing.Go(s.Close)
		}
	}
	for digest, f := range found {
		w.programs[digest] = &runningProgram{Agent: start(f)}
	}
}

func (w *programSet) Digests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.programs))
}

func (w *programSet) Open(digest string) (dispatch.Gateway, func(), bool) {
	w.mu.Lock()
	s := w.programs[digest]
	if s != nil {
		s.users++
	}
	w.mu.Unlock()
	if s == nil {
		return nil, nil, false
	}
	leave := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if s.users--; s.users == 0 && s.gone {
			w.closing.Go(s.Close)
		}
	}
	if s.Gateway() == nil {
		leave()
		return nil, nil, false
	}
	return s.Gateway(), leave, true
}

func (w *programSet) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, s := range w.programs {
		names = append(names, s.Name())
	}
	slices.Sort(names)
	return names
}

func (w *programSet) close() {
	w.replace(nil, nil)
	w.closing.Wait()
}

var _ dispatch.Gateways = (*programSet)(nil)

// openDesk opens the desk of a daemon.
func (t *terminal) openDesk(ctx context.Context, s *serveFlags, o *host.Options) (*dispatch.Queue, error) {
	if s.concurrency < 1 {
		return nil, usage("give 1 or more", "no program can run if %d run at the same time", s.concurrency)
	}
	s.Programs = new(daemon.Programs)
	options := dispatch.Options{
		Store: o.Books, URL: s.store, Gateways: s.Programs, Concurrency: s.concurrency, Daemon: true, Log: t.logf,
	}
	if s.store != "" && !o.Unconfined {
		if err := sandbox.Check(ctx, o.Isolation, o.Home.Dir()); err != nil {
			t.logf("dispatches are left to workers, since this machine cannot isolate programs: %v", err)
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

// closeWith closes a desk when ctx ends; the channel is closed when that is done.
func closeWith(ctx context.Context, d *dispatch.Queue, grace time.Duration) <-chan struct{} {
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		d.Close(last)
	})
	return closed
}
