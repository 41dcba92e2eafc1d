package cli

import (
	"cmp"
	"context"
	"crypto/rand"
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
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

func newSecret(t *terminal) *cobra.Command {
	cmd := &cobra.Command{Use: "secret"}
	var dev development
	dev.manifestFlag(cmd.PersistentFlags())
	return group(cmd, newSecretSet(t, &dev), newSecretList(t, &dev), newSecretRemove(t, &dev))
}

// owner is an agent for which secrets are stored.
type owner struct {
	name  string
	agent *agent.Agent // the agent; nil if there is no valid manifest
	id    string       // the agent's id in its manifest
	wants []credential.Reference
	// broken is the path of the agent's file if the file is not a valid manifest.
	broken string
}

// owner returns the agent with the given path, name or id.
func (t *terminal) owner(dev development, asked string) (*owner, error) {
	t.announce(egress.Switches{LoopbackHTTP: dev.loopbackHTTP})
	named := !strings.ContainsAny(asked, `/\`) || strings.Contains(asked, "://")
	_, statErr := os.Stat(asked)
	// Ignore a folder without a manifest, even if it has the same name as an agent.
	if _, err := manifestIn(asked); statErr == nil && (err == nil || !named) {
		m, err := t.loadFor(dev, asked, "")
		if err != nil {
			return nil, err
		}
		return ownerOf(registeredName(t.home, m), m.Remote().Agent()), nil
	}
	if ext := filepath.Ext(asked); !named || ext == ".json" || ext == ".toml" {
		return nil, usage("check the path", "there is no file %s", asked)
	}
	found, err := agentsIn(manifest.Options{LoopbackHTTP: dev.loopbackHTTP}, t.home.Agents())
	if err != nil {
		return nil, err
	}
	f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == asked })
	if f == nil {
		// A file reserves its name even if the file is not a valid manifest. Therefore look for a file before comparing
		// the ids and names in manifests.
		if file := installedAs(t.home, asked); file != "" {
			return &owner{name: asked, broken: file}, nil
		}
		f = daemon.Pick(found, func(f *daemon.Found) bool {
			a := f.Manifest.Remote().Agent()
			return a.ID == asked || agent.Slug(a.Name) == asked
		})
	}
	if f != nil {
		return ownerOf(f.Name, f.Manifest.Remote().Agent()), nil
	}
	return &owner{name: strings.TrimPrefix(asked, "matrix://agent/")}, nil
}

func ownerOf(name string, a *agent.Agent) *owner {
	return &owner{name: name, agent: a, id: credential.ID(a), wants: credential.References(a)}
}

// declaration returns the declaration of a credential in the manifest. If there is no manifest, the credential has the
// type Masked and no hosts.
func (o *owner) declaration(ref string) (credential.Reference, error) {
	refs := each(o.wants, func(w credential.Reference) string { return w.Ref })
	if at := slices.Index(refs, ref); at >= 0 {
		return o.wants[at], nil
	}
	if o.agent == nil {
		return credential.Reference{Ref: ref, Type: credential.Masked}, nil
	}
	hint := "the agent's manifest declares no credentials"
	if len(refs) > 0 {
		hint = cmp.Or(diag.DidYouMean(ref, refs), "the agent declares "+diag.Words(refs, "and"))
	}
	return credential.Reference{}, no(hint, "%s does not declare the credential %s", o.name, diag.Quote(ref))
}

func newSecretSet(t *terminal, dev *development) *cobra.Command {
	var file string
	noValue := func(cmd *cobra.Command, args []string) error {
		if len(args) > 2 {
			// The argument could be a secret, so the message does not repeat the argument.
			return usage("give the value on standard input, or with --file",
				"do not give the value as an argument, because other users can see arguments")
		}
		return exactly(2, "an agent and a ref")(cmd, args)
	}
	cmd := verb("set AGENT REF", noValue, func(ctx context.Context, args []string) error {
		o, err := t.owner(*dev, args[0])
		if err != nil {
			return err
		}
		if o.broken != "" {
			return no("to see the problems, run: ambit validate "+diag.ShellWord(o.broken),
				"%s is not a valid manifest, so ambit cannot tell which agent and hosts may use the secret", o.broken)
		}
		w, err := o.declaration(args[1])
		if err != nil {
			return err
		}
		value, err := t.secretValue(ctx, o, w, file)
		if err != nil {
			return err
		}
		return t.keepSecret(ctx, credential.Open(t.home), o, w, value)
	})
	cmd.Flags().StringVar(&file, "file", "", "read the value from a `file`")
	return cmd
}

// maxSecret is the maximum number of bytes to read from standard input for a secret. The vault's own limit is smaller,
// and the vault rejects values that are too long.
const maxSecret = 1 << 20

// secretValue reads a secret from a file. If no file is given, it reads standard input, with a prompt if standard input
// is a terminal.
func (t *terminal) secretValue(ctx context.Context, o *owner, w credential.Reference, file string) (string, error) {
	var text []byte
	var err error
	in, _ := t.in.(*os.File)
	switch {
	case file != "":
		if text, err = readSmall(file); err != nil {
			return "", err
		}
	case in != nil && term.IsTerminal(int(in.Fd())):
		t.introduceSlot(o.agent, w.Ref)
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

func (t *terminal) keepSecret(
	ctx context.Context, v *credential.File, o *owner, w credential.Reference, value string,
) error {
	id := o.id
	if o.agent == nil { // without a manifest, the new value keeps the earlier value's type and hosts
		earlier, found, err := v.Get(o.name, w.Ref)
		if err != nil {
			return vaultFailure(err)
		}
		if found {
			id, w.Type, w.Hosts = earlier.ID(), earlier.Type(), earlier.Hosts()
		}
	}
	s, err := w.Secret(value, id)
	if err != nil {
		hint := ""
		if w.Type == credential.JSON {
			hint = "the slot has the type json, so give the whole JSON text"
		}
		return no(hint, "%s was not stored: %w", diag.Quote(w.Ref), err)
	}
	hosts := "every host"
	if len(w.Hosts) > 0 {
		hosts = diag.Words(w.Hosts, "and")
	}
	ref := string(guard.Redact([]byte(w.Ref))) // without a manifest, anything can be a ref
	err = t.journalSecret(ctx, o, "secret set", "the credential "+ref+" was set, for "+hosts, func() error {
		return v.Set(o.name, w.Ref, s)
	})
	if err != nil {
		return err
	}
	kept, err := v.Kept()
	if err != nil {
		return vaultFailure(err)
	}
	doc := map[string]any{
		"agent": o.name, "ref": w.Ref, "type": w.Type, "kept": credential.InVault, "key": kept,
		"hosts": append([]string{}, w.Hosts...), "checked": o.agent != nil,
	}
	return t.show(doc, func() {
		what := w.Ref + " of " + o.name
		if len(w.Hosts) > 0 {
			what += ", for " + diag.Words(w.Hosts, "and")
		}
		t.printf("%s %s\n", t.paint(green, "stored:"), diag.Printable(what))
		if o.agent == nil {
			limit := "; the credential is NOT limited to particular hosts, so it can be sent to every host in the agent's slot"
			if len(w.Hosts) > 0 {
				limit = "; the credential keeps the hosts of the earlier one"
			}
			t.remarkf("no manifest of %s was found, so neither the ref nor the type was checked%s", diag.Printable(o.name), limit)
		}
	})
}

// journalSecret records a change of the vault in the journal and makes the change. If the record cannot be written, it
// does not make the change. The record never contains the value of a secret.
func (t *terminal) journalSecret(ctx context.Context, o *owner, verb, detail string, change func() error) error {
	var vaultErr error
	err := t.withSharedStore(ctx, "", func(b *store.Store) error {
		return b.DB.Write(ctx, func(tx state.Tx) error {
			record := &journal.Record{
				Call: rand.Text(), Agent: o.name, ID: o.id, Principal: identity.LocalName(), Tool: verb,
				Decision: journal.Allow, Stage: "secret", Detail: detail,
			}
			if _, err := b.Journal.Append(tx, record); err != nil {
				return err
			}
			vaultErr = change()
			return vaultErr
		})
	})
	if vaultErr != nil {
		return vaultFailure(vaultErr)
	}
	return err
}

func vaultFailure(err error) error {
	switch {
	case errors.Is(err, credential.ErrDamaged):
		return missing("restore the file from a backup, or delete it and set every secret again", "%w", err)
	case homeUnwritable(err):
		return missing(writableHome, "%w", err)
	}
	return missing("if the vault's key is lost, restore keys and secrets from a backup into a new folder "+
		"(AMBIT_HOME=FOLDER ambit restore BACKUP), or delete the file named secrets and set every secret again", "%w", err)
}

// secretReportRow describes a credential in the output of "ambit secret list". It is also the JSON document for the
// credential.
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
	return verb("list [AGENT]", atMost(1, "one agent, or none"), func(_ context.Context, args []string) error {
		v := credential.Open(t.home)
		rows := []secretReportRow{}
		var o *owner
		var err error
		if len(args) == 1 {
			if o, err = t.owner(*dev, args[0]); err != nil {
				return err
			}
			if rows, err = t.declaredSecrets(v, o); err != nil {
				return vaultFailure(err)
			}
		}
		if rows, err = addStored(rows, v, o); err != nil {
			return vaultFailure(err)
		}
		return t.show(map[string]any{"secrets": rows}, func() { t.secretTable(rows) })
	})
}

// declaredSecrets returns a row for each credential that the agent's manifest declares.
func (t *terminal) declaredSecrets(v credential.Vault, o *owner) ([]secretReportRow, error) {
	s := &credential.Source{Agent: o.name, Vault: v}
	rows := []secretReportRow{}
	for _, w := range o.wants {
		r := secretReportRow{Agent: o.name, Ref: w.Ref, Type: w.Type, State: "missing", Required: w.Required, Declared: true}
		secret, where, variable, err := s.Find(o.agent, w)
		if err != nil {
			return nil, err
		}
		r.Hosts = append([]string{}, w.Hosts...)
		if where == credential.InVault {
			r.Hosts = append([]string{}, secret.Hosts()...)
		}
		if where != "" {
			r.State, r.Kept, r.Variable = "set", where, variable
		} else if former := s.Former(o.agent, w.Ref); former != "" {
			t.warnf("%s: %s. If the credential is meant for this agent, run: ambit secret set %s %s",
				diag.Printable(w.Ref), diag.Printable(former), diag.ShellWord(o.name), diag.ShellWord(w.Ref))
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// addStored appends a row for each stored credential that is not in the rows yet. If an owner is given, it adds only
// the owner's credentials.
func addStored(rows []secretReportRow, v credential.Vault, o *owner) ([]secretReportRow, error) {
	entries, err := v.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		listed := slices.ContainsFunc(rows, func(r secretReportRow) bool { return r.Ref == e.Ref && r.Agent == e.Agent })
		if listed || o != nil && e.Agent != o.name {
			continue
		}
		hosts := append([]string{}, e.Hosts...)
		r := secretReportRow{Agent: e.Agent, Ref: e.Ref, Type: e.Type, State: "set", Kept: credential.InVault, Hosts: hosts}
		rows = append(rows, r)
	}
	return rows, nil
}

func (t *terminal) secretTable(rows []secretReportRow) {
	if len(rows) == 0 {
		t.notef("there are no credentials; to store one, run: ambit secret set AGENT REF")
		return
	}
	var table [][]string
	for _, r := range rows {
		colour, where := green, strings.TrimSpace(r.Kept+" "+r.Variable)
		switch {
		case r.State == "missing" && r.Required:
			colour, where = red, "required"
		case r.State == "missing":
			colour, where = yellow, "optional"
		}
		if len(r.Hosts) > 0 {
			where += ", for " + diag.Words(r.Hosts, "and")
		}
		name, kind := diag.Printable(r.Agent), cmp.Or(string(r.Type), "-")
		table = append(table, []string{t.paint(colour, r.State), name, diag.Printable(r.Ref), kind, diag.Printable(where)})
	}
	t.table("", table)
}

func newSecretRemove(t *terminal, dev *development) *cobra.Command {
	return verb("rm AGENT REF", exactly(2, "an agent and a ref"), func(ctx context.Context, args []string) error {
		o, err := t.owner(*dev, args[0])
		if err != nil {
			return err
		}
		v := credential.Open(t.home)
		entries, err := v.List()
		if err != nil {
			return vaultFailure(err)
		}
		stored := func(name string) bool {
			return slices.ContainsFunc(entries, func(e credential.Entry) bool { return e.Agent == name && e.Ref == args[1] })
		}
		// Older vaults store credentials under the agent's id.
		if asked := strings.TrimPrefix(args[0], "matrix://agent/"); !stored(o.name) && stored(asked) {
			o.name = asked
		}
		if !stored(o.name) {
			return no(t.nearSecret(v, o, args[1]), "no credential %s is stored for %s", diag.Quote(args[1]), diag.Quote(o.name))
		}
		if _, err := v.Remove(o.name, args[1]); err != nil {
			return vaultFailure(err)
		}
		// A person who removes a leaked credential must succeed even if the store cannot be used.
		detail := "the credential " + string(guard.Redact([]byte(args[1]))) + " was removed"
		if err := t.journalSecret(ctx, o, "secret rm", detail, func() error { return nil }); err != nil {
			t.warnf("the journal does not record the removal: %v", err)
		}
		return t.say(map[string]any{"agent": o.name, "ref": args[1], "removed": true}, "%s %s of %s\n",
			t.paint(green, "removed:"), diag.Printable(args[1]), diag.Printable(o.name))
	})
}

// nearSecret returns a hint that suggests the stored credential with the most similar name.
func (t *terminal) nearSecret(v credential.Vault, o *owner, ref string) string {
	var refs []string
	entries, _ := v.List() // ignore errors, because only the hint needs the entries
	for _, e := range entries {
		if e.Agent == o.name {
			refs = append(refs, e.Ref)
		}
	}
	return cmp.Or(diag.DidYouMean(ref, refs), "to list the credentials, run: ambit secret list")
}
