package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

type serveFlags struct {
	daemon.Options
	store       string
	folders     []string
	dev         development
	approval    approvalFlags
	lazy        bool
	expose      []string
	concurrency int
	serverLog   string
	logFormat   string
}

func newServe(t *terminal) *cobra.Command {
	var s serveFlags
	cmd := verb("serve", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		return t.serve(ctx, &s)
	})
	f := cmd.Flags()
	f.StringVar(&s.Listen, "listen", "127.0.0.1:7411", "the `address` to listen on; port 0 picks a free port")
	f.StringArrayVar(&s.folders, "agents", nil, "a `folder` of agents; can be repeated (default agents/ in AMBIT_HOME)")
	f.StringVar(&s.store, "store", "", "store all state at this postgres:// `URL` instead of in AMBIT_HOME")
	f.BoolVar(&s.Strict, "strict", false, "do not start or reload if any agent is rejected")
	f.BoolVar(&s.Production, "production", false, "refuse settings that are safe only for development")
	f.StringVar(&s.Cert, "tls-cert", "", "the `file` of the TLS certificate")
	f.StringVar(&s.Key, "tls-key", "", "the `file` of the TLS key")
	f.BoolVar(&s.BehindProxy, "behind-proxy", false,
		"allow a non-loopback address without TLS; a proxy in front of ambit must terminate TLS")
	f.StringVar(&s.PublicURL, "public-url", "", "the `URL` that clients use")
	f.BoolVar(&s.MetricsOpen, "metrics-open", false, "serve /metrics without a key")
	f.DurationVar(&s.Idle, "idle", 0, "stop the servers of an agent after this idle `time`; they start again when needed")
	f.BoolVar(&s.lazy, "lazy", false,
		"start a server at its first call, if it was verified with its ambit.lock before; a daemon of many agents starts faster")
	f.StringSliceVar(&s.expose, "expose", nil,
		"pass through these server features, even though no manifest declares them: "+strings.Join(front.Exposable, ", "))
	s.dev.flags(cmd)
	s.approval.flags(cmd)
	s.dev.isolation.flag(cmd)
	s.dev.unconfinedFlag(cmd, "AGENT/SERVER")
	f.IntVar(&s.concurrency, "concurrency", runtime.NumCPU(), "how many programs run at the same time (`N`)")
	f.StringVar(&s.serverLog, "server-log", "",
		"write the output of tool servers to this `file` instead of standard error")
	logFlag(cmd, &s.logFormat)
	f.DurationVar(&s.Grace, "grace", 20*time.Second, "how much `time` running calls have to finish at shutdown")
	return cmd
}

func (t *terminal) serve(ctx context.Context, s *serveFlags) (err error) {
	if s.Folders, err = agentFolders(t.home, s.folders...); err != nil {
		return err
	}
	if s.Production {
		if err := fitForProduction(s.store); err != nil {
			return err
		}
	}
	if err := t.startLog(s.logFormat); err != nil {
		return err
	}
	boundGarbage(mostGarbage)
	s.Trace, err = daemon.TraceFromEnv(os.Getenv, version)
	if err != nil {
		return usage("write the endpoint as http://HOST:4318", "%w", err)
	}
	oidc, err := identity.ReadOIDC(t.home.Config())
	if err != nil {
		return usage("fix the file, or remove the [oidc] table from it", "%w", err)
	}
	if oidc != nil {
		providers := identity.NewProviders(oidc)
		s.OIDC = providers
		serving, ended := context.WithCancel(ctx)
		defer ended()
		go func() {
			if err := providers.Reach(serving); err != nil && serving.Err() == nil {
				t.troublef("tokens are refused until the OpenID provider answers: %v", err)
			}
		}()
	}
	b, err := t.openStoreWith(ctx, s.store, store.Open)
	if err != nil {
		return err
	}
	b.Journal.StartWAL()
	err = t.serveWith(ctx, s, b)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if traceErr := s.Trace.Close(last); traceErr != nil {
		t.troublef("cannot send the last traces: %v", traceErr)
	}
	if closeErr := b.Close(); err == nil && closeErr != nil {
		return missing("", "%w", closeErr)
	}
	return err
}

