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

// A draft with any server in the catalogue results in a valid manifest.
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
				t.Errorf("%s is built into ambit, but Make returned a Matrix manifest that pins it", id)
			}
			continue
		}
		if err != nil {
			// The argument --dsn of a database server could contain a password. A Matrix manifest
			// must not contain passwords.
			if !strings.Contains(err.Error(), `"--dsn" is a literal credential`) {
				t.Errorf("matrix with %s: %v", id, err)
			}
			continue
		}
		s := r.Manifest.Agent().Servers[0]
		if s.Digest != c.Entries[id].Package.Digest || s.Placeholder || len(r.Manifest.Agent().Tools) != len(c.Entries[id].Tools) {
			t.Errorf("a Matrix draft with the server %s has the digest %s and %d tools",
				id, s.Digest, len(r.Manifest.Agent().Tools))
		}
	}
}

// The defaults of a draft are safe: secret scanning, approval for changes, one host for each
// credential, and no network for programs.
func TestSafeByDefault(t *testing.T) {
	c := known(t)
	r, err := (&draft.Draft{Dialect: agent.FindAgent, Name: "xyz", HTTP: []string{"get=GET https://a.example.com/{id}", "put=put https://b.example.com/"}, Credentials: []string{"token=a.example.com"}}).Make(c)
	if err != nil {
		t.Fatal(err)
	}
	text := string(r.Text)
	for _, want := range []string{`"secret_leak_scan": true`, "\"put\": {\n        \"approval\": \"human\"", `"additionalProperties": false`} {
		if !strings.Contains(text, want) {
			t.Errorf("the manifest does not contain %s:\n%s", want, text)
		}
	}
	if strings.Count(text, `"auth_ref"`) != 1 {
		t.Errorf("the credential is not used for exactly one tool:\n%s", text)
	}
	p, err := (&draft.Draft{Dialect: agent.Covenant, Name: "xyz"}).Make(c)
	if err != nil || !strings.Contains(string(p.Text), `= "off"`) {
		t.Errorf("the network of a program is not off: %v\n%s", err, p.Text)
	}
}

// FuzzMake checks that, for any answers, Make returns a valid manifest or an error of type
// Problems.
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
				t.Fatalf("the error is a %T, want *Problems: %v", err, err)
			}
			if err != nil && err.Error() == "" {
				t.Fatal("the error has no text")
			}
			if err == nil && (!r.Manifest.Valid() || r.Manifest.Dialect != one.Dialect) {
				t.Fatalf("the manifest is not valid, or is of another dialect:\n%s", r.Text)
			}
		}
	})
}
