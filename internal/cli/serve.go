package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/manifest"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	daemon.Options
	store       string
	folders     []string
	dev         development
	approval    approvalFlags
	expose      []string
	concurrency int
	serverLog   string
}

func newServe(t *terminal) *cobra.Command {
	var s serveFlags
	cmd := &cobra.Command{
		Use:     "serve",
		GroupID: groupRun,
		Short:   "Serve every agent of a folder over HTTP",
		Long: "Serve every agent of a folder at /mcp/NAME, and a JSON API. Every request needs a key: make one with\n" +
			"ambit key new, or use the one in the key file, which is valid for this run only. An agent that cannot be\n" +
			"served is listed as rejected, and the rest run. SIGHUP or ambit reload reads the folder again; SIGTERM and\n" +
			"SIGINT finish running calls, then exit.",
		Example: "  ambit serve\n  ambit serve --agents ./agents --listen 127.0.0.1:0 --json\n  ambit serve --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem --production",
		Args:    exactly(0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.serve(cmd.Context(), &s) },
	}
	f := cmd.Flags()
	f.StringVar(&s.Listen, "listen", "127.0.0.1:7411", "the `address` to listen on; port 0 picks a free one")
	f.StringArrayVar(&s.folders, "agents", nil, "a `folder` of agents; may be repeated (default agents/ in AMBIT_HOME)")
	f.StringVar(&s.store, "store", "", "keep state at this postgres:// `URL` instead of in AMBIT_HOME")
	f.BoolVar(&s.Strict, "strict", false, "do not start, or reload, if an agent is rejected")
	f.BoolVar(&s.Production, "production", false, "refuse settings that are only safe for development")
	f.StringVar(&s.Cert, "tls-cert", "", "the `file` of the TLS certificate")
	f.StringVar(&s.Key, "tls-key", "", "the `file` of the TLS key")
	f.BoolVar(&s.BehindProxy, "behind-proxy", false, "listen beyond loopback without TLS, because a proxy in front terminates it")
	f.StringVar(&s.PublicURL, "public-url", "", "the `URL` that clients use")
	f.BoolVar(&s.MetricsOpen, "metrics-open", false, "serve /metrics without a key")
	f.DurationVar(&s.Idle, "idle", 0, "stop the servers of an agent after this idle `time`; they start again when needed")
	f.StringSliceVar(&s.expose, "expose", nil, "pass through what no manifest declares: "+strings.Join(front.Exposable, ", "))
	s.dev.flags(cmd)
	s.approval.flags(cmd)
	s.dev.isolation.flag(cmd)
	f.IntVar(&s.concurrency, "concurrency", runtime.NumCPU(), "how many programs run at the same time (`N`)")
	f.StringVar(&s.serverLog, "server-log", "", "write the output of tool servers to this `file` instead of standard error")
	f.DurationVar(&s.Grace, "grace", 20*time.Second, "how much `time` running calls get at shutdown")
	return cmd
}

func (t *terminal) serve(ctx context.Context, s *serveFlags) error {
	h := t.home
	var err error
	if s.Folders, err = agentFolders(h, s.folders...); err != nil {
		return err
	}
	if s.Production {
		if err := fitForProduction(s.store); err != nil {
			return err
		}
	}
	s.Trace, err = daemon.TraceFromEnv(os.Getenv, version)
	if err != nil {
		return usage("write it as http://HOST:4318", "%w", err)
	}
	oidc, err := identity.ReadOIDC(h.Config())
	if err != nil {
		return usage("fix the file, or remove the table", "%w", err)
	}
	if oidc != nil {
		s.OIDC = identity.NewOIDC(*oidc)
	}
	b, err := t.openStoreWith(ctx, s.store, store.Open)
	if err != nil {
		return err
	}
	b.Journal.KeepDaybook()
	err = t.serveWith(ctx, s, h, b)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if traceErr := s.Trace.Close(last); traceErr != nil {
		t.logf("cannot send the last traces: %v", traceErr)
	}
	if closeErr := b.Close(); err == nil && closeErr != nil {
		return &failure{code: exitMissing, err: closeErr}
	}
	return err
}

