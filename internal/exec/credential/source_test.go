package credential

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

func environ(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

// hintOf returns the hint of a refusal.
func hintOf(t *testing.T, err error) string {
	t.Helper()
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		t.Fatalf("%v is not a refusal", err)
	}
	return r.Hint
}

func vaultWith(t *testing.T, name, ref string, s Secret) *File {
	t.Helper()
	v := open(t.TempDir(), nil)
	if err := v.Set(name, ref, s); err != nil {
		t.Fatal(err)
	}
	return v
}

var reporter = &agent.Agent{
	ID: "ga-report-builder", Name: "GA Report Builder",
	Slots: []agent.Slot{
		{Ref: "analytics_token", Label: "Analytics API token", Env: "ANALYTICS_TOKEN", Type: "string", Required: true, Hosts: []string{"api.example.com"}},
		{Ref: "sheet", Label: "Sheet key", Env: "SHEET", Type: "json", Hosts: []string{"sheets.example.com"}},
	},
	Tools: []agent.Tool{
		{Name: "summary", Binding: agent.HTTP{AuthRef: "analytics_token"}},
		{Name: "write", Binding: agent.HTTP{AuthRef: "sheet", Headers: map[string]string{"X-Id": "{credential.client}"}}},
		{Name: "open", Binding: agent.HTTP{}},
	},
}

// TestOrder checks that the vault takes precedence over the environment. Ambit's variable for the
// agent must take precedence over the manifest's variable.
func TestOrder(t *testing.T) {
	slot := reporter.Slot("analytics_token")
	own := EnvName("ga-report-builder", "analytics_token")
	if own != "AMBIT_SECRET_GA_REPORT_BUILDER__ANALYTICS_TOKEN" {
		t.Errorf("the documented name changed: %s", own)
	}
	vault := vaultWith(t, "ga-report-builder", "analytics_token", mustNew(t, String, "from the vault"))
	for _, tt := range []struct {
		name  string
		vault Vault
		env   map[string]string
		want  string
	}{
		{"vault", vault, map[string]string{own: "own", "ANALYTICS_TOKEN": "shared"}, "from the vault"},
		{"own variable", nil, map[string]string{own: "own", "ANALYTICS_TOKEN": "shared"}, "own"},
		{"shared variable", open(t.TempDir(), nil), map[string]string{"ANALYTICS_TOKEN": "shared"}, "shared"},
		{"empty variable", nil, map[string]string{own: "", "ANALYTICS_TOKEN": "shared"}, "shared"},
	} {
		s, err := (&Source{Agent: "ga-report-builder", Vault: tt.vault, Environ: environ(tt.env)}).Slot(reporter, slot)
		if err != nil || s.Reveal() != tt.want {
			t.Errorf("%s: secret = %q, %v; want %q", tt.name, s.Reveal(), err, tt.want)
		}
	}
	_, err := (&Source{Agent: "ga-report-builder", Environ: environ(nil)}).Slot(reporter, slot)
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok || r.Code != call.CredentialMissing || r.Effect != call.NoEffect ||
		r.Hint != "store the secret: ambit secret set ga-report-builder analytics_token, or set the environment variable ANALYTICS_TOKEN" {
		t.Errorf("refusal = %+v, want credential_missing with a hint", r)
	}
}

// TestOursIsNotTheirs checks that a manifest cannot use the variable of another agent or of
// ambit itself.
func TestOursIsNotTheirs(t *testing.T) {
	for _, name := range []string{EnvName("ga-report-builder", "analytics_token"), "AMBIT_STORE", "ambit_store"} {
		s := &Source{Agent: "thief", Environ: environ(map[string]string{name: canary})}
		thief := &agent.Agent{
			ID: "thief", Slots: []agent.Slot{{Ref: "x", Env: name, Type: "string", Required: true, Hosts: []string{"evil.test"}}},
			Servers: []agent.Server{{Transport: agent.Stdio, Env: []agent.Setting{{Name: "A", Value: "$env:" + name, Refs: []string{name}}}}},
		}
		if secret, err := s.Slot(thief, &thief.Slots[0]); err == nil || !secret.IsZero() {
			t.Errorf("a slot got the value of %s", name)
		}
		if _, ok := s.Lookup(thief)(name); ok {
			t.Errorf("a server got the value of %s", name)
		}
	}
}

