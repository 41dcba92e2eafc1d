package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/client"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/manifest"
)

type installFlags struct {
	clients       []string
	dryRun, force bool
	yes, offline  bool // used only by ambit install
	dev           development
}

func newInstall(t *terminal) *cobra.Command {
	var f installFlags
	one := exactly(1, "one manifest")
	cmd := verb("install PATH --client CLIENT[,CLIENT]", one, func(ctx context.Context, args []string) error {
		return t.install(ctx, args[0], f)
	})
	cmd.Flags().StringSliceVar(&f.clients, "client", nil, "the `clients` to install into, separated by commas")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, but change nothing")
	cmd.Flags().BoolVar(&f.force, "force", false,
		"install even if the agent may do more than before, is not meant for the client, or replaces an entry")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask; accept what the agent may do")
	cmd.Flags().BoolVar(&f.offline, "offline", false, "do not fetch and start the agent's servers before installing it")
	f.dev.manifestFlag(cmd.Flags())
	complete(cmd, "client", client.Names())
	return cmd
}

// installer holds the state of one run of "ambit install".
type installer struct {
	t       *terminal
	flags   installFlags
	system  client.System
	m       *manifest.Manifest
	name    string
	clients []*client.Client
	ledger  *client.Ledger
	// prior is the installed agent with the same name. It is nil if there is no such agent.
	prior *manifest.Manifest
	// staged is a copy of the agent's files. It is made before the user is asked for consent, because a file could
	// change while the user reads. It is nil if no files are copied.
	staged *client.Staged
	plans  []*client.Change // plans[i] belongs to doc.Changes[i]; nil for a client without a configuration file
	doc    installDocument
}

type installDocument struct {
	Name     string          `json:"name"`
	Agent    string          `json:"agent"`
	Path     string          `json:"path"`
	DryRun   bool            `json:"dry_run"`
	Changes  []changeRow     `json:"changes"`
	Widened  []string        `json:"widened"`
	Warnings []string        `json:"warnings"`
	Missing  []missingSecret `json:"missing"`
	// Watch contains the points that the user should check before installing the agent.
	Watch []string `json:"watch"`
	// Grants contains the commands that grant a GPARS agent its missing scopes.
	Grants  []string       `json:"grants_needed"`
	Origin  agentOrigin    `json:"origin"`
	Servers []provenServer `json:"servers"` // the proofs of the agent's servers
}

// changeRow describes the change to one client's configuration.
type changeRow struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Diff   string `json:"diff"`
	// Next contains the user's next steps, such as restarting the client.
	Next string `json:"next"`
	// Undo contains the command that removes the agent from the client.
	Undo string `json:"undo"`
	Link string `json:"link,omitempty"`
}

type missingSecret struct {
	Ref      string `json:"ref"`
	Required bool   `json:"required"`
	Command  string `json:"command"`
}

func (t *terminal) install(ctx context.Context, path string, f installFlags) error {
	clients, err := clientsNamed(f.clients)
	if err != nil {
		return err
	}
	if path == "-" {
		return usage("give the path of the manifest", "an agent can be installed from a file, but not from standard input")
	}
	// A file takes precedence over an installed agent with the same name. The prefix ./ always means a file.
	if _, err := os.Stat(path); err == nil && installedManifest(path) != "" {
		path = "." + string(filepath.Separator) + path
	}
	t.announce(egress.Switches{LoopbackHTTP: f.dev.loopbackHTTP})
	m, err := t.loadFor(f.dev, path, "")
	if err != nil {
		return err
	}
	system, err := client.Here(t.home.Dir())
	if err != nil {
		return err
	}
	in := &installer{t: t, flags: f, system: system, m: m, clients: clients}
	in.doc = installDocument{
		DryRun: f.dryRun, Agent: m.Agent().ID, Changes: []changeRow{}, Widened: []string{}, Warnings: []string{},
		Missing: []missingSecret{}, Watch: []string{}, Grants: []string{}, Servers: []provenServer{},
	}
	if err := in.run(ctx); err != nil {
		return err
	}
	return t.show(in.doc, func() {})
}

// clientsNamed returns the clients with the given names, without duplicates.
func clientsNamed(names []string) ([]*client.Client, error) {
	if len(names) == 0 {
		return nil, usage("use one or more of "+strings.Join(client.Names(), ", "), "ambit install needs --client")
	}
	var clients []*client.Client
	for _, name := range names {
		c := client.Named(name)
		if c == nil {
			hint := cmp.Or(diag.DidYouMean(name, client.Names()), "use one or more of "+strings.Join(client.Names(), ", "))
			return nil, usage(hint, "there is no client %s", diag.Quote(name))
		}
		if !slices.Contains(clients, c) {
			clients = append(clients, c)
		}
	}
	return clients, nil
}