// waitingSandboxes is the maximum number of sandboxes that are prepared in advance. ambit prepares a sandbox only after
// a similar sandbox was used, so a daemon that runs no programs prepares none.
const waitingSandboxes = 4

func (t *terminal) serveWith(ctx context.Context, s *serveFlags, b *store.Store) error {
	h := t.home
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
	if oidc, err := identity.ReadOIDC(h.Config()); err == nil {
		t.warnNames(s, o.Operator, oidc)
	}
	o.Store, o.Approvals = &timed, s.approval.Approvals
	o.SignIns.ServeCallers(timed.DB, b.Keys)
	o.Reviewed, s.Tickets = reviewCheck(b, s.Production), b.Keys
	o.Persist, o.Flow = true, gateway.NewFlow()
	o.Lazy, o.SharedRecovery, o.Locks = s.lazy, true, new(pack.Locks)
	unconfined, err := t.unconfinedServers(s)
	if err != nil {
		return err
	}
	if o.Expose, err = exposed(s.expose); err != nil {
		return err
	}
	if !s.Production && s.store == "" && !o.Switches.On() {
		if s.JoinTerms, err = joinTerms(h, s.approval.Approvals, o.Expose); err != nil {
			t.logf("clients of ambit run cannot join this daemon and will start agents themselves: %v", err)
		}
	}
	o.Pool = sandbox.NewPool(waitingSandboxes, true)
	defer o.Pool.Close()
	log, closeLog, err := t.logServersTo(s.serverLog, s.logFormat)
	if err != nil {
		return err
	}
	defer closeLog()
	s.Served, s.Approvals, s.Tidy = new(daemon.Served), daemon.ApprovalsOf(b), daemon.TidierOf(b)
	o.Agents = s.Served
	o.Protected = s.Folders
	hosting := &daemon.Hosting{
		Host: o, Unconfined: unconfined, HTTP: front.HTTPOptions{Keys: b.Keys, Hosts: s.PublicHosts()},
		Metrics: s.Metrics, Production: s.Production, Log: log,
	}
	if err := t.startRetention(ctx, h, b.Journal); err != nil {
		return err
	}
	runKey, key := identity.NewPassingKey()
	s.Start, s.CanRun = hosting.Start, canServe(ctx, b, s.Production, len(s.folders) > 0)
	s.Allowed = func() (map[string]string, error) { return allowance.Of(&timed).Digests(ctx) }
	s.Abandoned = func(ctx context.Context) ([]string, error) { return gateway.Abandoned(ctx, &timed) }
	s.SignIns = o.SignIns
	s.APIKeys, s.Passing, s.Journal = identity.NewAPIKeys(b.Authority), runKey, b.Journal
	s.Version, s.Log = version, t.troublef
	s.CheckStore = func(ctx context.Context) error { return b.DB.Read(ctx, func(state.Tx) error { return nil }) }
	s.PolicyProblem = func() string { return t.rules(h).Problem() }
	s.Hidden = t.rules(h).Hidden
	queue, err := t.openQueue(ctx, s, &o)
	if err != nil {
		return err
	}
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		closeQueue(ctx, queue, s.Grace)
	})
	defer func() {
		stop() // stop cancels ctx, and the queue then closes
		<-closed
	}()
	hosting.Turns = queue
	d, err := daemon.New(s.Options)
	if err != nil {
		return t.cannotServe(err)
	}
	if err = queue.Reload(ctx); err == nil {
		err = d.OpenConsole(ctx, &daemon.ConsoleOptions{
			Store: b, Credentials: o.Credentials, Vault: credential.Open(h), Operator: o.Operator,
			PolicyFile: h.Policy(), Inspect: t.consoleInspection(b, o.Operator), Why: t.consoleWhy(b, o.Flow),
		})
	}
	if err != nil {
		d.Close()
		return err
	}
	return t.listen(ctx, s, d, key, reloads)
}

