package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/client"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/supply/importer"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

type importFlags struct {
	output       string
	force, start bool
	// asked is set if the user typed --start.
	asked bool
	only  []string
	dev   development
}

func newImport(t *terminal) *cobra.Command {
	var f importFlags
	var cmd *cobra.Command
	what := atMost(1, "one file, folder or repository")
	cmd = verb("import [SRC]", what, func(ctx context.Context, args []string) error {
		f.asked = f.start && cmd.Flags().Changed("start")
		src := ""
		if len(args) > 0 {
			if src = args[0]; src == "" {
				return usage("name a file, or omit SRC", "the source is empty")
			}
		}
		if repository.MatchString(src) {
			folder, err := t.clone(ctx, src, f.output)
			if err != nil {
				return err
			}
			src = folder
		}
		return t.importAgent(ctx, src, f)
	})
	cmd.Flags().StringArrayVar(&f.only, "only", nil,
		"import only the operations of an OpenAPI description with this `tag`, path or operation id; repeatable")
	outputFlags(cmd, &f.output, &f.force, "write to `file` instead of standard output")
	f.dev.devFlags(cmd.Flags(), "for development: keep an address of an OpenAPI description that is on this machine; "+
		"the variable AMBIT_DEV=1 does the same")
	cmd.Flags().BoolVar(&f.start, "start", true,
		"with -o, fetch, pin and start the servers, and write their tools into the manifest")
	return cmd
}

// isClients reports whether a source is a configuration file of a client on this machine. The client starts the file's
// servers without a sandbox, so ambit can give them everything that the file names.
func (t *terminal) isClients(src string) bool {
	system, err := client.Here(t.home.Dir())
	return err == nil && (src == "" ||
		slices.ContainsFunc(system.Configurations(), func(file string) bool { return sameFile(file, src) }))
}

// startImported makes an imported agent work. It asks for missing credentials, locks every server that can be started,
// and quarantines the other servers. Only servers from a trusted source get everything that the manifest names.
func (t *terminal) startImported(ctx context.Context, path string, trusted bool, doc *lockDocument) error {
	m, err := t.load(path, "")
	if err != nil {
		return err
	}
	if err := t.askImported(ctx, m); err != nil {
		return err
	}
	// The flag yes accepts the changes since an earlier import, because an old lock file would otherwise stop this
	// import. The user still sees the changes.
	return t.lock(ctx, path, lockFlags{writeTools: true, imported: true, untrusted: !trusted, yes: true}, doc)
}

// askImported asks for the credentials that an imported agent lacks, if someone can answer. A server without its
// credential is quarantined, and its hint contains the command that stores the credential.
func (t *terminal) askImported(ctx context.Context, m *manifest.Manifest) error {
	if !t.canAsk() {
		return nil
	}
	name, a := registeredName(t.home, m), m.Agent()
	vault := credential.Open(t.home)
	source := &credential.Source{Agent: name, Vault: vault}
	for _, w := range credential.References(a) {
		_, where, _, err := source.Find(a, w)
		if err != nil {
			return vaultFailure(err)
		}
		if where == credential.InVault || where == credential.InEnvironment {
			continue
		}
		if _, err := (&installer{t: t, m: m, name: name}).ask(ctx, vault, w); err != nil {
			return err
		}
	}
	return nil
}

func (t *terminal) importAgent(ctx context.Context, src string, f importFlags) error {
	if src == "-" || strings.Contains(src, "://") {
		return usage("save the source to a file first, or use a git address that ends in .git",
			"ambit import takes a file, a folder or a git repository")
	}
	output := f.output
	if output == "-" {
		output = ""
	}
	o := importer.Options{Only: f.only, LoopbackHTTP: f.dev.loopbackHTTP}
	r, err := t.readAgent(src, output, o)
	if e, ok := errors.AsType[*importer.Error](err); ok {
		if src == "" {
			return no(e.Hint, "%w", err)
		}
		return no(e.Hint, "%s cannot be imported: %w", src, err)
	}
	if err != nil {
		return unreadable(src, err)
	}
	if output != "" {
		if err := writeNew(output, r.Text, f.force); err != nil {
			return err
		}
		if _, err := r.Unpack(filepath.Dir(output)); err != nil {
			hint := ""
			if e, ok := errors.AsType[*importer.Error](err); ok {
				hint = e.Hint
			}
			return no(hint, "the manifest was written, but its files were not: %w", err)
		}
	}
	trusted := f.asked || t.isClients(src)
	start := f.start && output != "" && r.Dialect == agent.Matrix
	if start && !trusted && !host.Confines {
		start = false
		t.warnf("the servers were not started, because ambit cannot confine them on this system; to start them, add --start")
	}
	next := "ambit " + r.Next + " " + diag.ShellWord(cmp.Or(output, "FILE"))
	doc := map[string]any{
		"source": r.Source, "dialect": r.Dialect, "name": r.Name, "manifest": json.RawMessage(r.Text),
		"notes": notNil(r.Notes), "next": next, "output": output,
	}
	if start {
		return t.finishImport(ctx, src, output, trusted, r, doc)
	}
	return t.show(doc, func() {
		if output == "" {
			t.printf("%s", escapeJSON(string(r.Text)))
		}
		t.importNotes(r, false)
		t.notef("next: %s", diag.Printable(next))
	})
}

