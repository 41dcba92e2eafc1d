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

	"github.com/ambit-run/ambit/internal/exec/lock"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/client"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

type installFlags struct {
	clients       []string
	dryRun, force bool
}

func newInstall(t *terminal) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:     "install PATH --client CLIENT[,CLIENT]",
		GroupID: groupInstall,
		Short:   "Put an agent into the clients that people use",
		Long: "Keep a copy of an agent among the installed ones, and let clients start it: their files get an entry that\n" +
			"runs ambit by its full path, and never a secret. Each edit is shown, the file is kept aside, and everything\n" +
			"else in it stays as it is. An agent that is installed again is compared with the one that is there; if it\n" +
			"may do more, it needs your consent, or --force. Clients: " + strings.Join(client.Names(), ", ") + ".",
		Example: "  ambit install agents/default.json --client claude-code,cursor\n  ambit install agents/examples/mcp-tool --client vscode --dry-run",
		Args:    exactly(1, "one manifest"),
		RunE:    func(cmd *cobra.Command, args []string) error { return t.install(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringSliceVar(&f.clients, "client", nil, "the `clients` to install into, with commas between")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
	cmd.Flags().BoolVar(&f.force, "force", false, "also if the agent may do more than before, is not meant for the client, or replaces an entry")
	complete(cmd, "client", client.Names())
	return cmd
}

// installing is an agent on its way into clients.
type installing struct {
	t       *terminal
	flags   installFlags
	home    home.Home
	system  client.System
	m       *manifest.Manifest
	name    string
	clients []*client.Client
	ledger  *client.Ledger
	entry   client.Entry
	// there is the agent of this name that is installed already; nil if none.
	there  *manifest.Manifest
	staged *client.Staged
	rows   []changeRow
	plans  []*client.Change
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
	// Watch is what to look at twice before saying yes to the agent.
	Watch []string `json:"watch"`
}

// changeRow is one client in the answer.
type changeRow struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Diff   string `json:"diff"`
	// Next is what a person does for the client to see it, Undo how to go back.
	Next string `json:"next"`
	Undo string `json:"undo"`
	Link string `json:"link,omitempty"`
}

type missingSecret struct {
	Ref      string `json:"ref"`
	Required bool   `json:"required"`
	Command  string `json:"command"`
}

func (t *terminal) install(ctx context.Context, path string, f installFlags) error {
	clients, err := chosen(f.clients)
	if err != nil {
		return err
	}
	if path == "-" {
		return usage("name the manifest's file", "an agent is installed from its file, not from standard input")
	}
	h := t.home
	// Install the file, also if an installed agent has the same name.
	if _, err := os.Stat(path); err == nil && installed(path) != "" {
		path = "." + string(filepath.Separator) + path
	}
	m, err := t.load(path, "")
	if err != nil {
		return err
	}
	system, err := client.Here(h.Dir())
	if err != nil {
		return err
	}
	in := &installing{t: t, flags: f, home: h, system: system, m: m, clients: clients}
	in.doc = installDocument{DryRun: f.dryRun, Agent: m.Agent().ID, Changes: []changeRow{}, Widened: []string{}, Warnings: []string{}, Missing: []missingSecret{}, Watch: []string{}}
	if err := in.run(ctx); err != nil {
		return err
	}
	if t.json {
		return t.document(in.doc)
	}
	return nil
}

// chosen are the clients that were named.
func chosen(names []string) ([]*client.Client, error) {
	if len(names) == 0 {
		return nil, usage("use some of "+strings.Join(client.Names(), ", "), "install needs --client")
	}
	var clients []*client.Client
	for _, name := range names {
		c := client.Named(name)
		if c == nil {
			hint := cmp.Or(diag.DidYouMean(name, client.Names()), "use some of "+strings.Join(client.Names(), ", "))
			return nil, usage(hint, "there is no client %s", diag.Quote(name))
		}
		if !slices.Contains(clients, c) {
			clients = append(clients, c)
		}
	}
	return clients, nil
}

