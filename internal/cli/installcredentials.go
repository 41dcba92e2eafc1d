package cli

import (
	"context"
	"os"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// askCredentials asks the user for the credentials that the agent lacks.
func (in *installer) askCredentials(ctx context.Context) error {
	vault := credential.Open(in.t.home)
	a := in.m.Remote().Agent()
	source := &credential.Source{Agent: in.name, Vault: vault}
	for _, w := range credential.References(a) {
		_, where, _, err := source.Find(a, w)
		if err != nil {
			return vaultFailure(err)
		}
		if where == credential.InVault {
			in.note("the agent uses the credential %s that is stored for %s", w.Ref, in.name)
			continue
		}
		// A client does not inherit the environment of this shell.
		if where == credential.InEnvironment {
			in.note("%s is set in this shell only; clients do not see it", w.Ref)
		}
		if in.t.canAsk() && !in.flags.dryRun {
			kept, err := in.ask(ctx, vault, w)
			if err != nil {
				return err
			}
			if kept {
				continue
			}
		}
		if former := source.Former(a, w.Ref); former != "" && !in.t.json {
			in.t.warnf("%s: %s", diag.Printable(w.Ref), diag.Printable(former))
		}
		command := "ambit secret set " + diag.ShellWord(in.name) + " " + diag.ShellWord(w.Ref)
		in.doc.Missing = append(in.doc.Missing, missingSecret{w.Ref, w.Required, command})
	}
	return nil
}

// listMissing prints the commands that set the missing credentials.
func (in *installer) listMissing(context.Context) error {
	if len(in.doc.Missing) > 0 {
		in.note("the agent needs credentials; to set them, run:")
	}
	for _, s := range in.doc.Missing {
		if s.Required {
			in.note("  %s", s.Command)
		} else {
			in.note("  %s  (optional)", s.Command)
		}
	}
	return nil
}

// listGrants prints the commands that grant the scopes that the agent lacks.
func (in *installer) listGrants(context.Context) error {
	if len(in.doc.Grants) > 0 {
		in.note("your policy does not grant the agent's scopes yet; to grant them, run:")
	}
	for _, command := range in.doc.Grants {
		in.note("  %s", command)
	}
	return nil
}

// introduceSlot prints the label of a credential slot as a heading, and the slot's description.
func (t *terminal) introduceSlot(a *agent.Agent, ref string) {
	if a == nil {
		return
	}
	if slot := a.Slot(ref); slot != nil {
		t.notef("%s", t.paint(bold, diag.Printable(slot.Label)))
		if slot.Description != "" {
			t.notef("%s", diag.Printable(slot.Description))
		}
	}
}

// ask asks the user for a credential and stores the answer. It reports whether the credential was stored. An empty
// answer stores nothing.
func (in *installer) ask(ctx context.Context, vault *credential.File, w credential.Reference) (kept bool, err error) {
	t := in.t
	a := in.m.Remote().Agent()
	o := ownerOf(in.name, a)
	t.notef("")
	t.introduceSlot(a, w.Ref)
	if len(w.Hosts) > 0 {
		t.notef("%s", t.paint(dim, "this credential is sent only to "+diag.Printable(diag.Words(w.Hosts, "and"))))
	}
	if w.Type == credential.JSON {
		t.remarkf("type the JSON on one line, or type @FILE to read it from a file")
	}
	question := diag.Printable(w.Ref) + " (leave empty to set it later): "
	for range 3 {
		var value string
		if w.Type == credential.String {
			value, err = t.askShown(ctx, question)
		} else {
			var text []byte
			text, err = t.askHidden(ctx, t.in.(*os.File), question)
			value = strings.TrimSuffix(string(text), "\r")
		}
		if t.interrupted {
			return false, err
		}
		if err != nil || value == "" {
			return false, nil // the user skipped the question, or the input ended
		}
		if file, ok := strings.CutPrefix(value, "@"); ok && w.Type == credential.JSON {
			value, err = t.secretValue(ctx, o, w, file)
		}
		if err == nil {
			_, err = credential.New(w.Type, value, w.Hosts)
		}
		if err == nil {
			return true, t.keepSecret(ctx, vault, o, w, value)
		}
		t.notef("%s %s", t.paint(red, "not stored:"), diag.Printable(err.Error()))
	}
	return false, nil
}
