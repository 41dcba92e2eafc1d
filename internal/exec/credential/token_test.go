package credential

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// A key in the vault is exchanged only for the scopes for which it was set. A key in a variable has no such limit.
func TestSealedScopes(t *testing.T) {
	with := func(scopes ...string) *agent.Agent {
		return &agent.Agent{ID: "reporter", Slots: []agent.Slot{
			{Ref: "key", Type: "json", Hosts: []string{"a.example"}, Scopes: scopes, Required: true},
		}}
	}
	for _, c := range []struct {
		name    string
		set     []string
		asked   []string
		refused string // the scope that the refusal must name
	}{
		{"the same", []string{"read"}, []string{"read"}, ""},
		{"fewer", []string{"read", "write"}, []string{"write"}, ""},
		{"more", []string{"read"}, []string{"read", "write"}, `"write"`},
		{"none before", nil, []string{"read"}, `"read"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := with(c.set...)
			key, err := References(a)[0].Secret(`{"type": "service_account"}`, ID(a))
			if err != nil {
				t.Fatal(err)
			}
			a = with(c.asked...)
			for name, s := range map[string]*Source{
				"vault":    {Agent: "reporter", Vault: vaultWith(t, "reporter", "key", key)},
				"variable": {Agent: "reporter", Environ: environ(map[string]string{EnvName("reporter", "key"): key.Reveal()})},
			} {
				found, err := s.Slot(a, &a.Slots[0])
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.Token(t.Context(), nil, a, &a.Slots[0], found)
				want := "is not the key of a service account" // the next check
				if c.refused != "" && name == "vault" {
					want = "asks for the scope " + c.refused
				}
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("with the key in the %s, Token returned %v; want %s", name, err, want)
				}
			}
		})
	}
}