// unconfinedServers returns the aliases of the servers in --unconfined, grouped by agent name. The flag names each
// server as AGENT/SERVER, because agents that are installed later may have a server with the same alias.
func (t *terminal) unconfinedServers(s *serveFlags) (map[string][]string, error) {
	if len(s.dev.unconfined) == 0 {
		return nil, nil
	}
	if s.Production {
		return nil, usage("leave out --unconfined", "--production and --unconfined cannot be combined")
	}
	found, err := agentsIn(s.Reading, s.Folders...)
	if err != nil {
		return nil, err
	}
	servers := map[string][]string{}
	for _, both := range s.dev.unconfined {
		name, alias, _ := strings.Cut(both, "/")
		f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == name })
		if f == nil {
			return nil, usage("write AGENT/SERVER", "--unconfined: there is no agent %s", diag.Quote(name))
		}
		if err := t.checkUnconfined(f.Manifest.Agent(), []string{alias}); err != nil {
			return nil, err
		}
		servers[name] = append(servers[name], alias)
	}
	return servers, nil
}

// listen serves requests until ctx is cancelled. It reloads the agents whenever a signal arrives on the channel. The
// key is the API key of this run.
func (t *terminal) listen(
	ctx context.Context, s *serveFlags, d *daemon.Daemon, key string, reloads <-chan os.Signal,
) error {
	h := t.home
	l, url, err := d.Listen()
	if err != nil {
		d.Close()
		return missing(addressHint(ctx, h), "%w", err)
	}
	s.SignIns.SetAddress(d.Address(url))
	presence := daemon.Presence{URL: url, PID: os.Getpid(), Certificate: d.Certificate(), Folders: s.Folders}
	presence.Store, presence.StorePassword = withoutPassword(s.store)
	if presence.KeyFile, err = daemon.WriteKey(h, key); err != nil {
		d.Close()
		return missing("", "%w", errors.Join(err, l.Close()))
	}
	defer daemon.Leave(h, presence)
	if s.JoinTerms != nil {
		stop, err := serveJoins(ctx, d, daemon.SocketFile(presence.KeyFile))
		if err != nil {
			t.logf("clients of ambit run cannot join this daemon and will start agents themselves: %v", err)
		} else {
			presence.Socket = daemon.SocketFile(presence.KeyFile)
			defer stop()
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, l) }()
	other, err := daemon.Announce(ctx, h, presence)
	switch {
	case err != nil:
		t.troublef("other commands will not find this daemon: %v", err)
	case other != nil:
		t.troublef("another daemon runs at %s, and commands such as ambit reload use that daemon; "+
			"stop that daemon, or start this one with another AMBIT_HOME", other.URL)
	}
	proven := make(chan struct{})
	go func() {
		defer close(proven)
		d.Prove(ctx)
	}()
	select {
	case <-proven:
	case <-time.After(settleTime):
	case <-ctx.Done():
	}
	if ctx.Err() == nil {
		if err := t.printReady(d, s, presence, err == nil && other == nil); err != nil {
			t.troublef("%v", err)
		}
		t.logReady(d, presence)
	}
	logged := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(logged)
		t.logf("shutting down; running calls can finish within the grace period")
	})
	for {
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				<-logged
			}
			if err != nil {
				return no("", "%w", err)
			}
			return nil
		case <-reloads:
			t.reload(ctx, d) // at shutdown, the daemon cancels the reload
		}
	}
}

func (t *terminal) reload(ctx context.Context, d *daemon.Daemon) {
	c, err := d.Reload(ctx)
	late, ok := errors.AsType[*daemon.QueueError](err)
	switch {
	case ok:
		t.troublef("%v", late)
	case err != nil:
		t.troublef("the reload failed, and nothing has changed: %v", err)
		return
	}
	t.logf("reloaded: %s", changes(c))
	for _, line := range reloadNotes(c) {
		t.troublef("%s", line)
	}
}

// addressHint returns the hint for an address that is already in use. If this home has a running daemon, the hint
// names the daemon.
func addressHint(ctx context.Context, h home.Home) string {
	hint := "choose another address with --listen; port 0 means any free port"
	if d, err := daemon.FindDaemon(h); err == nil && d.Alive(ctx) {
		return fmt.Sprintf("a daemon for this AMBIT_HOME already runs at %s (process %d); use it, stop it, or %s",
			d.URL, d.PID, hint)
	}
	return hint
}

// settleTime is the maximum time that the daemon waits for all agents to be verified before it prints the ready
// message. The daemon serves requests in the meantime.
const settleTime = 10 * time.Second