// run checks everything before it changes anything.
func (in *installing) run(ctx context.Context) error {
	if err := in.fits(ctx); err != nil {
		return err
	}
	var err error
	if in.flags.dryRun {
		in.ledger, err = client.ReadLedger(in.home.Dir())
	} else {
		in.ledger, err = client.OpenLedger(in.home.Dir())
	}
	if err != nil {
		return &failure{code: exitMissing, err: fmt.Errorf("what is installed cannot be read: %w", err)}
	}
	defer in.ledger.Close()
	if err := in.compare(ctx); err != nil {
		return err
	}
	if err := in.plan(); err != nil {
		return err
	}
	if err := in.introduce(ctx); err != nil {
		return err
	}
	if !in.flags.dryRun {
		if err := in.copyAgent(ctx); err != nil {
			return err
		}
	}
	if err := in.write(); err != nil {
		return err
	}
	return in.credentials(ctx)
}

// fits refuses clients that cannot run the agent, and warns of those that may not.
func (in *installing) fits(ctx context.Context) error {
	a := in.m.Agent()
	for _, c := range in.clients {
		if reason, hint := c.Refuse(a); reason != "" {
			return no(hint, "%s cannot be installed into %s: %s", in.m.Path, c.Name, reason)
		}
	}
	for _, c := range in.clients {
		if !c.Meant(a) && !in.flags.force {
			return no("use --force if it is what you want", "%s is meant for %s, and not for %s", in.m.Path, diag.Words(a.Delivery.Targets, "and"), c.Name)
		}
		if len(a.Compatibility) > 0 {
			if unmet := c.Unmet(a, c.Installed(ctx)); unmet != "" {
				in.warn("%s: %s", c.Name, unmet)
			}
		}
	}
	return nil
}

func (in *installing) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	in.doc.Warnings = append(in.doc.Warnings, text)
	if !in.t.json {
		in.t.warnf("%s", diag.Printable(text))
	}
}

// compare names the agent, and compares it with the installed agent of that name.
func (in *installing) compare(ctx context.Context) error {
	path, err := filepath.Abs(in.m.Path)
	if err != nil {
		return err
	}
	in.name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if alwaysManifest(filepath.Base(path)) {
		in.name = filepath.Base(filepath.Dir(path))
	}
	if err := client.ValidName(in.name); err != nil {
		return no("rename the file, or for agent.toml and findagent.json their folder", "%s cannot be installed: %w", in.m.Path, err)
	}
	in.doc.Name, in.doc.Path = in.name, filepath.Join(in.home.Agents(), in.name)
	found, err := daemon.Find(in.home.Agents())
	if err != nil {
		return err
	}
	a := in.m.Agent()
	for i := range found {
		other := found[i].Manifest
		mine := found[i].Name == in.name
		if mine && sameFile(found[i].Path, path) {
			// It lies among the installed agents already, and stays as it is.
			in.there, in.doc.Path = other, filepath.Dir(path)
			continue
		}
		if mine && filepath.Dir(found[i].Path) != in.doc.Path {
			return no("move that file away, or rename one of the two", "an agent %s is already there: %s", in.name, found[i].Path)
		}
		if other == nil || other.Agent() == nil {
			continue
		}
		switch {
		case mine:
			in.there = other
		case other.Agent().ID == a.ID:
			return no("take the other one out first: ambit uninstall "+diag.ShellWord(found[i].Name), "%s is installed already, as %s", a.ID, found[i].Name)
		}
	}
	if a.Program != nil && !in.inPlace() && !alwaysManifest(filepath.Base(path)) {
		return no("call it agent.toml or findagent.json, in a folder with its program", "%s cannot be installed: its program would not come along", in.m.Path)
	}
	if in.there == nil || in.inPlace() {
		return nil
	}
	return in.consent(ctx, manifest.Diff(in.there.Agent(), a))
}

// introduce prints what a new agent may do: installing it is the consent.
func (in *installing) introduce(ctx context.Context) error {
	with, err := in.t.needs(ctx, in.m)
	if err != nil {
		return err
	}
	a := with.agent
	in.doc.Watch = append(in.doc.Watch, with.watch...)
	if in.t.json || in.there != nil {
		return nil
	}
	in.t.printf("%s  %s\n", in.t.paint(bold, diag.Printable(in.name)), in.t.paint(dim, diag.Printable(a.ID)))
	in.t.section("What it may do", in.t.mayDo(a, with.reach))
	in.t.lookTwice(in.doc.Watch)
	in.t.printf("\n")
	return nil
}