// importNotes prints what was guessed or left out. If the servers were started, it omits guesses, because the servers'
// own definitions replace them.
func (t *terminal) importNotes(r *importer.Result, started bool) {
	shown := 0
	for _, n := range r.Notes {
		s := yellow
		if n.Kind == importer.Guessed {
			if s = cyan; started {
				continue
			}
		}
		shown++
		t.notef("%s %s: %s", t.paint(s, n.Kind), diag.Printable(n.What), diag.Printable(n.Detail))
	}
	check := ""
	if shown > 0 {
		check = "; check " + count(shown, "thing")
	}
	t.notef("imported %s as a %s manifest%s", diag.Printable(r.Source), r.Dialect, check)
}

// noteReaders explains what the servers were allowed to do. It prints nothing if the source is trusted or if no server
// was refused.
func (t *terminal) noteReaders(output string, trusted bool, locked lockDocument) {
	isRefused := func(s any) bool { _, ok := s.(proofReport); return ok }
	if !trusted && slices.ContainsFunc(locked.Servers, isRefused) {
		t.notef("the servers could read only the paths that the manifest names, had no network access, and got none of your "+
			"environment variables; to start them with everything that ambit inspect lists, run: ambit lock --write-tools %s",
			diag.ShellWord(output))
	}
}

// finishImport makes an imported agent work, and offers to install it into the clients on this machine.
func (t *terminal) finishImport(
	ctx context.Context, src, output string, trusted bool, r *importer.Result, doc map[string]any,
) error {
	if !t.json {
		t.importNotes(r, true)
	}
	locked := lockDocument{OK: true, Servers: []any{}, Changes: []pack.Difference{}}
	stopped := t.startImported(ctx, output, trusted, &locked)
	if failed, ok := errors.AsType[*failure](stopped); stopped != nil && (!ok || !failed.printed) {
		return stopped
	}
	system, err := client.Here(t.home.Dir())
	if err != nil {
		return err
	}
	clients := each(system.Found(), func(c *client.Client) string { return c.Name })
	if stopped == nil {
		doc["next"] = "ambit install " + diag.ShellWord(output) + " --client " + cmp.Or(strings.Join(clients, ","), "NAME")
	}
	text, err := os.ReadFile(output)
	if err != nil {
		return unreadable(output, err)
	}
	locked.OK = stopped == nil
	doc["lock"], doc["manifest"] = locked, json.RawMessage(text)
	from := cmp.Or(diag.Printable(src), "the clients' own configurations")
	next := func() {
		t.notef("next: %s", diag.Printable(doc["next"].(string)))
		if r.Started && t.isClients(src) {
			t.notef("then: remove the imported servers from %s; otherwise they still start without ambit", from)
		}
	}
	if t.json || stopped != nil || len(clients) == 0 || !t.canAsk() {
		err = t.show(doc, func() { t.noteReaders(output, trusted, locked); next() })
		return cmp.Or(err, stopped)
	}
	t.noteReaders(output, trusted, locked)
	t.notef("")
	answer, err := t.askShown(ctx, "install it into "+strings.Join(clients, ",")+"? [y/N, or names of clients] ")
	if t.interrupted {
		return err
	}
	names := strings.FieldsFunc(answer, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "", "n", "no":
		next()
		return nil
	case "y", "yes":
		names = clients
	}
	if err := t.install(ctx, output, installFlags{clients: names}); err != nil {
		return err
	}
	if r.Started {
		t.notef("the same servers still start from %s, without ambit; to use only the agent, remove the servers there", from)
	}
	return nil
}

// readAgent imports a file or folder. Without a source, it imports the configurations of the clients on this machine.
// Like "ambit install", it names the agent after the output file.
func (t *terminal) readAgent(src, output string, o importer.Options) (*importer.Result, error) {
	dir, base := filepath.Dir(output), filepath.Base(output)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if output != "" && !alwaysManifest(base) && name != "agent" {
		o.Name = name
	}
	if src != "" {
		return o.Import(src, dir)
	}
	system, err := client.Here(t.home.Dir())
	if err != nil {
		return nil, err
	}
	files := system.Configurations()
	for _, file := range files {
		t.notef("reading %s", diag.Printable(file))
	}
	return importer.ImportAll(o.Name, files, dir)
}

// cloneTime is the maximum time for cloning a repository.
const cloneTime = 5 * time.Minute

var repository = regexp.MustCompile(`^(https://|ssh://|git@|file://).*\.git$`)

// cloneTo returns the folder for a clone. The folder is next to the manifest and has the name of the repository.
func cloneTo(src, output string) string {
	return filepath.Join(filepath.Dir(output), strings.TrimSuffix(path.Base(src), ".git"))
}

// clone clones a git repository into a folder next to the manifest and returns the folder. Nothing from the
// repository runs: no hooks, no filters and no submodules.
func (t *terminal) clone(ctx context.Context, src, output string) (string, error) {
	if output == "" || output == "-" {
		return "", usage("add -o FILE",
			"the repository is cloned into the manifest's folder, so the manifest must be written to a file")
	}
	to := cloneTo(src, output)
	if _, err := os.Lstat(to); err == nil {
		return "", no("import that folder instead, or move it away", "%s already exists", to)
	}
	ctx, cancel := context.WithTimeout(ctx, cloneTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git",
		"-c", "core.hooksPath="+os.DevNull, "-c", "core.symlinks=false", "-c", "protocol.ext.allow=never",
		"-c", "core.fsmonitor=false", "clone", "--quiet", "--depth=1", "--no-recurse-submodules", "--", src, to)
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_LFS_SKIP_SMUDGE=1")
	if message, err := cmd.CombinedOutput(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", missing("install git, or clone the repository elsewhere and import the folder", "%w", err)
		}
		return "", no("check the address, and check that git can reach it",
			"the repository cannot be cloned: %s", diag.Printable(strings.TrimSpace(string(message))))
	}
	return to, nil
}
