package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

func newSecret(t *terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "secret",
		GroupID: groupSecrets,
		Short:   "Store the credentials that agents need",
		Long: "Store the credentials that agents need, in an encrypted vault. AGENT is a manifest or the name of an installed\n" +
			"agent, REF a credential slot of it or a NAME of its $env:NAME references. A credential is kept for the name\n" +
			"under which the agent acts, which is that of its file or folder: a copy of an installed agent does not get it\n" +
			"elsewhere. Before it is installed, every file of its name and id does. A credential is kept\n" +
			"together with the hosts that its slot allows now: a manifest that allows more later does not get to send it\n" +
			"there until it is set again. Values are never shown, and never given on a command line.\n\n" +
			"What is not in the vault is looked for in the environment: as AMBIT_SECRET_<AGENT>__<REF>, then under the\n" +
			"name that the manifest gives.",
	}
	var dev development
	dev.manifestFlag(cmd.PersistentFlags())
	return group(cmd, newSecretSet(t, &dev), newSecretList(t, &dev), newSecretRemove(t, &dev))
}

// owner is the agent that secrets are kept for.
type owner struct {
	name  string
	agent *agent.Agent // nil if its manifest is not here
	wants []credential.Wanted
	// broken is the file of that name, where nothing can be read in it.
	broken string
}

// owner finds out whose secrets are meant.
func (t *terminal) owner(h home.Home, asked string) (*owner, error) {
	return t.ownerFor(development{}, h, asked)
}