// inPlace reports whether the manifest is the installed one itself.
func (in *installing) inPlace() bool { return in.there != nil && sameFile(in.m.Path, in.there.Path) }

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// consent prints how the new agent differs, and asks if it may do more.
func (in *installing) consent(ctx context.Context, d manifest.Delta) error {
	a, old := in.m.Agent(), in.there.Agent()
	if a.ID != old.ID {
		d.Widened = append(d.Widened, manifest.Change{What: "identity", Detail: fmt.Sprintf("another agent: %s → %s", old.ID, a.ID)})
	}
	relocked, err := lock.Relocked(in.there, in.m)
	if err != nil {
		return no(pack.HintOf(err), "%w", err)
	}
	d.Widened = append(d.Widened, relocked...)
	for _, c := range d.Widened {
		in.doc.Widened = append(in.doc.Widened, c.What+": "+c.Detail)
	}
	if !in.t.json && len(d.Widened)+len(d.Narrowed)+len(d.Changed) > 0 {
		in.t.delta(d)
	}
	if len(d.Widened) == 0 || in.flags.force || in.flags.dryRun {
		return nil
	}
	if yes, err := in.t.agreed(ctx, "install it all the same?"); err != nil || yes {
		return err
	}
	if in.t.json {
		return no("look at it with ambit diff, then use --force", "%s may do more than the installed agent: %s", in.m.Path, strings.Join(in.doc.Widened, "; "))
	}
	return no("use --force if that is right", "%s may do more than the installed agent", in.m.Path)
}

// plan works out every edit, so that a file that cannot be edited stops all.
func (in *installing) plan() error {
	ambit, err := ownPath()
	if err != nil {
		return err
	}
	in.entry = client.NewEntry(ambit, in.name, "")
	if os.Getenv("AMBIT_HOME") != "" {
		// A client starts programs without the variables of this shell.
		in.entry.Home = in.home.Dir()
	}
	a := in.m.Agent()
	for _, c := range in.clients {
		row := changeRow{Client: c.Name, Next: c.After, Undo: "ambit uninstall " + diag.ShellWord(in.name) + " --client " + c.Name}
		if c.Name == client.Web {
			row.Next, row.Undo = strings.Join(c.Steps(a), "; "), ""
			in.rows, in.plans = append(in.rows, row), append(in.plans, nil)
			continue
		}
		if _, found := c.File(in.system, in.name); !found {
			in.warn("%s: nothing of %s was found here; its file is made all the same", c.Name, c.Title)
		}
		ch, err := c.Plan(in.system, in.name, in.entry, in.ledger.Of(in.name, c.Name))
		if err != nil {
			return fileFailure(err)
		}
		if ch.Theirs && !in.flags.force {
			return no("use --force to put this agent in its place", "%s has another entry called %s", ch.File, diag.Quote(ch.Key))
		}
		row.File, row.Diff, row.Link = ch.File, ch.Diff, c.Link(ch.Key, in.entry)
		in.rows, in.plans = append(in.rows, row), append(in.plans, ch)
	}
	return nil
}

// ownPath is where this program is. The place on PATH is preferred, since it
// stays the same when ambit is updated.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find out where ambit is: %w", err)
	}
	if found, err := exec.LookPath("ambit"); err == nil && filepath.IsAbs(found) {
		if sameFile(self, found) {
			return found, nil
		}
	}
	return self, nil
}

func fileFailure(err error) error {
	if e, ok := errors.AsType[*client.FileError](err); ok {
		return no(e.Hint, "%w", err)
	}
	return err
}

