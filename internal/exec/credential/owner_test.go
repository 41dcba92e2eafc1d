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

// TestCopiedAgentGetsNoSecret checks that a secret is returned only to the agent for which it was set. The
// agent's name and the id in its manifest must both be the same.
func TestCopiedAgentGetsNoSecret(t *testing.T) {
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
		hint     string
	}{
		{"the agent itself", "desk", reporter, true, ""},
		{"a copy under another name", "copy", reporter, false, "ambit secret set copy analytics_token"},
		{"a copy under its id", ID(reporter), reporter, false, "ambit secret set ga-report-builder analytics_token"},
		{"another agent with the same name", "desk", &stranger, false, "belongs to an earlier agent named desk"},
		{"the name is unknown", "", reporter, false, "ambit secret set AGENT analytics_token"},
		{"an agent with ambit's own name", Own, reporter, false, "rename the agent's file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := (&Source{Vault: vault, Environ: environ(nil)}).For(tt.as)
			secret, err := s.Slot(tt.a, tt.a.Slot("analytics_token"))
			if got := secret.Reveal() == canary; got != tt.gets || got == (err != nil) {
				t.Fatalf("the agent got the secret: %t, want %t; error %v", got, tt.gets, err)
			}
			if err != nil && !strings.Contains(hintOf(t, err), tt.hint) {
				t.Error(hintOf(t, err))
			}
			if value, ok := s.Lookup(tt.a)("analytics_token"); ok != tt.gets || tt.gets != (value == canary) {
				t.Errorf("a server got the secret: %t, want %t", ok, tt.gets)
			}
			// Any agent with the name desk can read the variable for this name.
			env := (&Source{Environ: environ(map[string]string{variable: canary, EnvName(Own, "analytics_token"): canary})}).For(tt.as)
			if secret, _ := env.Slot(tt.a, tt.a.Slot("analytics_token")); (secret.Reveal() == canary) != (tt.as == "desk") {
				t.Error("the variable must be read for the name desk, and only for that name")
			}
		})
	}
}

// TestFormerVault checks secrets that version 1 of the vault stored under an id. Such a secret is
// returned only if the agent's name and id both equal this id. Other agents get a hint.
func TestFormerVault(t *testing.T) {
	dir := t.TempDir()
	v := open(dir, nil)
	if err := v.Set(ID(reporter), "analytics_token", mustNew(t, Masked, canary, "api.example.com")); err != nil {
		t.Fatal(err)
	}
	writeFormer(t, v)
	slot := reporter.Slot("analytics_token")
	if s, err := (&Source{Agent: ID(reporter), Vault: open(dir, nil), Environ: environ(nil)}).Slot(reporter, slot); err != nil || s.Reveal() != canary {
		t.Errorf("the agent with this name and id did not get the secret: %v", err)
	}
	_, err := (&Source{Agent: "desk", Vault: open(dir, nil), Environ: environ(nil)}).Slot(reporter, slot)
	if err == nil || !strings.Contains(hintOf(t, err), "the secret stored for ga-report-builder is not used") || strings.Contains(hintOf(t, err), canary) {
		t.Errorf("a copy of the manifest under another name got %v, want a hint", err)
	}
	stranger := *reporter
	stranger.ID = "stranger"
	if s, err := (&Source{Agent: ID(reporter), Vault: open(dir, nil), Environ: environ(nil)}).Slot(&stranger, slot); err == nil {
		t.Errorf("an agent with this name and another id got %d bytes", len(s.Reveal()))
	}
	// The next change writes the current version, and no secret is lost.
	if err := open(dir, nil).Set("other", "x", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	entries, err := open(dir, nil).List()
	if err != nil || len(entries) != 2 || entries[0].ID != ID(reporter) || entries[1].ID != "" {
		t.Errorf("entries = %+v, error %v; want both secrets", entries, err)
	}
}

// writeFormer writes the vault in version 1.
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