// TestVariableIsOfOneName checks that each variable of ambit is read for only one agent name.
func TestVariableIsOfOneName(t *testing.T) {
	slots := func(ref string) *agent.Agent {
		return &agent.Agent{ID: "x", Slots: []agent.Slot{{Ref: ref, Label: "Key", Type: "string", Required: true, Hosts: []string{"api.example.com"}}}}
	}
	for _, tt := range []struct {
		name, as, ref, variable string
		gets                    bool
	}{
		{"plain", "shop", "key", "AMBIT_SECRET_SHOP__KEY", true},
		{"a capital", "Shop", "key", "AMBIT_SECRET_SHOP__KEY", false},
		{"hyphens", "a-b-2", "key", "AMBIT_SECRET_A_B_2__KEY", true},
		{"an underscore", "a_b-2", "key", "AMBIT_SECRET_A_B_2__KEY", false},
		{"a full stop", "a.b-2", "key", "AMBIT_SECRET_A_B_2__KEY", false},
		{"another letter", "aéb-2", "key", "AMBIT_SECRET_A_B_2__KEY", false},
		{"two underscores in the ref", "a", "b__c", "AMBIT_SECRET_A__B__C", true},
		{"two hyphens in the name", "a--b", "c", "AMBIT_SECRET_A__B__C", false},
		{"an underscore before the ref", "a", "_c", "AMBIT_SECRET_A___C", true},
		{"a hyphen after the name", "a-", "c", "AMBIT_SECRET_A___C", false},
		{"a hyphen before the name", "-a", "c", "AMBIT_SECRET__A__C", false},
		{"a path", "/a", "c", "AMBIT_SECRET__A__C", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := EnvName(tt.as, tt.ref); got != tt.variable {
				t.Fatalf("EnvName = %s, want %s", got, tt.variable)
			}
			a := slots(tt.ref)
			for _, vault := range []Vault{nil, open(t.TempDir(), nil)} {
				s := &Source{Agent: tt.as, Vault: vault, Environ: environ(map[string]string{tt.variable: canary})}
				secret, err := s.Slot(a, &a.Slots[0])
				if got := secret.Reveal() == canary; got != tt.gets || got != (err == nil) {
					t.Fatalf("the agent got the secret: %t, want %t; error %v", got, tt.gets, err)
				}
				if _, ok := s.Lookup(a)(tt.ref); ok != tt.gets {
					t.Errorf("a server got the secret: %t, want %t", ok, tt.gets)
				}
				if err != nil && (strings.Contains(hintOf(t, err), "set the environment variable") || strings.Contains(hintOf(t, err), canary) ||
					!strings.Contains(hintOf(t, err), "; the variable "+tt.variable+" is not read for agent "+tt.as+
						", because another agent name maps to")) {
					t.Error(hintOf(t, err))
				}
			}
			// If no value is set, the hint names the variable only if ambit would read it for this agent.
			_, err := (&Source{Agent: tt.as, Environ: environ(nil)}).Slot(a, &a.Slots[0])
			want := "store the secret: ambit secret set " + tt.as + " " + tt.ref
			if tt.gets {
				want += ", or set the environment variable " + tt.variable
			}
			if got := hintOf(t, err); got != want {
				t.Error(got)
			}
		})
	}
}

// broken is a vault that cannot be read.
type broken struct{ Vault }

func (broken) Get(string, string) (Secret, bool, error) { return Secret{}, false, ErrDamaged }

