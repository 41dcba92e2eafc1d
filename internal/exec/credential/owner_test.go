package credential

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ambit-run/ambit/agent"
)

// TestCopyGetsNothing: what is kept goes to the agent of the name that it was set
// for, and only if the manifest there is still the agent's.
func TestCopyGetsNothing(t *testing.T) {
	vault := vaultWith(t, "desk", "analytics_token", mustNew(t, Masked, canary).Of(ID(reporter)))
	if err := vault.Set(Own, "analytics_token", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	variable := EnvName("desk", "analytics_token")
	stranger := *reporter
	stranger.ID = "stranger"
	for _, tt := range []struct {
		name, as string
		a        *agent.Agent
		gets     bool
		told     string
	}{
		{"the agent itself", "desk", reporter, true, ""},
		{"a copy under another name", "copy", reporter, false, "ambit secret set copy analytics_token"},
		{"a copy under its id", ID(reporter), reporter, false, "ambit secret set ga-report-builder analytics_token"},
		{"another agent that has got the name", "desk", &stranger, false, "was set for another agent, ga-report-builder"},
		{"nobody knows under which name", "", reporter, false, "ambit secret set AGENT analytics_token"},
		{"under ambit's own name", Own, reporter, false, "call the agent's file something else"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := (&Source{Vault: vault, Environ: environ(nil)}).For(tt.as)
			secret, err := s.Slot(tt.a, tt.a.Slot("analytics_token"))
			if got := secret.Reveal() == canary; got != tt.gets || got == (err != nil) {
				t.Fatalf("it got the secret: %t, %v", got, err)
			}
			if err != nil && !strings.Contains(hintOf(t, err), tt.told) {
				t.Error(hintOf(t, err))
			}
			if value, ok := s.Lookup(tt.a)("analytics_token"); ok != tt.gets || tt.gets != (value == canary) {
				t.Errorf("a server got the secret: %t", ok)
			}
			// The variable of the name is for whoever acts under it.
			env := (&Source{Environ: environ(map[string]string{variable: canary, EnvName(Own, "analytics_token"): canary})}).For(tt.as)
			if secret, _ := env.Slot(tt.a, tt.a.Slot("analytics_token")); (secret.Reveal() == canary) != (tt.as == "desk") {
				t.Error("the variable of the name counts otherwise")
			}
		})
	}
}

// TestFormerVault: a vault that kept secrets under the id alone hands them to
// agents that have the id for a name too, and tells the others.
func TestFormerVault(t *testing.T) {
	dir := t.TempDir()
	v := open(dir, nil)
	if err := v.Set(ID(reporter), "analytics_token", mustNew(t, Masked, canary, "api.example.com")); err != nil {
		t.Fatal(err)
	}
	writeFormer(t, v)
	slot := reporter.Slot("analytics_token")
	if s, err := (&Source{Agent: ID(reporter), Vault: open(dir, nil), Environ: environ(nil)}).Slot(reporter, slot); err != nil || s.Reveal() != canary {
		t.Errorf("its agent: %v", err)
	}
	_, err := (&Source{Agent: "desk", Vault: open(dir, nil), Environ: environ(nil)}).Slot(reporter, slot)
	if err == nil || !strings.Contains(hintOf(t, err), "the one that is kept for ga-report-builder is not used here") || strings.Contains(hintOf(t, err), canary) {
		t.Errorf("the same manifest under another name: %v", err)
	}
	stranger := *reporter
	stranger.ID = "stranger"
	if s, err := (&Source{Agent: ID(reporter), Vault: open(dir, nil), Environ: environ(nil)}).Slot(&stranger, slot); err == nil {
		t.Errorf("another manifest that has the id for a name got %d bytes", len(s.Reveal()))
	}
	// The next change writes it as it is now, with nothing lost.
	if err := open(dir, nil).Set("other", "x", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	entries, err := open(dir, nil).List()
	if err != nil || len(entries) != 2 || entries[0].ID != ID(reporter) || entries[1].ID != "" {
		t.Errorf("%+v, %v", entries, err)
	}
}

// writeFormer writes the vault as the first version did.
func writeFormer(t *testing.T, v *File) {
	t.Helper()
	c, err := v.read()
	if err != nil {
		t.Fatal(err)
	}
	c.Version = 1
	plain, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, v.ident.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.path, sealed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