// ownerFor is owner under development switches.
func (t *terminal) ownerFor(dev development, h home.Home, asked string) (*owner, error) {
	t.announce(egress.Switches{LoopbackHTTP: dev.loopbackHTTP})
	named := !strings.ContainsAny(asked, `/\`) || strings.Contains(asked, "://")
	_, statErr := os.Stat(asked)
	// A folder that happens to have an agent's name is no manifest.
	if _, err := manifestIn(asked); statErr == nil && (err == nil || !named) {
		m, err := t.loadFor(dev, asked, "")
		if err != nil {
			return nil, err
		}
		return ownerOf(registered(h, m), m.Remote().Agent()), nil
	}
	if ext := filepath.Ext(asked); !named || ext == ".json" || ext == ".toml" {
		return nil, usage("check the path", "there is no file %s", asked)
	}
	found, err := daemon.FindAs(manifest.Options{LoopbackHTTP: dev.loopbackHTTP}, h.Agents())
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f daemon.Found) bool { return f.Manifest == nil || f.Manifest.Agent() == nil })
	if f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == asked }); f != nil {
		return ownerOf(f.Name, f.Manifest.Remote().Agent()), nil
	}
	// A file's name comes before what manifests say of themselves, also if nothing can
	// be read in it.
	if file := installedAs(h, asked); file != "" {
		return &owner{name: asked, broken: file}, nil
	}
	f := daemon.Pick(found, func(f *daemon.Found) bool {
		a := f.Manifest.Remote().Agent()
		return a.ID == asked || agent.Slug(a.Name) == asked
	})
	if f != nil {
		return ownerOf(f.Name, f.Manifest.Remote().Agent()), nil
	}
	return &owner{name: strings.TrimPrefix(asked, "matrix://agent/")}, nil
}

func ownerOf(name string, a *agent.Agent) *owner {
	return &owner{name: name, agent: a, wants: credential.Wants(a)}
}

// id is what the manifest calls the agent; empty if there is none here.
func (o *owner) id() string {
	if o.agent == nil {
		return ""
	}
	return credential.ID(o.agent)
}

// want is what the manifest says of a ref. Without one, nothing is known.
func (o *owner) want(ref string) (credential.Wanted, error) {
	refs := make([]string, len(o.wants))
	for i, w := range o.wants {
		if refs[i] = w.Ref; w.Ref == ref {
			return w, nil
		}
	}
	if o.agent == nil {
		return credential.Wanted{Ref: ref, Type: credential.Masked}, nil
	}
	hint := diag.DidYouMean(ref, refs)
	switch {
	case hint == "" && len(refs) == 0:
		hint = "its manifest asks for no credential"
	case hint == "":
		hint = "it asks for " + diag.Words(refs, "and")
	}
	return credential.Wanted{}, no(hint, "%s asks for no credential %s", o.name, diag.Quote(ref))
}

func newSecretSet(t *terminal, dev *development) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "set AGENT REF",
		Short:   "Keep a credential",
		Long:    "Keep a credential in the vault. The value is asked for on a terminal, without showing it, and otherwise read\nfrom standard input; a line break at its end is left out.",
		Example: "  ambit secret set agents/examples/mcp-tool analytics_token\n  pass show analytics | ambit secret set reports analytics_token\n  ambit secret set reports service_account --file key.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				// The argument may be the value itself, so the message does not repeat it.
				return usage("give the value on standard input, or with --file", "a value is never given as an argument, where others can see it")
			}
			return exactly(2, "an agent and a ref")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			h := t.home
			o, err := t.ownerFor(*dev, h, args[0])
			if err != nil {
				return err
			}
			if o.broken != "" {
				return no("see what is wrong with it: ambit validate "+diag.ShellWord(o.broken), "%s is broken, so the agent and hosts of the secret are unknown", o.broken)
			}
			w, err := o.want(args[1])
			if err != nil {
				return err
			}
			value, err := t.secretValue(cmd.Context(), o, w, file)
			if err != nil {
				return err
			}
			return t.keepSecret(credential.Open(h), o, w, value)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "read the value from a `file`")
	return cmd
}

// maxSecret is above the limit of the vault, which then reports a value as too long.
const maxSecret = 1 << 20

// secretValue gets a value from a person, a file or a program.
func (t *terminal) secretValue(ctx context.Context, o *owner, w credential.Wanted, file string) (string, error) {
	var text []byte
	var err error
	in, _ := t.in.(*os.File)
	switch {
	case file != "":
		var f *os.File
		if f, err = os.Open(file); err != nil {
			return "", unreadable(file, err)
		}
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, maxSecret))
	case in != nil && term.IsTerminal(int(in.Fd())):
		text, err = t.askHidden(ctx, in, diag.Printable(w.Ref+" of "+o.name)+": ")
	default:
		text, err = t.await(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(t.in, maxSecret)) })
	}
	if err != nil {
		return "", usage("", "the value cannot be read: %w", err)
	}
	value := strings.TrimSuffix(string(text), "\n")
	return strings.TrimSuffix(value, "\r"), nil
}

func (t *terminal) keepSecret(v *credential.File, o *owner, w credential.Wanted, value string) error {
	s, err := credential.New(w.Type, value, w.Hosts)
	if err != nil {
		hint := ""
		if w.Type == credential.JSON {
			hint = "the slot is of type json: give the whole JSON text"
		}
		return no(hint, "%s is not kept: %w", diag.Quote(w.Ref), err)
	}
	if err := v.Set(o.name, w.Ref, s.Of(o.id())); err != nil {
		return vaultFailure(err)
	}
	kept, err := v.Kept()
	if err != nil {
		return vaultFailure(err)
	}
	if t.json {
		return t.document(map[string]any{
			"agent": o.name, "ref": w.Ref, "type": w.Type, "kept": credential.InVault, "key": kept, "hosts": append([]string{}, w.Hosts...), "checked": o.agent != nil,
		})
	}
	where := ""
	if len(w.Hosts) > 0 {
		where = ", for " + diag.Words(w.Hosts, "and")
	}
	t.printf("%s %s of %s%s\n", t.paint(green, "kept:"), diag.Printable(w.Ref), diag.Printable(o.name), diag.Printable(where))
	if o.agent == nil {
		t.notef("%s", t.paint(dim, "no manifest of "+diag.Printable(o.name)+" was found: neither the ref nor the type was checked, and it is NOT limited to any host: it goes where that agent's slot says"))
	}
	return nil
}

func vaultFailure(err error) error {
	switch {
	case errors.Is(err, credential.ErrDamaged):
		return missing("restore the file from a backup, or remove it and set the secrets again", "%w", err)
	case homeUnwritable(err):
		return missing(writableHome, "%w", err)
	}
	return missing("if its key is lost, restore keys and secrets from a backup into a new folder (AMBIT_HOME=FOLDER ambit "+
		"restore BACKUP), or remove the file secrets and set them again", "%w", err)
}

// secretReportRow is a credential in the output of list.
type secretReportRow struct {
	Agent    string          `json:"agent"`
	Ref      string          `json:"ref"`
	Type     credential.Type `json:"type"`
	State    string          `json:"state"`
	Kept     string          `json:"kept"`
	Variable string          `json:"variable"`
	Required bool            `json:"required"`
	Declared bool            `json:"declared"`
	Hosts    []string        `json:"hosts"`
}

func newSecretList(t *terminal, dev *development) *cobra.Command {
	return &cobra.Command{
		Use:     "list [AGENT]",
		Short:   "List credentials: what is set, what is missing and where it is kept",
		Example: "  ambit secret list\n  ambit secret list agents/examples/mcp-tool --json",
		Args:    atMost(1, "one agent, or none"),
		RunE: func(_ *cobra.Command, args []string) error {
			h := t.home
			v := credential.Open(h)
			rows := []secretReportRow{}
			var o *owner
			var err error
			if len(args) == 1 {
				if o, err = t.ownerFor(*dev, h, args[0]); err != nil {
					return err
				}
				if rows, err = t.declaredSecrets(&credential.Source{Agent: o.name, Vault: v}, o); err != nil {
					return vaultFailure(err)
				}
			}
			if rows, err = addKept(rows, v, o); err != nil {
				return vaultFailure(err)
			}
			return t.show(map[string]any{"secrets": rows}, func() {
				t.secretTable(rows)
			})
		},
	}
}

// declaredSecrets are those that a manifest asks for.
func (t *terminal) declaredSecrets(s *credential.Source, o *owner) ([]secretReportRow, error) {
	rows := []secretReportRow{}
	for _, w := range o.wants {
		r := secretReportRow{Agent: o.name, Ref: w.Ref, Type: w.Type, State: "missing", Required: w.Required, Declared: true, Hosts: append([]string{}, w.Hosts...)}
		secret, where, variable, err := s.Find(o.agent, w)
		if err != nil {
			return nil, err
		}
		if where != "" {
			r.State, r.Kept, r.Variable = "set", where, variable
			if where == credential.InVault {
				r.Hosts = append([]string{}, secret.Hosts()...)
			}
		} else if former := s.Former(o.agent, w.Ref); former != "" {
			t.warnf("%s: %s. If it is meant for this one, set it again: ambit secret set %s %s", diag.Printable(w.Ref), diag.Printable(former), diag.ShellWord(o.name), diag.ShellWord(w.Ref))
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// addKept adds what is kept besides: of one agent, or of all.
func addKept(rows []secretReportRow, v credential.Vault, o *owner) ([]secretReportRow, error) {
	entries, err := v.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		listed := slices.ContainsFunc(rows, func(r secretReportRow) bool { return r.Ref == e.Ref && r.Agent == e.Agent })
		if listed || o != nil && e.Agent != o.name {
			continue
		}
		rows = append(rows, secretReportRow{Agent: e.Agent, Ref: e.Ref, Type: e.Type, State: "set", Kept: credential.InVault, Hosts: append([]string{}, e.Hosts...)})
	}
	return rows, nil
}

func (t *terminal) secretTable(rows []secretReportRow) {
	if len(rows) == 0 {
		t.notef("there are no credentials; keep one with: ambit secret set AGENT REF")
		return
	}
	var table [][]string
	for _, r := range rows {
		state := t.paint(green, r.State)
		where := r.Kept
		switch {
		case r.State == "missing" && r.Required:
			state, where = t.paint(red, r.State), "required"
		case r.State == "missing":
			state, where = t.paint(yellow, r.State), "optional"
		case r.Variable != "":
			where += " " + r.Variable
		}
		if len(r.Hosts) > 0 {
			where += ", for " + diag.Words(r.Hosts, "and")
		}
		table = append(table, []string{state, diag.Printable(r.Agent), diag.Printable(r.Ref), cmp.Or(string(r.Type), "-"), diag.Printable(where)})
	}
	t.table("", table)
}

func newSecretRemove(t *terminal, dev *development) *cobra.Command {
	return &cobra.Command{
		Use:     "rm AGENT REF",
		Short:   "Forget a credential",
		Example: "  ambit secret rm reports analytics_token",
		Args:    exactly(2, "an agent and a ref"),
		RunE: func(_ *cobra.Command, args []string) error {
			h := t.home
			o, err := t.ownerFor(*dev, h, args[0])
			if err != nil {
				return err
			}
			v := credential.Open(h)
			removed, err := v.Remove(o.name, args[1])
			if asked := strings.TrimPrefix(args[0], "matrix://agent/"); err == nil && !removed && asked != o.name {
				// Older vaults store credentials under the agent's id.
				if removed, err = v.Remove(asked, args[1]); removed {
					o.name = asked
				}
			}
			if err != nil {
				return vaultFailure(err)
			}
			if !removed {
				return no(t.nearSecret(v, o, args[1]), "no credential %s of %s is kept", diag.Quote(args[1]), diag.Quote(o.name))
			}
			return t.say(map[string]any{"agent": o.name, "ref": args[1], "removed": true}, "%s %s of %s\n", t.paint(green, "forgotten:"), diag.Printable(args[1]), diag.Printable(o.name))
		},
	}
}

// nearSecret is a hint of what is kept under a similar name.
func (t *terminal) nearSecret(v credential.Vault, o *owner, ref string) string {
	var refs []string
	if entries, err := v.List(); err == nil {
		for _, e := range entries {
			if e.Agent == o.name {
				refs = append(refs, e.Ref)
			}
		}
	}
	return cmp.Or(diag.DidYouMean(ref, refs), "see: ambit secret list")
}