// waitingSandboxes bounds the pool of prepared sandboxes. A sandbox is prepared when one
// like it has ended, so a daemon without programs has none.
const waitingSandboxes = 4

// serveWith serves with an open store.
func (t *terminal) serveWith(ctx context.Context, s *serveFlags, h home.Home, b *store.Store) error {
	ctx, reloads, stop := takeSignals(ctx)
	defer stop()
	s.Metrics = daemon.NewMetrics()
	timed := *b
	timed.DB = s.Metrics.Timed(b.DB)
	b.Journal.Through(timed.DB)
	o, err := t.hostOptions(s.dev, s.Production)
	if err != nil {
		return err
	}
	s.Reading.LoopbackHTTP = s.dev.loopbackHTTP
	o.Books, o.Approvals = &timed, s.approval.Approvals
	o.Reviewed, s.Tickets = reviewed(b, s.Production), b.Keys
	o.Persist = true
	if o.Expose, err = exposed(s.expose); err != nil {
		return err
	}
	o.Pool = sandbox.NewPool(waitingSandboxes, true)
	defer o.Pool.Close()
	log, closeLog, err := t.logServersTo(s.serverLog)
	if err != nil {
		return err
	}
	defer closeLog()
	hosting := &daemon.Hosting{
		Host: o, HTTP: front.HTTPOptions{Keys: b.Keys, Hosts: s.PublicHosts()},
		Metrics: s.Metrics, Production: s.Production,
		Log: log,
	}
	s.Neighbours, s.Approvals = new(daemon.Neighbours), daemon.ApprovalsOf(b)
	s.Tidy = daemon.TidierOf(b)
	if err := t.retain(ctx, h, b.Journal); err != nil {
		return err
	}
	hosting.Host.Agents = s.Neighbours
	runKey, key := identity.NewPassingKey()
	s.Start, s.CanRun = hosting.Start, s.canRun(canServe(ctx, b, s.Production))
	s.APIKeys, s.Passing, s.Journal = identity.NewAPIKeys(b.DB), runKey, b.Journal
	s.Version, s.Log = version, t.logf
	s.PolicyProblem = func() string { return t.rules(h).Status().Problem }
	desk, err := t.openDesk(ctx, s, &o)
	if err != nil {
		return err
	}
	closed := closeWith(ctx, desk, s.Grace)
	defer func() {
		stop() // ends ctx, on which closed depends
		<-closed
	}()
	hosting.Turns = desk
	d, err := daemon.New(s.Options)
	if err != nil {
		return t.cannotServe(err)
	}
	if err := desk.Reload(ctx); err != nil {
		d.Close()
		return err
	}
	err = d.OpenConsole(ctx, &daemon.ConsoleOptions{
		Store: b, Credentials: o.Credentials, Vault: credential.Open(h), Operator: o.Operator, PolicyFile: h.Policy(),
		Needs: t.consoleNeeds,
	})
	if err != nil {
		d.Close()
		return err
	}
	return t.listen(ctx, s, h, d, key, reloads)
}

// canRun returns a check whether an agent can be served. In the folders of the home ids are
// unique; in a folder given by --agents, a program may have the id of an installed one.
func (s *serveFlags) canRun(canServe func(*manifest.Manifest) error) func(*manifest.Manifest) error {
	if len(s.folders) == 0 {
		return canServe
	}
	return func(m *manifest.Manifest) error {
		if err := soleID(m); err != nil {
			return err
		}
		return canServe(m)
	}
}

