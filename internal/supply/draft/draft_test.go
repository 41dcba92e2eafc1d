package draft_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/draft"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

func known(t testing.TB) *catalog.Catalog {
	t.Helper()
	t.Setenv("AMBIT_HOME", t.TempDir())
	h, err := home.Find()
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEveryServer makes agents of every server that the catalogue has: none may
// give a manifest that is not valid.
func TestEveryServer(t *testing.T) {
	c := known(t)
	for _, id := range c.IDs() {
		var scopes []string
		for s := range c.Entries[id].Scopes {
			scopes = append(scopes, s)
		}
		if _, err := (&draft.Draft{Dialect: agent.GPARS, Name: "xyz", Servers: []string{id}, Allow: scopes}).Make(c); err != nil {
			t.Errorf("gpars with %s: %v", id, err)
		}
		r, err := (&draft.Draft{Dialect: agent.Matrix, Name: "xyz", Servers: []string{id}, Allow: []string{"read", "write", "network", "shell"}}).Make(c)
		if c.Entries[id].Package.Kind == catalog.Builtin {
			if err == nil {
				t.Errorf("%s is no package, and a Matrix manifest pins it", id)
			}
			continue
		}
		if err != nil {
			// Its database address could contain a password, which Matrix requires
			// out of a manifest.
			if !strings.Contains(err.Error(), `"--dsn" is a literal credential`) {
				t.Errorf("matrix with %s: %v", id, err)
			}
			continue
		}
		s := r.Manifest.Agent().Servers[0]
		if s.Digest != c.Entries[id].Package.Digest || s.Placeholder || len(r.Manifest.Agent().Tools) != len(c.Entries[id].Tools) {
			t.Errorf("matrix with %s: pinned to %s, %d tools", id, s.Digest, len(r.Manifest.Agent().Tools))
		}
	}
}

// TestSafeByDefault checks the defaults that need no decision.
func TestSafeByDefault(t *testing.T) {
	c := known(t)
	r, err := (&draft.Draft{Dialect: agent.FindAgent, Name: "xyz", HTTP: []string{"get=GET https://a.example.com/{id}", "put=put https://b.example.com/"}, Credentials: []string{"token=a.example.com"}}).Make(c)
	if err != nil {
		t.Fatal(err)
	}
	text := string(r.Text)
	for _, want := range []string{`"secret_leak_scan": true`, "\"put\": {\n        \"approval\": \"human\"", `"additionalProperties": false`} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
	if strings.Count(text, `"auth_ref"`) != 1 {
		t.Errorf("the credential belongs to one host:\n%s", text)
	}
	p, err := (&draft.Draft{Dialect: agent.Covenant, Name: "xyz"}).Make(c)
	if err != nil || !strings.Contains(string(p.Text), `= "off"`) {
		t.Errorf("%v\n%s", err, p.Text)
	}
}

// FuzzMake: any answers give a valid manifest or a reason.
func FuzzMake(f *testing.F) {
	c := known(f)
	for _, d := range agent.Dialects {
		f.Add(string(d), "name", "about it", "filesystem", "read", "get=GET https://a.example.com/{id}", "t=a.example.com")
	}
	f.Add("covenant", "\"\n[agent]", "\x00\u2028", "memory,git", "write", "x=y", "=")
	f.Fuzz(func(t *testing.T, dialect, name, about, server, allow, http, credential string) {
		d := draft.Draft{
			Dialect: agent.Dialect(dialect), Name: name, Description: about, Servers: []string{server}, Allow: []string{allow},
			Runtime: allow, Entry: server, Network: http, Requires: []string{credential}, Prompt: about, Examples: []string{about},
			HTTP: []string{http}, Templates: []string{http}, Credentials: []string{credential},
		}
		for _, one := range []draft.Draft{d, {Dialect: d.Dialect, Name: name, Description: about, Servers: d.Servers, Allow: d.Allow}} {
			r, err := one.Make(c)
			if _, ok := errors.AsType[*draft.Problems](err); err != nil && !ok {
				t.Fatalf("an error of another kind: %v", err)
			}
			if err != nil && err.Error() == "" {
				t.Fatal("there is no reason")
			}
			if err == nil && (!r.Manifest.Valid() || r.Manifest.Dialect != one.Dialect) {
				t.Fatalf("not valid:\n%s", r.Text)
			}
		}
	})
}
