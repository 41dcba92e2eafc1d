package cli

import (
	"cmp"
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/client"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
)

func newUninstall(t *terminal) *cobra.Command {
	var f installFlags
	cmd := verb("uninstall NAME", exactly(1, "the name of an agent"), func(ctx context.Context, args []string) error {
		return t.uninstall(ctx, args[0], f)
	})
	cmd.Flags().StringSliceVar(&f.clients, "client", nil, "remove the agent only from these `clients`")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, but change nothing")
	cmd.Flags().BoolVar(&f.force, "force", false, "remove entries even if they were changed after the installation")
	complete(cmd, "client", client.Names())
	return cmd
}

func (t *terminal) uninstall(ctx context.Context, name string, f installFlags) error {
	gone := len(f.clients) == 0
	var clients []*client.Client
	if !gone {
		var err error
		if clients, err = clientsNamed(f.clients); err != nil {
			return err
		}
	}
	// Use ReadLedger first, because OpenLedger would create a missing home.
	if l, err := client.ReadLedger(t.home.Dir()); err == nil && l.Agents[name] == nil {
		return notInstalled(l, name)
	}
	ledger, err := client.OpenLedger(t.home.Dir())
	if err != nil {
		return err
	}
	defer ledger.Close()
	in := ledger.Agents[name]
	if in == nil {
		return notInstalled(ledger, name)
	}
	rows := []changeRow{}
	var removals []func() error
	for _, w := range in.Clients {
		c := client.Named(w.Client)
		if !gone && !slices.Contains(clients, c) {
			continue
		}
		if c == nil {
			return no("use the version of ambit that installed the agent",
				"this version of ambit does not know the client %s", diag.Quote(w.Client))
		}
		ch, err := c.PlanRemoval(w, f.force)
		if err != nil {
			return fileFailure(err)
		}
		removals = append(removals, func() error { return ledger.Remove(name, ch, w) })
		rows = append(rows, changeRow{Client: w.Client, File: w.File, Diff: ch.Diff, Next: c.After})
	}
	if !gone && len(rows) == 0 {
		return no("to see where the agent is installed, open "+filepath.Join(t.home.Dir(), "installs.json"),
			"%s is not installed into %s", diag.Quote(name), strings.Join(f.clients, ", "))
	}
	for i, remove := range removals {
		t.printChange(rows[i])
		if f.dryRun {
			continue
		}
		if err := remove(); err != nil {
			return fileFailure(err)
		}
	}
	private, written := t.home.AgentFiles(name), []string{}
	if gone {
		written = append(written, filesIn(private)...)
	}
	if gone && !f.dryRun {
		if err := t.removeAgent(ctx, ledger, name); err != nil {
			return err
		}
	}
	doc := map[string]any{
		"name": name, "changes": rows, "removed": gone && !f.dryRun, "dry_run": f.dryRun, "server_files": len(written),
		"server_paths": written,
	}
	return t.show(doc, func() {
		if f.dryRun {
			if len(written) > 0 {
				t.notef("this would delete %s that the agent's servers wrote to their private folders in %s",
					count(len(written), "file"), diag.Printable(private))
				t.listDeleted(written)
			}
			t.notef("nothing was changed, because this was a dry run")
			return
		}
		done, left := "uninstalled:", ""
		if !gone {
			done, left = "removed:", whereLeft(name, ledger.Agents[name])
		}
		t.printf("%s %s%s\n", t.paint(green, done), diag.Printable(name), left)
		t.remarkf("processes that already run the agent continue; restart the clients, and run ambit reload for a daemon")
		for _, row := range rows {
			t.notef("  %s: removed", row.Client)
		}
		if len(written) > 0 {
			t.notef("  %s that the agent's servers wrote to their private folders: deleted", count(len(written), "file"))
			t.listDeleted(written)
		}
	})
}

// filesIn returns the paths of the regular files in a folder.
func filesIn(dir string) (files []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error { // unreadable files are left out
		if d != nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return nil
	})
	return files
}

// listDeleted prints the paths of deleted files. It prints at most ten paths.
func (t *terminal) listDeleted(files []string) {
	const most = 10
	for _, file := range files[:min(len(files), most)] {
		t.notef("    %s", diag.Printable(file))
	}
	if more := len(files) - most; more > 0 {
		t.notef("    and %s; --json lists all", count(more, "more file"))
	}
}

// whereLeft describes the clients in which an agent is still installed.
func whereLeft(name string, in *client.Install) string {
	if len(in.Clients) == 0 {
		return "; no client uses the agent; to remove the agent, run: ambit uninstall " + diag.ShellWord(name)
	}
	clients := each(in.Clients, func(w *client.Written) string { return w.Client })
	return "; still installed in " + diag.Words(clients, "and")
}

func notInstalled(l *client.Ledger, name string) error {
	names := slices.Sorted(maps.Keys(l.Agents))
	hint := "no agent is installed"
	if len(names) > 0 {
		hint = cmp.Or(diag.DidYouMean(name, names), "installed agents: "+diag.Printable(strings.Join(names, ", ")))
	}
	return no(hint, "no agent %s is installed", diag.Quote(name))
}