// printReady prints the served agents and how to connect to them. If announced is true, other commands can find this
// daemon.
func (t *terminal) printReady(d *daemon.Daemon, s *serveFlags, p daemon.Presence, announced bool) error {
	link, aboutLink, another := p.URL, "ambit does not write sign-in links to files", "a link"
	if !t.writesFile() {
		link = d.ConsoleLink(p.URL, &identity.Principal{Name: identity.LocalName(), Kind: identity.Local})
		aboutLink, another = "the link works only once, within the next ten minutes", "another link"
	}
	if announced {
		aboutLink += "; for " + another + ", run: " + ownCommand() + " console"
	}
	if t.json {
		return t.jsonLine(map[string]string{"url": p.URL, "console": link, "key_file": p.KeyFile})
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
		first := "put a manifest into " + diag.Printable(s.Folders[0]) + ", or run: " + ownCommand() + " new NAME"
		t.printf("  %s\n", t.paint(dim, first+"; then run: "+ownCommand()+" reload"))
	}
	if slices.ContainsFunc(cards, func(c daemon.Card) bool { return c.State == daemon.Starting }) {
		t.printf("  %s\n", t.paint(dim, "some agents are still being verified; to see them, run: "+ownCommand()+" agents"))
	}
	t.printf("\n  console: %s\n  %s\n", t.paint(bold, link), t.paint(dim, aboutLink))
	up := func(c daemon.Card) bool { return c.State == daemon.Ready || c.State == daemon.Starting }
	if i := slices.IndexFunc(cards, up); i >= 0 {
		name := cards[i].Name
		t.printf("\n")
		if line := installLine(s.Folders, name); line != "" {
			t.printf("  into a client: %s\n", t.paint(bold, line))
		}
		store := ""
		if p.StorePassword {
			store = " --store postgres://…" // the user fills in the password
		}
		key := fmt.Sprintf("$(%s key new%s --agents %s)", ownCommand(), store, diag.ShellWord(name))
		t.printf("  or over HTTP:  %s\n", connectLine(name, p.URL+"/mcp/"+url.PathEscape(name), key))
	}
	t.printf("  the API:       curl -H \"Authorization: Bearer $(cat %s)\" %s/api/v1/agents\n",
		diag.ShellWord(p.KeyFile), p.URL)
	if s.serverLog != "" {
		t.printf("  %s\n", t.paint(dim, "output of tool servers: "+relativePath(s.serverLog)))
	}
	return t.flush()
}

// logReady logs that the daemon has started, and why agents are not served. It repeats what the daemon prints for
// people, because log collectors read only the log.
func (t *terminal) logReady(d *daemon.Daemon, p daemon.Presence) {
	if !t.logsElsewhere() {
		return
	}
	cards := d.Agents()
	usable := len(cards)
	for _, c := range cards {
		if c.State == daemon.Rejected {
			usable--
			t.log.Warn("rejected: "+c.Error, "agent", c.Name)
		}
	}
	where := "in AMBIT_HOME"
	if p.Store != "" {
		where = "at " + p.Store
	}
	t.logf("ambit %s serves %s at %s, with the store %s", version, count(usable, "agent"), p.URL, where)
}

// connectLine returns the shell command that connects a client to an agent. The key is not quoted, because it can be
// a command substitution.
func connectLine(name, address, key string) string {
	return "claude mcp add --transport http " + diag.ShellWord(name) + " " + diag.ShellWord(address) +
		` --header "Authorization: Bearer ` + key + `"`
}

// takeSignals replaces the signal handling of Main, because a daemon needs more time to shut down. The first signal
// cancels the returned context. A second signal terminates the process immediately.
func takeSignals(ctx context.Context) (ended context.Context, reloads <-chan os.Signal, stop func()) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	signal.Reset(ends...)
	ended, cancel := signal.NotifyContext(ctx, ends...)
	context.AfterFunc(ended, cancel)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	return ended, hup, func() { signal.Stop(hup); cancel() }
}