// listen serves until ctx ends, and reloads the agents on each signal. The key is valid for
// this run.
func (t *terminal) listen(ctx context.Context, s *serveFlags, h home.Home, d *daemon.Daemon, key string, reloads <-chan os.Signal) error {
	l, url, err := d.Listen()
	if err != nil {
		d.Close()
		return &failure{code: exitMissing, err: err, hint: addressHint(ctx, h)}
	}
	presence := daemon.Presence{URL: url, PID: os.Getpid(), Certificate: d.Certificate()}
	presence.Store, presence.StorePassword = withoutPassword(s.store)
	if presence.KeyFile, err = daemon.WriteKey(h, key); err != nil {
		d.Close()
		return &failure{code: exitMissing, err: errors.Join(err, l.Close())}
	}
	defer daemon.Leave(h, presence)
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, l) }()
	other, err := daemon.Announce(ctx, h, presence)
	switch {
	case err != nil:
		t.logf("other commands will not find this daemon: %v", err)
	case other != nil:
		t.logf("another daemon runs at %s, and ambit agents, ambit reload and ambit console use that one: "+
			"stop it, or start this one with another AMBIT_HOME", other.URL)
	}
	proven := make(chan struct{})
	go func() {
		defer close(proven)
		d.Prove(ctx)
	}()
	if err := t.ready(ctx, d, s, presence, err == nil && other == nil, proven); err != nil {
		t.logf("%v", err)
	}
	for {
		select {
		case err := <-ended:
			if err != nil {
				return no("", "%w", err)
			}
			return nil
		case <-reloads:
			t.reload(ctx, d) // the daemon ends it early at shutdown
		}
	}
}

// reload reads the agents again after a signal.
func (t *terminal) reload(ctx context.Context, d *daemon.Daemon) {
	c, err := d.Reload(ctx)
	if late, ok := errors.AsType[*daemon.QueueError](err); ok {
		t.logf("%v", late)
		err = nil
	}
	t.reloaded(c, err)
}

// addressHint is the hint if the address cannot be listened on. It names the daemon of this
// home if that one is running.
func addressHint(ctx context.Context, h home.Home) string {
	hint := "choose another address with --listen, or port 0 for any free one"
	if d, err := daemon.FindDaemon(h); err == nil && d.Alive(ctx) {
		hint = fmt.Sprintf("a daemon of this home is already running at %s (process %d): use or stop it; or %s", d.URL, d.PID, hint)
	}
	return hint
}

// settleTime is how long the ready message waits for agents to be proven. The daemon serves
// requests before that.
const settleTime = 10 * time.Second

// ready prints what is served where. Announced means that other commands find this daemon.
func (t *terminal) ready(ctx context.Context, d *daemon.Daemon, s *serveFlags, p daemon.Presence, announced bool, proven <-chan struct{}) error {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-proven:
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	link := d.ConsoleLink(p.URL, &identity.Principal{Name: identity.LocalName(), Kind: identity.Local})
	if t.json {
		line, err := json.Marshal(map[string]string{"url": p.URL, "console": link, "key_file": p.KeyFile})
		if err != nil {
			return err
		}
		t.printf("%s\n", line)
		return t.flush()
	}
	cards := d.Agents()
	rejected, note := 0, ""
	for _, c := range cards {
		if c.State == daemon.Rejected {
			rejected++
			note = fmt.Sprintf("; %d rejected", rejected)
		}
	}
	t.printf("%s %s at %s%s\n", t.paint(green, "serving"), count(len(cards)-rejected, "agent"), t.paint(bold, p.URL), note)
	t.agentTable(cards, p.URL)
	if len(cards) == 0 {
		t.printf("  %s\n", t.paint(dim, "put a manifest into "+diag.Printable(s.Folders[0])+", or start with "+myself()+" new NAME; then: "+myself()+" reload"))
	}
	if slices.ContainsFunc(cards, func(c daemon.Card) bool { return c.State == daemon.Starting }) {
		t.printf("  %s\n", t.paint(dim, "starting agents are still being proven; to see their state: "+myself()+" agents"))
	}
	good := "the link works once, for ten minutes"
	if announced {
		good += "; to get another: " + myself() + " console"
	}
	t.printf("\n  console: %s\n  %s\n", t.paint(bold, link), t.paint(dim, good))
	up := func(c daemon.Card) bool { return c.State == daemon.Ready || c.State == daemon.Starting }
	if i := slices.IndexFunc(cards, up); i >= 0 {
		name := cards[i].Name
		t.printf("\n")
		if line := installLine(s.Folders, name); line != "" {
			t.printf("  into a client: %s\n", t.paint(bold, line))
		}
		key := fmt.Sprintf("$(%s key new%s --agents %s)", myself(), storeArgument(s.store), diag.ShellWord(name))
		t.printf("  or over HTTP:  %s\n", connectLine(name, p.URL+"/mcp/"+url.PathEscape(name), key))
	}
	t.printf("  the API:       curl -H \"Authorization: Bearer $(cat %s)\" %s/api/v1/agents\n", diag.ShellWord(p.KeyFile), p.URL)
	if s.serverLog != "" {
		t.printf("  %s\n", t.paint(dim, "output of tool servers: "+nearest(s.serverLog)))
	}
	return t.flush()
}