// copyAgent puts the agent among the installed ones.
func (in *installing) copyAgent(ctx context.Context) error {
	if in.inPlace() {
		return nil
	}
	folder := filepath.Dir(in.m.Path)
	base := filepath.Base(in.m.Path)
	whole := alwaysManifest(base)
	var files []string
	if !whole {
		var err error
		if files, err = in.localFiles(base); err != nil {
			return err
		}
	}
	s, err := client.Stage(in.home.Agents(), in.name, folder, whole, files)
	if err != nil {
		return no("", "%s cannot be copied: %w", in.m.Path, err)
	}
	in.staged = s
	defer s.Discard()
	// Install exactly the text that was read and shown.
	if err := s.Write(base, []byte(in.m.Source.Text)); err != nil {
		return err
	}
	if err := in.alone(base); err != nil {
		return err
	}
	if len(s.Left) > 0 {
		in.warn("not copied: %s", strings.Join(s.Left, ", "))
	}
	if err := s.Commit(); err != nil {
		return &failure{code: exitMissing, err: fmt.Errorf("the agent cannot be kept: %w", err)}
	}
	if err := in.ledger.Copied(in.name); err != nil {
		return err
	}
	return in.rememberLock(ctx, base)
}

// localFiles are what a manifest without a folder of its own needs beside it:
// its lock, and servers that are files.
func (in *installing) localFiles(base string) ([]string, error) {
	files := []string{base}
	if _, err := os.Stat(filepath.Join(filepath.Dir(in.m.Path), pack.LockName)); err == nil {
		files = append(files, pack.LockName)
	}
	for _, s := range in.m.Agent().Servers {
		ref, err := pack.Identify(s)
		if err != nil || ref.Kind != pack.File || filepath.IsAbs(ref.Name) {
			continue
		}
		rel := filepath.Clean(ref.Name)
		if !filepath.IsLocal(rel) {
			return nil, no("move the server's file below the manifest, or name it by its full path", "server %s is the file %s, which lies outside of the manifest's folder", s.Alias, diag.Quote(ref.Name))
		}
		in.warn("server %s is a file: it is copied without what it may import", s.Alias)
		files = append(files, rel)
	}
	return files, nil
}

// alone refuses a folder that contains other agents, because they were not reviewed.
func (in *installing) alone(base string) error {
	found, err := daemon.Find(in.staged.Dir)
	if err != nil {
		return err
	}
	for i := range found {
		if filepath.Base(found[i].Path) != base {
			return no("move it elsewhere", "the folder of %s holds another agent: %s", in.m.Path, filepath.Base(found[i].Path))
		}
		if found[i].Problem != nil {
			return no("", "the copy cannot be served: %w", found[i].Problem)
		}
	}
	return nil
}

// rememberLock makes the lock that a person has just installed the newest one.
func (in *installing) rememberLock(ctx context.Context, base string) error {
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
		return &failure{code: exitMissing, err: fmt.Errorf("the lock cannot be remembered: %w", err)}
	}
	return nil
}

// write shows each edit and makes it.
func (in *installing) write() error {
	for i, row := range in.rows {
		if !in.t.json {
			in.t.changed(row)
		}
		if ch := in.plans[i]; ch != nil && !in.flags.dryRun {
			if err := in.ledger.Write(in.name, ch); err != nil {
				return fileFailure(err)
			}
		}
		in.doc.Changes = append(in.doc.Changes, row)
	}
	if in.t.json {
		return nil
	}
	if in.flags.dryRun {
		in.t.notef("nothing was changed: this was a dry run")
		return nil
	}
	in.t.printf("%s %s in %s\n", in.t.paint(green, "installed:"), diag.Printable(in.name), diag.Printable(in.doc.Path))
	for _, row := range in.rows {
		in.t.notef("  %s: %s", row.Client, row.Next)
		if row.Link != "" {
			in.t.notef("    or open: %s", diag.Printable(row.Link))
		}
		if row.Undo != "" {
			in.t.notef("    undo: %s", diag.Printable(row.Undo))
		}
	}
	return nil
}

func (t *terminal) changed(row changeRow) {
	switch {
	case row.File == "":
		return
	case row.Diff == "":
		t.printf("%s  %s\n  nothing to change\n", t.paint(bold, row.Client), diag.Printable(row.File))
		return
	}
	t.printf("%s  %s\n", t.paint(bold, row.Client), diag.Printable(row.File))
	for line := range strings.Lines(row.Diff) {
		line = strings.TrimSuffix(line, "\n")
		s := dim
		switch line[0] {
		case '+':
			s = green
		case '-':
			s = red
		}
		t.printf("  %s\n", t.paint(s, diag.Printable(line)))
	}
}
