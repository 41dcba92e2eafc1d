package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// readProviders writes a config.toml and reads its [oidc] table.
func readProviders(t *testing.T, text string) (*OIDCConfig, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadOIDC(file)
}

// Two providers that use the same names have different principals and groups.
func TestProvidersAreApart(t *testing.T) {
	home, partner, stranger := newIssuer(t), newIssuer(t), newIssuer(t)
	c, err := readProviders(t, fmt.Sprintf(`
[oidc]
issuer = %q
audience = "ambit"
[oidc.subjects]
ada = ["neo"]
[oidc.admins]
subjects = ["eve"]
groups = ["ops"]
[oidc.providers.partner]
issuer = %q
audience = "ambit"
groups_claim = "/realm_access/roles"
[oidc.providers.partner.group_names]
"6f2c-11" = "finance"
"6f2c-12" = "home:staff"
[oidc.providers.partner.subjects]
ada = ["forge"]
[oidc.providers.partner.groups]
finance = ["payroll"]
sales = ["crm"]
`, home.URL, partner.URL))
	if err != nil {
		t.Fatal(err)
	}
	p := NewProviders(c)
	if got, want := p.Issuers(), []string{home.URL, partner.URL}; !slices.Equal(got, want) {
		t.Errorf("the issuers are %v, want %v", got, want)
	}
	roles := func(groups ...string) map[string]any {
		return map[string]any{"realm_access": map[string]any{"roles": groups}, "groups": []string{"ops"}}
	}
	for _, tt := range []struct {
		name   string
		from   *issuer
		change map[string]any
		want   *Principal // nil if the token must be rejected
	}{
		{"home", home, map[string]any{"groups": []string{"staff", "finance"}}, &Principal{Name: "ada", Agents: []string{"neo"}, Groups: []string{"finance", "staff"}}},
		{"a home token with a group of the partner", home, map[string]any{"groups": []string{"partner:sales", "staff"}}, &Principal{Name: "ada", Agents: []string{"neo"}, Groups: []string{"staff"}}},
		{"a home token with a principal of the partner", home, map[string]any{"sub": "partner:ada"}, nil},
		{"a home token of an admin", home, map[string]any{"sub": "eve"}, &Principal{Name: "eve", Admin: true}},
		{"partner", partner, roles("sales"), &Principal{Name: "partner:ada", Agents: []string{"forge", "crm"}, Groups: []string{"partner:sales"}}},
		{"a partner token with the name of a home group", partner, roles("finance", "staff", "ops"), &Principal{Name: "partner:ada", Agents: []string{"forge", "payroll"}, Groups: []string{"partner:finance", "partner:ops", "partner:staff"}}},
		{"a partner token with a renamed group", partner, roles("6f2c-11", "6f2c-12"), &Principal{Name: "partner:ada", Agents: []string{"forge", "payroll"}, Groups: []string{"finance", "home:staff"}}},
		{"a partner token with the name of a home admin", partner, map[string]any{"sub": "eve", "realm_access": nil}, &Principal{Name: "partner:eve"}},
		{"a partner token without a list of groups", partner, map[string]any{"realm_access": "x"}, nil},
		{"a partner token with a long name", partner, map[string]any{"sub": strings.Repeat("a", maxName)}, nil},
		{"not configured", stranger, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := p.Check(t.Context(), tt.from.token(t, rs256, tt.from.claims(tt.change)))
			if tt.want == nil {
				if !errors.Is(err, ErrToken) {
					t.Errorf("got %+v, %v, want ErrToken", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != tt.want.Name || !slices.Equal(got.Agents, tt.want.Agents) || !slices.Equal(got.Groups, tt.want.Groups) ||
				got.Admin != tt.want.Admin || got.Everywhere || got.Issuer != tt.from.URL {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	// Check rejects a token that names one provider but is signed by another.
	if got, err := p.Check(t.Context(), partner.token(t, rs256, home.claims(nil))); !errors.Is(err, ErrToken) {
		t.Errorf("a token that names the home provider, signed by the partner: got %+v and the error %v, want ErrToken",
			got, err)
	}
	if stranger.fetched > 0 {
		t.Error("a token of an unknown issuer caused requests to it")
	}
}

// A token whose groups are not certain is rejected, because a rule may forbid something to a group.
func TestClaimsAreBounded(t *testing.T) {
	i := newIssuer(t)
	o := NewOIDC(i.config())
	many := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("g", i))
		}
		return list
	}
	sources := map[string]any{"src1": map[string]any{"endpoint": "https://graph.example/groups"}}
	for _, tt := range []struct {
		name   string
		change map[string]any
		ok     bool
	}{
		{"none", nil, true},
		{"null", map[string]any{"groups": json.RawMessage("null")}, true},
		{"an empty string", map[string]any{"groups": "", "acr": "", "amr": []string{}}, true},
		{"a name with spaces", map[string]any{"groups": "Domain Users"}, true},
		{"the maximum number of groups and methods", map[string]any{"groups": many(maxGroups), "amr": many(maxMethods)}, true},
		{"too many groups", map[string]any{"groups": many(maxGroups + 1)}, false},
		{"a number", map[string]any{"groups": 7}, false},
		{"a number in the list of groups", map[string]any{"groups": []any{"a", 7}}, false},
		{"an object", map[string]any{"groups": map[string]any{"a": true}}, false},
		{"an empty name", map[string]any{"groups": []string{""}}, false},
		{"a name with a line break", map[string]any{"groups": []string{"a\nb"}}, false},
		{"an invisible character", map[string]any{"groups": []string{"fin\u200bance"}}, false},
		{"a space at the end", map[string]any{"groups": []string{"finance "}}, false},
		{"a long name", map[string]any{"groups": []string{strings.Repeat("g", maxName+1)}}, false},
		{"groups stored only at the provider", map[string]any{"_claim_names": map[string]any{"groups": "src1"}, "_claim_sources": sources}, false},
		{"other claims stored only at the provider", map[string]any{"_claim_names": map[string]any{"roles": "src1"}, "_claim_sources": sources}, true},
		{"groups of Microsoft stored elsewhere", map[string]any{"hasgroups": true}, false},
		{"no groups of Microsoft", map[string]any{"hasgroups": false}, true},
		{"names of claims that are not an object", map[string]any{"_claim_names": []string{"groups"}}, false},
		{"too many methods", map[string]any{"amr": many(maxMethods + 1)}, false},
		{"an acr that is a number", map[string]any{"acr": 1}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := o.Check(t.Context(), i.token(t, rs256, i.claims(tt.change)))
			if tt.ok != (err == nil) || err != nil && !errors.Is(err, ErrToken) {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
	p, err := o.Check(t.Context(), i.token(t, rs256, i.claims(map[string]any{"acr": "gold", "amr": []string{"pwd", "mfa"}})))
	if err != nil || p.ACR != "gold" || !slices.Equal(p.AMR, []string{"pwd", "mfa"}) {
		t.Errorf("got %+v, %v", p, err)
	}
}

// If groups_claim is a pointer, a token must not hide its groups behind another form of the claims on the way.
func TestNestedGroupsAreCertain(t *testing.T) {
	i := newIssuer(t)
	c := i.config()
	c.GroupsClaim = "/realm/roles"
	sources := map[string]any{"src1": map[string]any{"endpoint": "https://graph.example/groups"}}
	o := NewOIDC(c)
	for _, tt := range []struct {
		name   string
		change map[string]any
		groups []string
		ok     bool
	}{
		{"none", nil, nil, true},
		{"null", map[string]any{"realm": nil}, nil, true},
		{"groups", map[string]any{"realm": map[string]any{"roles": []string{"finance"}}}, []string{"finance"}, true},
		{"no groups", map[string]any{"realm": map[string]any{"roles": nil}}, nil, true},
		{"the whole claim stored elsewhere", map[string]any{"_claim_names": map[string]any{"realm": "src1"}, "_claim_sources": sources}, nil, false},
		{"a list in place of the object", map[string]any{"realm": []string{"finance"}}, nil, false},
		{"a string in place of the object", map[string]any{"realm": "finance"}, nil, false},
		{"a claim of this name", map[string]any{"/realm/roles": "sales", "realm": "x"}, []string{"sales"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := o.Check(t.Context(), i.token(t, rs256, i.claims(tt.change)))
			if tt.ok != (err == nil) || err != nil && !errors.Is(err, ErrToken) {
				t.Fatalf("got %+v, %v", p, err)
			}
			if err == nil && !slices.Equal(p.Groups, tt.groups) {
				t.Errorf("the groups are %q, want %q", p.Groups, tt.groups)
			}
		})
	}
}

func TestReadProviders(t *testing.T) {
	const home, partner = "[oidc]\nissuer='https://a.example'\naudience='a'\n", "[oidc.providers.b]\nissuer='https://b.example'\naudience='a'\n"
	for _, tt := range []struct{ name, text, want string }{
		{"both", home + partner, ""},
		{"only other providers", partner, ""},
		{"the same issuer", home + strings.Replace(partner, "//b", "//a", 1), "two providers have the issuer https://a.example"},
		{"half a table", "[oidc]\naudience='a'\n" + partner, "the issuer and the audience are both required"},
		{"half a provider", home + "[oidc.providers.b]\naudience='a'", "[oidc.providers.b]: the issuer and the audience are both required"},
		{"a provider named key", home + strings.Replace(partner, ".b]", ".key]", 1), "must not be \"key\""},
		{"a name with a colon", home + strings.Replace(partner, ".b]", ".\"b:c\"]", 1), "the name of a provider must consist of"},
		{"providers of a provider", home + strings.Replace(partner, ".b]", ".b.providers.c]", 1), ""},
		{"a group name of two lines", home + "[oidc.group_names]\nx = \"a\\nb\"", "is not a valid name for the group"},
		{"http", strings.Replace(partner, "https", "http", 1), "must begin with https"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readProviders(t, tt.text)
			if tt.name == "providers of a provider" {
				tt.want = "there is no setting"
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzGroups checks that every accepted list of groups is bounded and valid, and that no group gets a name of another
// provider.
func FuzzGroups(f *testing.F) {
	for _, s := range []string{`{"groups":["a","b:c"]}`, `{"groups":"a"}`, `{"/x":{"y":["a"]}}`, `{"groups":null}`, `{"groups":[null]}`, `{"_claim_names":{"groups":"x"}}`, `[]`} {
		f.Add([]byte(s), "groups")
		f.Add([]byte(s), "/groups/0")
		f.Add([]byte(s), "/")
	}
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		var claims map[string]jsontext.Value
		if json.Unmarshal(text, &claims) != nil {
			return
		}
		c := &OIDCConfig{GroupsClaim: name, others: []string{"b"}}
		groups, err := c.groupsOf(claims)
		if err != nil {
			return
		}
		other := &OIDCConfig{name: "b"}
		for _, g := range c.rename(groups) {
			if len(groups) > maxGroups || !ValidGroup(g) || slices.Contains(other.rename(groups), g) {
				t.Errorf("the claims %s give the group %q", text, g)
			}
		}
	})
}