// TestBrokenVault checks that the environment is not used if the vault cannot be read.
func TestBrokenVault(t *testing.T) {
	var reported []error
	s := &Source{Agent: "ga-report-builder", Vault: broken{}, Environ: environ(map[string]string{"ANALYTICS_TOKEN": canary}), OnError: func(err error) { reported = append(reported, err) }}
	_, err := s.Slot(reporter, reporter.Slot("analytics_token"))
	if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Code != call.CredentialMissing || !strings.Contains(r.Message, "cannot be decrypted") {
		t.Error(err)
	}
	if value, ok := s.Lookup(reporter)("ANALYTICS_TOKEN"); ok || value != "" || len(reported) != 1 || !errors.Is(reported[0], ErrDamaged) {
		t.Errorf("Lookup found a value: %v; reported errors %v, want ErrDamaged once", ok, reported)
	}
	if known, err := s.Known(reporter, References(reporter)); !errors.Is(err, ErrDamaged) || len(known) != 0 {
		t.Errorf("Known = %v, %v; want ErrDamaged", known, err)
	}
}

func TestBadValueInTheEnvironment(t *testing.T) {
	_, err := (&Source{Environ: environ(map[string]string{"SHEET": canary})}).Slot(reporter, reporter.Slot("sheet"))
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok || r.Code != call.CredentialMissing || !strings.Contains(r.Message, "SHEET: the value is not valid JSON") ||
		!strings.Contains(r.Hint, "environment variable SHEET") || strings.Contains(fmt.Sprintf("%+v", r), canary) {
		t.Error(err)
	}
}

// TestOptional checks that a missing optional credential is no error.
func TestOptional(t *testing.T) {
	if s, err := (&Source{Environ: environ(nil)}).Slot(reporter, reporter.Slot("sheet")); err != nil || !s.IsZero() {
		t.Errorf("Slot = %v, %v; want no secret and no error", s, err)
	}
}

var matrix = &agent.Agent{
	ID: "matrix://agent/neo",
	Servers: []agent.Server{
		{Alias: "git", Transport: agent.Stdio, Command: "git-server", Env: []agent.Setting{{Name: "T", Value: "$env:GIT_TOKEN", Refs: []string{"GIT_TOKEN"}}, {Name: "P", Value: "$env:PATH", Refs: []string{"PATH"}}}},
		{Alias: "web", Transport: agent.StreamableHTTP, Endpoint: "https://mcp.example.com/mcp", Headers: []agent.Setting{{Name: "Authorization", Value: "Bearer $env:WEB", Refs: []string{"WEB"}}}},
		{Alias: "both", Transport: agent.StreamableHTTP, Endpoint: "https://b.example.com/mcp", Headers: []agent.Setting{{Name: "A", Value: "$env:GIT_TOKEN", Refs: []string{"GIT_TOKEN"}}}},
		{Alias: "web2", Transport: agent.StreamableHTTP, Endpoint: "https://c.example.com/mcp", Headers: []agent.Setting{{Name: "A", Value: "$env:WEB", Refs: []string{"WEB"}}}},
	},
}

func TestLookup(t *testing.T) {
	var wants []string
	for _, w := range References(matrix) {
		wants = append(wants, fmt.Sprint(w.Ref, " ", w.Type, " ", w.Env, " ", w.Hosts, " ", w.Required))
	}
	if want := []string{"GIT_TOKEN secret GIT_TOKEN [] true", "WEB secret WEB [mcp.example.com c.example.com] true"}; !slices.Equal(wants, want) {
		t.Errorf("References = %q, want %q", wants, want)
	}
	var reported []error
	s := &Source{
		Agent: "neo", Vault: vaultWith(t, "neo", "WEB", mustNew(t, Masked, canary, "mcp.example.com", "c.example.com")), OnError: func(err error) { reported = append(reported, err) },
		Environ: environ(map[string]string{"GIT_TOKEN": "from the environment", "WEB": "x"}),
	}
	for name, want := range map[string]string{"WEB": canary, "GIT_TOKEN": "from the environment", "ABSENT": ""} {
		if value, ok := s.Lookup(matrix)(name); value != want || ok != (want != "") {
			t.Errorf("Lookup(%s) found a value: %v, want %v", name, ok, want != "")
		}
	}
	// Another manifest with the same name must not get the secret for its own server.
	for _, server := range []agent.Server{
		{Alias: "web", Transport: agent.StreamableHTTP, Endpoint: "https://evil.test/mcp", Headers: matrix.Servers[1].Headers},
		{Alias: "web", Transport: agent.Stdio, Command: "x", Env: matrix.Servers[1].Headers},
	} {
		evil := &agent.Agent{ID: matrix.ID, Servers: []agent.Server{server}}
		if _, ok := s.Lookup(evil)("WEB"); ok {
			t.Errorf("the server %s %s got the secret", server.Endpoint, server.Command)
		}
	}
	if len(reported) != 2 || strings.Contains(reported[0].Error(), canary) {
		t.Error(reported)
	}
}

