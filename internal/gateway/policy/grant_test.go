package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const mine = `// My own words; they stay.

@id("mine")
forbid (principal, action, resource) when { resource.side_effect == "shell" }; // ; not the end
// the end`

func TestGrantAndRevoke(t *testing.T) {
	end := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	for _, text := range []string{"", header, mine, mine + "\n"} {
		read := Grant{Agent: "coder", Server: "registry.openmcp.org/fs", Scope: "read", By: "me@local"}
		write := Grant{Agent: "coder", Server: "registry.openmcp.org/fs", Scope: "write", By: "me@local", At: end.AddDate(-1, 0, 0), Expires: end}
		odd := Grant{Agent: "q\"uo\\te\n;//", Server: "s\"", Scope: "a\u202eb;", By: "x\"y"}
		odd.ID = "id\"\\;"
		out, changed, err := Add("p", []byte(text), []Grant{read, write, odd})
		if err != nil || !changed {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(out), text) {
			t.Errorf("the user's text changed:\n%s", out)
		}
		rules, err := Parse("p", out)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(rules.Grants()), fmt.Sprint([]Grant{read, write, odd}); got != want {
			t.Errorf("got the grants %s, want %s", got, want)
		}
		again, changed, err := Add("p", out, []Grant{read, write, odd})
		if err != nil || changed || string(again) != string(out) {
			t.Errorf("adding the same grants again changed the text: %v", err)
		}
		other := read
		other.Expires = end
		longer, changed, err := Add("p", out, []Grant{other})
		if err != nil || !changed || strings.Count(string(longer), "@ambit") != 3 {
			t.Errorf("a new expiry did not replace the rule: %v\n%s", err, longer)
		}
		back, removed, err := Remove("p", longer, []Grant{write, odd, {Agent: "coder", Server: "registry.openmcp.org/fs", Scope: "read"}})
		if err != nil || len(removed) != 3 {
			t.Fatal(removed, err)
		}
		if want := strings.TrimSuffix(text, "\n"); strings.TrimSuffix(string(back), "\n") != want {
			t.Errorf("after revoking all grants, got\n%q, want\n%q", back, want)
		}
		if _, removed, err := Remove("p", back, []Grant{read}); err != nil || removed != nil {
			t.Errorf("Remove removed a grant that does not exist: %v, %v", removed, err)
		}
	}
}

// Remove does not remove a grant that was edited.
func TestRevokeLeavesChangedRules(t *testing.T) {
	g := Grant{Agent: "coder", Server: "fs", Scope: "read", By: "me"}
	for name, change := range map[string]func(string) string{
		"an additional condition": func(s string) string {
			return strings.Replace(s, `contains("read")`, `contains("read") && context.caller == "x"`, 1)
		},
		"another effect": func(s string) string { return strings.Replace(s, "permit", "forbid", 1) },
		"a second scope": func(s string) string {
			return strings.Replace(s, `contains("read")`, `containsAny(["read", "write"])`, 1)
		},
	} {
		text := change(g.Rule())
		if _, removed, err := Remove("p", []byte(text), []Grant{g}); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: removed %v, %v", name, removed, err)
		}
	}
}

func TestGrantIntoBrokenFile(t *testing.T) {
	if out, _, err := Add("p", []byte("permit ("), []Grant{{Agent: "a", Server: "s", Scope: "x"}}); err == nil {
		t.Errorf("Add accepted an invalid file: %s", out)
	}
}

// Concurrent edits of the file do not lose rules.
func TestEditTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "home", "policy.cedar")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			err := Edit(file, func(text []byte) ([]byte, error) {
				out, _, err := Add(file, text, []Grant{{Agent: fmt.Sprint("agent", i), Server: "s", Scope: "x"}})
				return out, err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := Parse(file, text)
	if err != nil || rules.Len() != 20 {
		t.Errorf("got %d rules, want 20: %v", rules.Len(), err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
}

// If the file is a symbolic link, Edit changes the target and keeps the link.
func TestEditFollowsALink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "policy.cedar")
	if err := os.WriteFile(real, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Skip("symbolic links are not supported:", err)
	}
	if err := Edit(link, func([]byte) ([]byte, error) { return []byte(mine), nil }); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	text, readErr := os.ReadFile(real)
	if err != nil || info.Mode()&os.ModeSymlink == 0 || readErr != nil || string(text) != mine {
		t.Errorf("the link is %v, %v, and the target contains %q", info, err, text)
	}
}

// FuzzGrant checks that a grant with any names adds exactly one rule to any text. Removing the grant must
// restore the text.
func FuzzGrant(f *testing.F) {
	f.Add("coder", "registry.openmcp.org/fs", "read", mine)
	f.Add("a\"b", "c\\", "\x00\u202e;", "")
	f.Add(`x"};permit(principal,action,resource);//`, "s", `read") || true //`, "permit (principal, action, resource);")
	f.Fuzz(func(t *testing.T, name, server, scope, text string) {
		before, err := Parse("p", []byte(text))
		if err != nil {
			return
		}
		g := Grant{Agent: name, Server: server, Scope: scope, By: name}
		if before.find(g) != nil || before.findEdited(g) != nil {
			return
		}
		out, _, err := Add("p", []byte(text), []Grant{g})
		if err != nil {
			return // Cedar cannot represent one of the names
		}
		after, err := Parse("p", out)
		if err != nil || after.Len() != before.Len()+1 {
			t.Fatalf("%d rules became %d: %v\n%s", before.Len(), after.Len(), err, out)
		}
		back, removed, err := Remove("p", out, []Grant{g})
		if err != nil || len(removed) != 1 || removed[0] != g {
			t.Fatalf("Remove removed %+v, %v", removed, err)
		}
		if strings.TrimSuffix(string(back), "\n") != strings.TrimSuffix(text, "\n") {
			t.Fatalf("removing the grant from %q left %q", text, back)
		}
	})
}