// removeAgent deletes the agent's files: the copy that "ambit install" made, and the private folders of its servers. It
// revokes the agent's grants and the rights that were allowed for its servers, and removes the agent from the ledger.
func (t *terminal) removeAgent(ctx context.Context, ledger *client.Ledger, name string) error {
	t.forgetAllowances(ctx, name)
	if err := removeFiles(t.home.AgentFiles(name)); err != nil {
		return err
	}
	if ledger.Agents[name].Copied && client.ValidName(name) == nil {
		if !t.json {
			t.keptSecrets(name)
		}
		t.revokeGrants(ctx, name)
		if err := os.RemoveAll(filepath.Join(t.home.Agents(), name)); err != nil {
			return err
		}
	}
	return ledger.Forget(name)
}

// removeFiles deletes a folder of files that a server made. The server may have made folders read-only.
func removeFiles(dir string) error {
	if root, err := os.OpenRoot(dir); err == nil {
		_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = root.Chmod(path, 0o700) // ignore the error, because RemoveAll reports it
			}
			return nil
		})
		root.Close()
	}
	return os.RemoveAll(dir)
}

// forgetAllowances removes the rights that were allowed for the servers of an agent. A store that cannot be used does
// not prevent the removal of the agent.
func (t *terminal) forgetAllowances(ctx context.Context, name string) {
	if !t.hasSharedStore("") {
		return
	}
	err := t.withSharedStore(ctx, "", func(b *store.Store) error {
		_, err := allowance.Of(b).Forget(ctx, name, identity.LocalName())
		return err
	})
	if err != nil {
		t.warnf("the rights that were allowed for the servers of %s could not be removed from the store: %s",
			diag.Printable(name), diag.Printable(err.Error()))
	}
}

// keptSecrets prints the agent's credentials that stay in the vault, with the commands that remove them.
func (t *terminal) keptSecrets(name string) {
	entries, err := credential.Open(t.home).List()
	if err != nil {
		t.notef("the vault cannot be read, so the agent's credentials are not listed: %s", diag.Printable(err.Error()))
	}
	for _, e := range entries {
		if e.Agent == name {
			t.notef("the agent's credential %s stays in the vault; to remove it, run: ambit secret rm %s %s",
				diag.Printable(e.Ref), diag.ShellWord(name), diag.ShellWord(e.Ref))
		}
	}
}

// revokeGrants revokes the grants for an agent, in the policy file and in the store. A grant that cannot be revoked does
// not prevent the removal of the agent.
func (t *terminal) revokeGrants(ctx context.Context, name string) {
	a := t.agentNamed(name)
	scopes, err := t.scopesGranted()
	scopes = slices.DeleteFunc(scopes, func(g policy.Grant) bool { return g.Agent != name })
	if err == nil && len(scopes) > 0 {
		err = t.editPolicy("revoked", func(text []byte) ([]byte, error) {
			out, removed, err := policy.Remove(t.home.Policy(), text, scopes)
			if err == nil {
				err = t.journalScopes(ctx, "", "revoke", "no longer has", removed)
			}
			return out, err
		})
	}
	if err != nil {
		t.warnf("the grants for %s could not be removed from the policy file: %s",
			diag.Printable(name), diag.Printable(err.Error()))
	}
	for _, g := range scopes {
		if err == nil {
			t.notef("revoked: %s", scopeSentence(g))
		}
	}
	if a == nil {
		return
	}
	list, err := t.grantsFor(ctx, a)
	list = slices.DeleteFunc(list, func(g *grant.Grant) bool { return g.Scope != a.ID })
	if err == nil && len(list) > 0 {
		err = t.asOwner(ctx, "only the owner may revoke grants", "", func(b *store.Store) error {
			for _, g := range list {
				if _, err := grant.Of(b).Revoke(ctx, g.Subject, []string{g.Action}, g.Scope, identity.LocalName()); err != nil {
					return err
				}
				t.notef("revoked: %s", diag.Printable(grantText(g, "from")))
			}
			return nil
		})
	}
	if err != nil {
		t.warnf("the grants for %s could not be removed from the store: %s",
			diag.Printable(a.ID), diag.Printable(err.Error()))
	}
}

// printChange prints the edit of a client's configuration file, unless --json is set.
func (t *terminal) printChange(row changeRow) {
	if t.json || row.File == "" {
		return
	}
	t.printf("%s  %s\n", t.paint(bold, row.Client), diag.Printable(row.File))
	if row.Diff == "" {
		t.printf("  nothing to change\n")
	}
	for line := range strings.Lines(row.Diff) {
		colour := map[byte]style{'+': green, '-': red}[line[0]]
		t.printf("  %s\n", t.paint(cmp.Or(colour, dim), diag.Printable(strings.TrimSuffix(line, "\n"))))
	}
}