// agentFolders returns the folders to search for agents. These are the given folders, or the agents folder of the home
// if no folder is given. If COVENANT_HOME is set, the agents folder in COVENANT_HOME is added.
func agentFolders(h home.Home, named ...string) ([]string, error) {
	var folders []string
	for _, name := range named {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, usage("check the path", "there is no folder %s", name)
		case err != nil:
			return nil, unreadable(name, err)
		case !info.IsDir():
			return nil, usage("give the path of the folder that contains the agents", "%s is not a folder", name)
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
	return withCovenant(folders...), nil
}

// knownFolders returns the folders of the installed agents, and those of the agents that the running daemon serves.
func knownFolders(ctx context.Context, h home.Home) ([]string, error) {
	folders, err := agentFolders(h)
	if d, findErr := daemon.FindDaemon(h); findErr == nil && d.Alive(ctx) {
		served := func(folder string) bool { return slices.Contains(folders, folder) }
		folders = append(folders, slices.DeleteFunc(d.Folders, served)...)
	}
	return folders, err
}

// withCovenant adds the agents folder in COVENANT_HOME to the list. It adds nothing if COVENANT_HOME is not set or if
// the folder is already in the list.
func withCovenant(folders ...string) []string {
	covenant := filepath.Join(os.Getenv("COVENANT_HOME"), "agents")
	same := func(folder string) bool { return sameFile(covenant, folder) }
	if os.Getenv("COVENANT_HOME") == "" || slices.ContainsFunc(folders, same) {
		return folders
	}
	return append(folders, covenant)
}

// fitForProduction returns an error if a development switch is set. It also returns an error if the connection to the
// store does not verify the identity of the database server, because the store contains grants, keys and the journal.
func fitForProduction(store string) error {
	for _, name := range []string{"AMBIT_DEV_RESOLVE", "AMBIT_DEV_CA"} {
		if os.Getenv(name) != "" {
			return usage("unset this variable", "--production does not allow the development switch %s", name)
		}
	}
	if host := postgres.Unproven(store); host != "" && store != "" {
		return usage("add sslmode=verify-full to the URL, "+
			"and sslrootcert=FILE if your own authority signed the server's certificate",
			"with --production, the PostgreSQL server at %s must prove its identity", diag.Quote(host))
	}
	return nil
}

// cannotServe adds a hint to the error of a daemon that did not start. With --strict, it also prints why agents were
// rejected.
func (t *terminal) cannotServe(err error) error {
	if u, ok := errors.AsType[*daemon.UsageError](err); ok {
		return usage(u.Hint, "%w", err)
	}
	if strict, ok := errors.AsType[*daemon.StrictError](err); ok {
		if !t.json {
			for _, f := range strict.Rejected {
				if f.Manifest != nil && !f.Manifest.Valid() {
					t.printProblems(t.err, f.Manifest)
				}
			}
		}
		return no("fix the rejected agents, or leave out --strict to serve the others", "%w", err)
	}
	return err
}

// installLine returns the command that installs an agent into a client. It returns "" if the agent's file no longer
// exists.
func installLine(folders []string, name string) string {
	all, err := daemon.Find(folders...)
	f := daemon.Pick(all, func(f *daemon.Found) bool { return f.Name == name && f.Problem == nil })
	if err != nil || f == nil {
		return ""
	}
	return ownCommand() + " install " + diag.ShellWord(relativePath(f.Path)) + " --client claude-code"
}

// relativePath returns the path relative to the current folder if the path is in that folder. Otherwise it returns the
// path unchanged.
func relativePath(path string) string {
	here, _ := os.Getwd() // if this fails, the path stays unchanged
	if rel, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// ownCommand returns the command that the user can type to run this program.
func ownCommand() string {
	if _, err := exec.LookPath("ambit"); err == nil || !strings.ContainsRune(os.Args[0], filepath.Separator) {
		return "ambit"
	}
	return diag.ShellWord(relativePath(os.Args[0]))
}

// postToDaemon sends a request to the daemon of this home and decodes the response.
func (t *terminal) postToDaemon(ctx context.Context, path string, into any) error {
	d, err := daemon.FindDaemon(t.home)
	if err == nil {
		err = d.Do(ctx, http.MethodPost, path, into)
	}
	if err != nil {
		return daemonFailure(err)
	}
	return nil
}

func newConsole(t *terminal) *cobra.Command {
	return verb("console", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		var made struct {
			URL string `json:"url"`
		}
		if err := t.postToDaemon(ctx, "/api/v1/console", &made); err != nil {
			return err
		}
		return t.say(made, "%s\n", made.URL)
	})
}