func TestKnown(t *testing.T) {
	key := `{"type":"service_account","client":"client-1","private_key":"` + canary + `","nested":[{"password":"p1"},"plain"],"project_id":"my-project","seed":"3 horses","list":["unnamed9"]}`
	s := &Source{Environ: environ(map[string]string{"ANALYTICS_TOKEN": "token-1", "SHEET": key})}
	known, err := s.Known(reporter, References(reporter))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, k := range known {
		values = append(values, k.Reveal())
	}
	slices.Sort(values)
	if want := []string{"3 horses", canary, "client-1", "p1", "token-1", "unnamed9", key}; !slices.Equal(values, want) {
		t.Errorf("known values are %q, want %q", values, want)
	}
}

// TestKnownKeepsIssuedValues checks that Known still returns an issued value after the value was replaced.
// Values that were never issued are not recorded.
func TestKnownKeepsIssuedValues(t *testing.T) {
	values := map[string]string{"PATH": "/usr/bin:/bin"}
	s := (&Source{Environ: environ(values)}).For("neo")
	knows := func(a *agent.Agent, want ...string) {
		t.Helper()
		clear(values)
		known, err := s.Known(a, References(a))
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, k := range known {
			got = append(got, k.Reveal())
		}
		if !slices.Equal(got, want) {
			t.Errorf("known: %q, want %q", got, want)
		}
	}
	s.Lookup(matrix)("PATH") // the variable PATH is not a secret
	values["WEB"] = "not returned"
	if known, err := s.Known(matrix, References(matrix)); err != nil || len(known) != 1 {
		t.Errorf("Known returned %d secrets and error %v, want 1 secret", len(known), err)
	}
	knows(matrix)
	for _, value := range []string{"web-1", "web-2", "web-1"} {
		values["WEB"] = value
		s.Lookup(matrix)("WEB")
	}
	knows(matrix, "web-1", "web-2")
	values["SHEET"] = `{"client":"client-1","other":"x","password":"p1"}`
	if _, err := s.Slot(reporter, reporter.Slot("sheet")); err != nil {
		t.Fatal(err)
	}
	knows(reporter, "web-1", "web-2", `{"client":"client-1","other":"x","password":"p1"}`, "client-1", "p1")
	if other := s.For("trinity"); len(other.issued.all()) != 0 {
		t.Error("another agent's secrets are known")
	}
}

// TestIssuedIsBounded checks that the oldest value of a ref is dropped if the ref has too many values. Other refs must
// not be affected.
func TestIssuedIsBounded(t *testing.T) {
	values := map[string]string{"GIT_TOKEN": "git-1"}
	s := (&Source{Environ: environ(values)}).For("neo")
	s.Lookup(matrix)("GIT_TOKEN")
	for i := range maxIssued + 2 {
		values["WEB"] = fmt.Sprint("web-", i)
		s.Lookup(matrix)("WEB")
	}
	all := s.issued.all()
	if len(all) != maxIssued+1 || all[0].Reveal() != "git-1" || all[1].Reveal() != "web-2" || all[maxIssued].Reveal() != fmt.Sprint("web-", maxIssued+1) {
		t.Errorf("%d values are recorded, from %q to %q", len(all), all[0].Reveal(), all[len(all)-1].Reveal())
	}
}