// run installs the agent. It performs all checks before it changes anything.
func (in *installer) run(ctx context.Context) error {
	err := in.checkClients(ctx)
	if err != nil {
		return err
	}
	if in.flags.dryRun {
		in.ledger, err = client.ReadLedger(in.t.home.Dir())
	} else {
		in.ledger, err = client.OpenLedger(in.t.home.Dir())
	}
	if err != nil {
		return missing("", "the list of installed agents cannot be read: %w", err)
	}
	defer in.ledger.Close()
	defer func() {
		if in.staged != nil {
			in.staged.Discard()
		}
	}()
	for _, step := range []func(context.Context) error{
		in.compare, in.stage, in.consent, in.plan, in.introduce, in.askCredentials, in.prove, in.copyAgent, in.write,
		in.listMissing, in.listGrants,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkClients returns an error if a client cannot run the agent. Without --force, it also returns an error if a client
// is not a target of the agent. If a client does not meet the agent's requirements, checkClients prints a warning.
func (in *installer) checkClients(ctx context.Context) error {
	a := in.m.Agent()
	for _, c := range in.clients {
		if reason, hint := c.Refuse(a); reason != "" {
			return no(hint, "%s cannot be installed into %s: %s", in.m.Path, c.Name, reason)
		}
	}
	for _, c := range in.clients {
		if !c.Meant(a) && !in.flags.force {
			return no("to install it anyway, use --force", "%s is meant for %s, not for %s",
				in.m.Path, diag.Words(a.Delivery.Targets, "and"), c.Name)
		}
		if len(a.Compatibility) == 0 {
			continue
		}
		if unmet := c.Unmet(a, c.Installed(ctx)); unmet != "" {
			in.warn("%s: %s", c.Name, unmet)
		}
	}
	return nil
}

func (in *installer) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	in.doc.Warnings = append(in.doc.Warnings, text)
	if !in.t.json {
		in.t.warnf("%s", diag.Printable(text))
	}
}

func (in *installer) note(format string, args ...any) {
	if !in.t.json {
		in.t.notef("%s", diag.Printable(fmt.Sprintf(format, args...)))
	}
}

// compare derives the agent's name from the path of the manifest, and finds the installed agent of the same name.
func (in *installer) compare(context.Context) error {
	path, err := filepath.Abs(in.m.Path)
	if err != nil {
		return err
	}
	in.name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	whole := alwaysManifest(filepath.Base(path))
	if whole {
		in.name = filepath.Base(filepath.Dir(path))
	}
	if err := client.ValidName(in.name); err != nil {
		return no("rename the file; if it is agent.toml or findagent.json, rename its folder",
			"%s cannot be installed: %w", in.m.Path, err)
	}
	in.doc.Name, in.doc.Path = in.name, filepath.Join(in.t.home.Agents(), in.name)
	found, err := daemon.FindAs(in.reading(), in.t.home.Agents())
	if err != nil {
		return err
	}
	a := in.m.Agent()
	for _, f := range found {
		readable := f.Manifest != nil && f.Manifest.Agent() != nil
		switch mine := f.Name == in.name; {
		case mine && sameFile(f.Path, path):
			// The manifest is already in the folder of installed agents, so it is not copied.
			in.prior, in.doc.Path = f.Manifest, filepath.Dir(path)
		case mine && filepath.Dir(f.Path) != in.doc.Path:
			return no("move that file away, or rename one of the two agents",
				"an agent named %s already exists: %s", in.name, f.Path)
		case mine && readable:
			in.prior = f.Manifest
		case readable && f.Manifest.Agent().ID == a.ID:
			return no("first run: ambit uninstall "+diag.ShellWord(f.Name),
				"%s is already installed as %s", a.ID, f.Name)
		}
	}
	if a.Program != nil && !in.inPlace() && !whole {
		return no("put the manifest and its program into one folder, and name the manifest agent.toml or findagent.json",
			"%s has a program, so the manifest must be named agent.toml or findagent.json", in.m.Path)
	}
	return nil
}

// reading returns the options for reading manifests.
func (in *installer) reading() manifest.Options {
	return manifest.Options{LoopbackHTTP: in.flags.dev.loopbackHTTP}
}

// inPlace reports whether the manifest is already in the folder of installed agents.
func (in *installer) inPlace() bool { return in.prior != nil && sameFile(in.m.Path, in.prior.Path) }

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// plan computes all edits of configuration files, but writes nothing. If one of the files cannot be edited, plan
// returns an error before anything has changed.
func (in *installer) plan(context.Context) error {
	ambit, err := ownPath()
	if err != nil {
		return err
	}
	entry := client.NewEntry(ambit, in.name, "")
	if in.flags.dev.loopbackHTTP {
		entry.Args = append(entry.Args, "--dev")
	}
	if os.Getenv("AMBIT_HOME") != "" {
		// A client does not inherit the environment of this shell.
		entry.Home = in.t.home.Dir()
	}
	for _, c := range in.clients {
		row := changeRow{Client: c.Name, Next: strings.Join(c.Steps(in.m.Agent()), "; ")}
		var ch *client.Change
		if c.Name != client.Web {
			if _, found := c.File(in.system, in.name); !found {
				in.warn("%s: %s was not found on this machine; its configuration file is created anyway", c.Name, c.Title)
			}
			if ch, err = c.Plan(in.system, in.name, entry, in.ledger.Of(in.name, c.Name)); err != nil {
				return fileFailure(err)
			}
			if ch.Theirs && !in.flags.force {
				return no("to replace that entry with this agent, use --force",
					"%s already has a different entry called %s", ch.File, diag.Quote(ch.Key))
			}
			row.Next, row.Undo = c.After, "ambit uninstall "+diag.ShellWord(in.name)+" --client "+c.Name
			row.File, row.Diff, row.Link = ch.File, ch.Diff, c.Link(ch.Key, entry)
		}
		in.doc.Changes, in.plans = append(in.doc.Changes, row), append(in.plans, ch)
	}
	return nil
}

// ownPath returns the path of the ambit program. It prefers the path that the shell finds, because that path stays the
// same when ambit is updated.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the path of the ambit program cannot be determined: %w", err)
	}
	if found, err := exec.LookPath("ambit"); err == nil && filepath.IsAbs(found) && sameFile(self, found) {
		return found, nil
	}
	return self, nil
}