// connectLine returns the shell command that connects a client to an agent. The name and
// address are quoted; key is a text or a $(command) without quotes.
func connectLine(name, address, key string) string {
	return "claude mcp add --transport http " + diag.ShellWord(name) + " " + diag.ShellWord(address) +
		` --header "Authorization: Bearer ` + key + `"`
}

// takeSignals replaces the signal handling of Main: the shutdown of a daemon takes longer
// than the few seconds that other verbs get. A second signal ends it immediately.
func takeSignals(ctx context.Context) (ended context.Context, reloads <-chan os.Signal, stop func()) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	signal.Reset(ends...)
	ended, cancel := signal.NotifyContext(ctx, ends...)
	context.AfterFunc(ended, cancel)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	return ended, hup, func() { signal.Stop(hup); cancel() }
}

// agentFolders returns the folders to search for agents: the named ones or that of the home,
// and that of Covenant.
func agentFolders(h home.Home, named ...string) ([]string, error) {
	var folders []string
	for _, name := range named {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usage("check the path", "there is no folder %s", name)
		}
		if err != nil {
			return nil, unreadable(name, err)
		}
		if !info.IsDir() {
			return nil, usage("name the folder that contains the agents", "%s is not a folder", name)
		}
		folder, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		folders = append(folders, folder)
	}
	if len(folders) == 0 {
		folders = []string{h.Agents()}
	}
	if dir := os.Getenv("COVENANT_HOME"); dir != "" {
		covenant := filepath.Join(dir, "agents")
		if !slices.ContainsFunc(folders, func(folder string) bool { return sameFile(covenant, folder) }) {
			folders = append(folders, covenant)
		}
	}
	return folders, nil
}

// storeArgument returns the --store argument for commands that cannot find the store of this
// daemon because its URL has a password. The reader fills in the password.
func storeArgument(url string) string {
	if _, left := withoutPassword(url); !left {
		return ""
	}
	return " --store postgres://…"
}

// fitForProduction refuses development switches, and a store that a man in the middle could
// impersonate: it contains grants, keys and the journal.
func fitForProduction(store string) error {
	for _, name := range []string{"AMBIT_DEV_RESOLVE", "AMBIT_DEV_CA"} {
		if os.Getenv(name) != "" {
			return usage("unset it", "--production excludes the development switch %s", name)
		}
	}
	if host := postgres.Unproven(store); host != "" && store != "" {
		return usage("add sslmode=verify-full to the URL, and sslrootcert=FILE if an authority of your own signed its certificate",
			"--production requires PostgreSQL at %s to prove its identity", diag.Quote(host))
	}
	return nil
}

// cannotServe explains why a daemon did not start.
func (t *terminal) cannotServe(err error) error {
	if u, ok := errors.AsType[*daemon.UsageError](err); ok {
		return usage(u.Hint, "%w", err)
	}
	if strict, ok := errors.AsType[*daemon.StrictError](err); ok {
		if !t.json {
			for _, f := range strict.Rejected {
				if f.Manifest != nil && !f.Manifest.Valid() {
					t.problems(t.err, f.Manifest)
				}
			}
		}
		return no("fix them, or leave --strict out to serve the rest", "%w", err)
	}
	return err
}

// logf writes a line of the daemon's log.
func (t *terminal) logf(format string, args ...any) {
	t.notef("%s %s", t.paint(dim, "ambit:"), diag.Printable(fmt.Sprintf(format, args...)))
}
