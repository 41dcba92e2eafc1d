package cli

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/client"
	"github.com/ambit-run/ambit/internal/store/home"
)

func newUninstall(t *terminal) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:     "uninstall NAME",
		GroupID: groupInstall,
		Short:   "Take an agent out of clients again",
		Long: "Take an installed agent out of every client that install put it into, and away itself; with --client only out\n" +
			"of those. A file that was not changed since gets its old bytes back; from any other only the entry is removed.\n" +
			"Credentials stay in the vault.",
		Example: "  ambit uninstall default\n  ambit uninstall ga-report-builder --client cursor",
		Args:    exactly(1, "the name of an agent"),
		RunE: func(_ *cobra.Command, args []string) error {
			h := t.home
			return t.uninstall(h, args[0], f)
		},
	}
	cmd.Flags().StringSliceVar(&f.clients, "client", nil, "take it only out of these `clients`")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
	cmd.Flags().BoolVar(&f.force, "force", false, "also if an entry was changed since")
	complete(cmd, "client", client.Names())
	return cmd
}

func (t *terminal) uninstall(h home.Home, name string, f installFlags) error {
	if len(f.clients) > 0 {
		if _, err := chosen(f.clients); err != nil {
			return err
		}
	}
	// Before anything is made: a home that is not there has no agents.
	if l, err := client.ReadLedger(h.Dir()); err == nil && l.Agents[name] == nil {
		return notInstalled(l, name)
	}
	ledger, err := client.OpenLedger(h.Dir())
	if err != nil {
		return err
	}
	defer ledger.Close()
	in := ledger.Agents[name]
	if in == nil {
		return notInstalled(ledger, name)
	}
	rows := []changeRow{}
	type removal struct {
		change  *client.Change
		written *client.Written
	}
	var todo []removal
	for _, w := range in.Clients {
		if len(f.clients) > 0 && !slices.Contains(f.clients, w.Client) {
			continue
		}
		c := client.Named(w.Client)
		if c == nil {
			return no("use the ambit that installed it", "there is no client %s", diag.Quote(w.Client))
		}
		ch, err := c.PlanRemoval(w, f.force)
		if err != nil {
			return fileFailure(err)
		}
		todo = append(todo, removal{ch, w})
		rows = append(rows, changeRow{Client: w.Client, File: w.File, Diff: ch.Diff, Next: c.After})
	}
	if len(f.clients) > 0 && len(todo) == 0 {
		return no("see where it is in "+filepath.Join(h.Dir(), "installs.json"), "%s is not installed into %s", diag.Quote(name), strings.Join(f.clients, ", "))
	}
	for i, r := range todo {
		if !t.json {
			t.changed(rows[i])
		}
		if f.dryRun {
			continue
		}
		if err := ledger.Remove(name, r.change, r.written); err != nil {
			return fileFailure(err)
		}
	}
	gone := len(f.clients) == 0
	if gone && !f.dryRun {
		if err := t.removeAgent(h, ledger, name); err != nil {
			return err
		}
	}
	return t.show(map[string]any{"name": name, "changes": rows, "removed": gone && !f.dryRun, "dry_run": f.dryRun}, func() {
		if f.dryRun {
			t.notef("nothing was changed: this was a dry run")
			return
		}
		done, left := "uninstalled:", ""
		if !gone {
			done, left = "taken out:", whereLeft(name, ledger.Agents[name])
		}
		t.printf("%s %s%s\n", t.paint(green, done), diag.Printable(name), left)
		for _, row := range rows {
			t.notef("  %s: taken out", row.Client)
		}
	})
}

// whereLeft describes where an agent is still installed.
func whereLeft(name string, in *client.Install) string {
	if len(in.Clients) == 0 {
		return "; no client has it any more, and it stays installed until: ambit uninstall " + diag.ShellWord(name)
	}
	names := make([]string, len(in.Clients))
	for i, w := range in.Clients {
		names[i] = w.Client
	}
	return "; still in " + diag.Words(names, "and")
}

func notInstalled(l *client.Ledger, name string) error {
	names := slices.Sorted(maps.Keys(l.Agents))
	hint := "nothing is installed"
	if len(names) > 0 {
		hint = cmp.Or(diag.DidYouMean(name, names), "these are: "+diag.Printable(strings.Join(names, ", ")))
	}
	return no(hint, "no agent %s was installed", diag.Quote(name))
}

// removeAgent removes the copy of an agent, if it was made by install.
func (t *terminal) removeAgent(h home.Home, ledger *client.Ledger, name string) error {
	if ledger.Agents[name].Copied && client.ValidName(name) == nil {
		if o, err := t.owner(h, name); err == nil && !t.json {
			t.keptSecrets(h, o)
		}
		if err := os.RemoveAll(filepath.Join(h.Agents(), name)); err != nil {
			return err
		}
	}
	return ledger.Forget(name)
}

// keptSecrets prints the credentials that stay in the vault, and how to remove them.
func (t *terminal) keptSecrets(h home.Home, o *owner) {
	entries, err := credential.Open(h).List()
	if err != nil {
		t.notef("the vault cannot be read, so its credentials are not listed: %s", diag.Printable(err.Error()))
		return
	}
	for _, e := range entries {
		if e.Agent == o.name {
			t.notef("its credential %s is kept; forget it with: ambit secret rm %s %s", diag.Printable(e.Ref), diag.ShellWord(o.name), diag.ShellWord(e.Ref))
		}
	}
}