func fileFailure(err error) error {
	if e, ok := errors.AsType[*client.FileError](err); ok {
		return no(e.Hint, "%w", err)
	}
	return err
}

// stage copies the agent's files to a temporary folder.
func (in *installer) stage(context.Context) error {
	if in.inPlace() || in.flags.dryRun {
		return nil
	}
	folder, base := filepath.Split(in.m.Path)
	whole := alwaysManifest(base)
	var files []string
	var err error
	if !whole {
		if files, err = in.localFiles(base); err != nil {
			return err
		}
	}
	if in.staged, err = client.Stage(in.t.home.Agents(), in.name, filepath.Clean(folder), whole, files); err != nil {
		return no("", "%s cannot be copied: %w", in.m.Path, err)
	}
	// Install exactly the text that the user sees, because the file may have changed since it was read.
	if err := in.staged.Write(base, []byte(in.m.Source.Text)); err != nil {
		return err
	}
	return in.checkNoOtherAgents(in.staged.Dir, base)
}

func (in *installer) copyAgent(ctx context.Context) error {
	s := in.staged
	if s == nil {
		return nil
	}
	if len(s.Left) > 0 {
		in.warn("not copied: %s", strings.Join(s.Left, ", "))
	}
	if err := s.Commit(); err != nil {
		return missing("", "the agent cannot be stored in the folder of installed agents: %w", err)
	}
	if err := in.ledger.Copied(in.name); err != nil {
		return err
	}
	return in.rememberLock(ctx, filepath.Base(in.m.Path))
}

// rememberLock records the installed lock file in the store, as the agent's newest lock file.
func (in *installer) rememberLock(ctx context.Context, base string) error {
	lock, err := readLock(in.doc.Path)
	if err != nil || lock == nil || lock.Agents[in.m.Agent().ID] == nil {
		return err
	}
	b, err := in.t.openStore(ctx, "")
	if err != nil {
		return err
	}
	err = host.RememberLock(ctx, b, filepath.Join(in.doc.Path, base), in.m.Agent(), lock)
	if err = errors.Join(err, b.Close()); err != nil {
		return missing("", "the lock file cannot be recorded in the store: %w", err)
	}
	return nil
}

// write prints each edit of a configuration file, and then makes the edit. With --dry-run, it only prints the edits.
func (in *installer) write(context.Context) error {
	for i, row := range in.doc.Changes {
		in.t.printChange(row)
		if ch := in.plans[i]; ch != nil && !in.flags.dryRun {
			if err := in.ledger.Write(in.name, ch); err != nil {
				return fileFailure(err)
			}
		}
	}
	if in.flags.dryRun {
		in.note("nothing was changed, because this was a dry run")
		return nil
	}
	if in.t.json {
		return nil
	}
	in.t.printf("%s %s in %s\n", in.t.paint(green, "installed:"), diag.Printable(in.name), diag.Printable(in.doc.Path))
	for _, row := range in.doc.Changes {
		in.note("  %s: %s", row.Client, row.Next)
		if row.Link != "" {
			in.note("    or open: %s", row.Link)
		}
		if row.Undo != "" {
			in.note("    undo: %s", row.Undo)
		}
	}
	return nil
}
