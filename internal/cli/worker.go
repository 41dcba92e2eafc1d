package cli

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/dispatch"
	"github.com/ambit-run/ambit/internal/host"
	"github.com/ambit-run/ambit/internal/sandbox"
	"github.com/ambit-run/ambit/internal/serve"
)

// working are the flags of ambit worker.
type working struct {
	store       string
	concurrency int
	grace       time.Duration
	isolation   isolating
}

func newWorker(t *terminal) *cobra.Command {
	var f working
	cmd := &cobra.Command{
		Use:     "worker --store URL",
		GroupID: groupRun,
		Short:   "Take dispatches from the shared queue",
		Long: "Take dispatches from the queue that a PostgreSQL store holds, and do them. There may be any number of workers,\n" +
			"on any machines; each does what the programs in its own AMBIT_HOME and COVENANT_HOME can do, to the byte of their\n" +
			"manifests, and leaves the rest to others. All of them need the same root key: copy keys/root in AMBIT_HOME.\n" +
			"SIGTERM and SIGINT take no more, and finish what is under way.",
		Example: "  ambit worker --store postgres://ambit@db/ambit\n  ambit worker --store postgres://ambit@db/ambit --concurrency 8",
		Args:    exactly(0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.worker(cmd.Context(), &f) },
	}
	cmd.Flags().StringVar(&f.store, "store", "", "the store as a postgres:// `URL`")
	cmd.Flags().IntVar(&f.concurrency, "concurrency", runtime.NumCPU(), "how many dispatches are done at the same time (`N`)")
	cmd.Flags().DurationVar(&f.grace, "grace", 20*time.Second, "how much `time` dispatches under way have at the end")
	f.isolation.flag(cmd)
	return cmd
}

func (t *terminal) worker(ctx context.Context, f *working) error {
	switch {
	case f.store == "":
		return usage("give --store postgres://…; on one machine ambit dispatch needs no worker", "a worker takes from a shared store, and none is named")
	case f.concurrency < 1:
		return usage("give 1 or more", "a worker that does %d dispatches at a time does none", f.concurrency)
	}
	o, err := t.hosting(development{isolation: f.isolation}, false)
	if err != nil {
		return err
	}
	if !o.Unconfined {
		if err := sandbox.Check(ctx, o.Isolation, o.Home.Dir()); err != nil {
			return asFailure(err) // it would take what it cannot do
		}
	}
	b, err := t.books(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	o.Books, o.Pool = b, sandbox.NewPool(f.concurrency+1, true)
	defer o.Pool.Close()
	ctx, _, stop := takeSignals(ctx)
	defer stop()
	bench, err := t.bench(ctx, o)
	if err != nil {
		return err
	}
	defer bench.close()
	return t.work(ctx, f, b, bench)
}

// work takes dispatches until ctx ends.
func (t *terminal) work(ctx context.Context, f *working, b *books.Books, w *workbench) error {
	d, err := dispatch.Open(ctx, dispatch.Options{
		Books: b, URL: f.store, Doors: w, Concurrency: f.concurrency, Log: t.tell,
	})
	if err != nil {
		return &failure{code: exitMissing, err: err}
	}
	if t.json {
		line, err := json.Marshal(map[string]any{"programs": w.names(), "concurrency": f.concurrency})
		if err != nil {
			return err
		}
		t.printf("%s\n", line)
	} else {
		t.printf("%s dispatches to %s, %d at a time\n", t.paint(green, "taking"), count(len(w.agents), "program"), f.concurrency)
	}
	if err := t.flush(); err != nil {
		return err
	}
	<-ctx.Done()
	t.tell("finishing what is under way")
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.grace)
	defer cancel()
	d.Close(last)
	return nil
}

// workbench is the programs of a worker, by the digest of their manifest.
type workbench struct{ agents map[string]*host.Agent }

// bench brings every program to life that can be found here. What cannot be used
// is told and left out.
func (t *terminal) bench(ctx context.Context, o host.Options) (*workbench, error) {
	found, err := serve.Find(programFolders(o.Home)...)
	if err != nil {
		return nil, &failure{code: exitMissing, err: err}
	}
	w := &workbench{map[string]*host.Agent{}}
	for _, f := range found {
		switch {
		case f.Problem != nil:
			t.tell("%s cannot be used: %v", f.Name, f.Problem)
		case dispatch.TakesIntents(f.Manifest.Agent()):
			// Programs go on to their end: the desk says when.
			one := o
			one.Name = f.Name
			one.Log = func(_, line string) { t.serverLog(f.Name, line) }
			w.agents[f.Manifest.Agent().Digest] = host.Start(context.WithoutCancel(ctx), f.Manifest, one)
		}
	}
	if len(w.agents) == 0 {
		return nil, no("put their folders into agents/ in AMBIT_HOME or COVENANT_HOME", "there is no program here that could be given a task")
	}
	return w, nil
}

func (w *workbench) Digests() []string {
	var digests []string
	for digest := range w.agents {
		digests = append(digests, digest)
	}
	return digests
}

func (w *workbench) Open(digest string) (dispatch.Door, func(), bool) {
	a := w.agents[digest]
	if a == nil || a.Gateway() == nil {
		return nil, nil, false
	}
	return a.Gateway(), func() {}, true
}

func (w *workbench) names() []string {
	var names []string
	for _, a := range w.agents {
		names = append(names, a.Name())
	}
	slices.Sort(names)
	return names
}

func (w *workbench) close() {
	for _, a := range w.agents {
		a.Close()
	}
}

var _ dispatch.Doors = (*workbench)(nil)

// openDesk opens the desk of a daemon.
func (t *terminal) openDesk(ctx context.Context, s *serving, o *host.Options) (*dispatch.Desk, error) {
	if s.concurrency < 1 {
		return nil, usage("give 1 or more", "no program can run if %d run at the same time", s.concurrency)
	}
	s.Programs = new(serve.Programs)
	options := dispatch.Options{
		Books: o.Books, URL: s.store, Doors: s.Programs, Concurrency: s.concurrency, Daemon: true, Log: t.tell,
	}
	if s.store != "" && !o.Unconfined {
		if err := sandbox.Check(ctx, o.Isolation, o.Home.Dir()); err != nil {
			t.tell("dispatches are left to workers, since this machine cannot isolate programs: %v", err)
			options.Doors = nil
		}
	}
	d, err := dispatch.Open(ctx, options)
	if err != nil {
		return nil, &failure{code: exitMissing, err: err}
	}
	s.Intents = d
	return d, nil
}

// closeWith closes a desk when ctx ends, and tells when that is done.
func closeWith(ctx context.Context, d *dispatch.Desk, grace time.Duration) <-chan struct{} {
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		d.Close(last)
	})
	return closed
}
