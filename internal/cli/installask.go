package cli

import (
	"context"
	"os"
	"strings"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// credentials asks for what the agent still needs, or says how to set it.
func (in *installing) credentials(ctx context.Context) error {
	vault := credential.Open(in.home)
	a := in.m.Agent()
	source := &credential.Source{Agent: in.name, Vault: vault}
	for _, w := range credential.Wants(a) {
		_, where, _, err := source.Find(a, w)
		if err != nil {
			return vaultFailure(err)
		}
		if where == credential.InVault {
			if !in.t.json {
				in.t.notef("it gets the credential %s that is kept for %s", diag.Printable(w.Ref), diag.Printable(in.name))
			}
			continue
		}
		// A client does not have the variables of this shell.
		if where == credential.InEnvironment && !in.t.json {
			in.t.notef("%s is set in this shell only; clients do not see it", diag.Printable(w.Ref))
		}
		if in.t.canAsk() && !in.flags.dryRun {
			kept, err := in.ask(ctx, vault, w)
			if err != nil || kept {
				if err != nil {
					return err
				}
				continue
			}
		}
		if former := source.Former(a, w.Ref); former != "" && !in.t.json {
			in.t.warnf("%s: %s", diag.Printable(w.Ref), diag.Printable(former))
		}
		in.doc.Missing = append(in.doc.Missing, missingSecret{w.Ref, w.Required, "ambit secret set " + diag.ShellWord(in.name) + " " + diag.ShellWord(w.Ref)})
	}
	if in.t.json || len(in.doc.Missing) == 0 {
		return nil
	}
	in.t.notef("it needs credentials; set them with:")
	for _, s := range in.doc.Missing {
		optional := ""
		if !s.Required {
			optional = "  (optional)"
		}
		in.t.notef("  %s%s", diag.Printable(s.Command), optional)
	}
	return nil
}

// ask asks a person for one credential. It prints the purpose, hides secrets and checks JSON.
// An empty answer postpones it.
func (in *installing) ask(ctx context.Context, vault *credential.File, w credential.Wanted) (kept bool, err error) {
	t := in.t
	o := ownerOf(in.name, in.m.Agent())
	label := w.Ref
	t.notef("")
	if slot := in.m.Agent().Slot(w.Ref); slot != nil {
		if slot.Label != "" {
			label = slot.Label
		}
		if slot.Description != "" {
			t.notef("%s", diag.Printable(slot.Description))
		}
	}
	if len(w.Hosts) > 0 {
		t.notef("%s", t.paint(dim, "it is sent only to "+diag.Printable(diag.Words(w.Hosts, "and"))))
	}
	if w.Type == credential.JSON {
		t.remarkf("give it on one line, or @FILE for what is in a file")
	}
	question := diag.Printable(label) + " (empty: later): "
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
			return false, nil // postponed, or the input has ended
		}
		if file, ok := strings.CutPrefix(value, "@"); ok && w.Type == credential.JSON {
			if value, err = t.secretValue(ctx, o, w, file); err != nil {
				t.notef("%s %s", t.paint(red, "not kept:"), diag.Printable(err.Error()))
				continue
			}
		}
		if _, err := credential.New(w.Type, value, w.Hosts); err != nil {
			t.notef("%s %s", t.paint(red, "not kept:"), diag.Printable(err.Error()))
			continue
		}
		return true, t.keepSecret(vault, o, w, value)
	}
	return false, nil
}
