package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/manifest"
)

// put writes files to a new folder and returns the path of the folder.
func put(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// If two valid agents have the same name or id, the first one is served. A broken file reserves its name
// and id, so that no other agent replaces it. A duplicate reserves neither name nor id.
func TestNames(t *testing.T) {
	broken := `{"schema_version": 1, "agent": "matrix://agent/notes", "servers": [}`
	for name, tt := range map[string]struct {
		files  map[string]string
		served []string
		why    string
	}{
		"an invalid manifest":                                {map[string]string{"a/bd/notes.json": broken, "a/notes.json": matrix("notes")}, nil, "a/notes.json and a/bd/notes.json both have the name notes, and a/bd/notes.json cannot be served anyway; either fix or remove a/bd/notes.json, or rename a/notes.json"},
		"an empty manifest in the place of an installed one": {map[string]string{"a/notes/notes.json": "", "b/zz/notes.json": matrix("notes")}, nil, "b/zz/notes.json and a/notes/notes.json both have the name notes, and a/notes/notes.json cannot be served"},
		"an invalid manifest after a valid one":              {map[string]string{"a/notes.json": matrix("notes"), "b/notes.json": broken}, []string{"a/notes.json"}, "b/notes.json:1:"},
		"an agent that cannot run":                           {map[string]string{"a/unfit/notes.json": matrix("more"), "b/notes.json": matrix("notes")}, nil, "b/notes.json and a/unfit/notes.json both have the name notes, and a/unfit/notes.json cannot be served"},
		"an agent with a duplicate id":                       {map[string]string{"a/desk.json": matrix("desk"), "b/bd/notes.json": matrix("desk"), "b/notes.json": matrix("notes")}, []string{"a/desk.json", "b/notes.json"}, "b/bd/notes.json and a/desk.json both have the id matrix://agent/desk"},
		"the id of an agent that cannot run":                 {map[string]string{"a/unfit/notes.json": matrix("notes"), "b/other.json": matrix("notes")}, nil, "b/other.json and a/unfit/notes.json both have the id matrix://agent/notes, and a/unfit/notes.json cannot be served anyway; either fix or remove a/unfit/notes.json, or change the id in b/other.json"},
		"the id of an agent with a broken lock":              {map[string]string{"a/bd/notes.json": matrix("notes"), "a/bd/ambit.lock": "{", "b/other.json": matrix("notes")}, nil, "b/other.json and a/bd/notes.json both have the id matrix://agent/notes, and a/bd/notes.json cannot be served"},
		"an agent that cannot run after a valid one":         {map[string]string{"a/notes.json": matrix("notes"), "b/unfit/other.json": matrix("notes")}, []string{"a/notes.json"}, "not here"},
		"the id of an agent with a duplicate name":           {map[string]string{"a/notes.json": matrix("notes"), "b/notes.json": matrix("more"), "b/other.json": matrix("more")}, []string{"a/notes.json", "b/other.json"}, "b/notes.json and a/notes.json both have the name notes; rename one of them"},
		"two valid agents with the same name":                {map[string]string{"a/notes.json": matrix("notes"), "b/notes.json": matrix("more")}, []string{"a/notes.json"}, "b/notes.json and a/notes.json both have the name notes; rename one of them"},
		"two valid agents with the same id":                  {map[string]string{"a/notes.json": matrix("notes"), "b/more.json": matrix("notes")}, []string{"a/notes.json"}, "b/more.json and a/notes.json both have the id matrix://agent/notes; change one of the ids"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := put(t, tt.files)
			r := newRig(t, nil, func(_ *rig, o *Options) {
				o.Folders = []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
				o.CanRun = func(m *manifest.Manifest) error {
					if filepath.Base(filepath.Dir(m.Path)) == "unfit" {
						return errors.New("not here")
					}
					return nil
				}
			})
			var served, why []string
			for _, e := range r.fleet.current.Load().all {
				if e.rejected() {
					why = append(why, e.Problem.Error())
					continue
				}
				served = append(served, e.short)
				if r.fleet.current.Load().byName[e.Name] != e {
					t.Errorf("%s is served, but its name belongs to another file", e.short)
				}
			}
			if !slices.Equal(served, tt.served) || !strings.Contains(strings.Join(why, "\n"), tt.why) {
				t.Errorf("served %q; rejected: %q", served, why)
			}
		})
	}
}

// Find omits files that are not manifests. List includes files that may be broken manifests.
func TestNotAManifest(t *testing.T) {
	dir := put(t, map[string]string{
		"broken.json": "{", "broken.toml": "[", "empty.json": "",
		"other.json": `{"name": "other"}`, "list.json": "[]", "other.toml": "a = 1\n",
		"api.json":          `{"openapi": "3.1.0", "info": {"title": "Pets", "version": "1.0.0"}, "servers": [{"url": "https://example.com"}], "paths": {}}`,
		"schema.json":       `{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {"name": {"type": "string"}}}`,
		"app/tsconfig.json": "{ // for the build\n}", "app/broken.json": "{",
		"app/agent.toml": "[", "bad/notes.json": `{"allowed_side_effects": [}`,
		"gone/gone.json": "", "own/own.json": "{}", "own/other.json": "{}",
		"crm/crm.json": `{"openapi": "3.1.0", "info": {"title": "CRM", "version": "1.0.0"}, "paths": {}}`, "crm/agent.toml": "[",
		"erp/erp.json": `{"openapi": "3.1.0"}`, "erp/agent.toml/x": "",
	})
	if err := os.Symlink("nowhere", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		find func(...string) ([]Found, error)
		want []string
	}{
		"found":  {Find, []string{"app/agent.toml", "bad/notes.json", "crm/agent.toml", "link.json"}},
		"listed": {List, []string{"app/agent.toml", "bad/notes.json", "broken.json", "broken.toml", "crm/agent.toml", "empty.json", "erp/erp.json", "gone/gone.json", "link.json", "own/own.json"}},
	} {
		found, err := tt.find(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found {
			got = append(got, f.short)
			if f.Problem == nil {
				t.Errorf("%s has no Problem", f.short)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Messages contain paths relative to the deepest folder that contains all agents. The test reads a file in the last
// folder.
func TestPathsInMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		folders []string
		want    string
	}{
		"one folder":                                  {[]string{"/srv/team/agents"}, "a.json"},
		"two agents folders below one folder":         {[]string{"/srv/team/desk", "/srv/team/t"}, "t/a.json"},
		"the second agents folder inside the first":   {[]string{"/srv/team", "/srv/team/agents"}, "agents/a.json"},
		"the first agents folder inside the second":   {[]string{"/srv/team/agents", "/srv/team"}, "a.json"},
		"a longer name":                               {[]string{"/srv/desk", "/srv/desktop"}, "desktop/a.json"},
		"agents folders with only the root in common": {[]string{"/srv/a", "/opt/b", "/home/me/agents"}, "agents/a.json"},
		"relative, absolute":                          {[]string{"agents", "/srv/me/desk"}, "desk/a.json"},
		"relative, outside":                           {[]string{"agents", "../me/desk"}, "desk/a.json"},
		"two relative folders":                        {[]string{"x/agents", "y/agents"}, "y/agents/a.json"},
	} {
		folders := make([]string, len(tt.folders))
		for i, folder := range tt.folders {
			folders[i] = filepath.FromSlash(folder)
		}
		last := folders[len(folders)-1]
		f, _ := read(last, filepath.Join(last, "a.json"), messageBase(last, folders), manifest.Options{})
		if filepath.ToSlash(f.short) != tt.want || !strings.HasPrefix(f.Problem.Error(), f.short+" cannot be read") {
			t.Errorf("%s: %s: %v", name, f.short, f.Problem)
		}
	}
}

// An empty file reserves its name, although Find omits it. A duplicate does not hide the served agent.
func TestPick(t *testing.T) {
	for name, tt := range map[string]struct {
		files  map[string]string
		picked string
		served bool
	}{
		"emptied":                  {map[string]string{"a/notes.json": "", "b/notes.json": matrix("notes")}, "b/notes.json", false},
		"refused for an id":        {map[string]string{"a/desk.json": matrix("desk"), "b/bd/notes.json": matrix("desk"), "b/notes.json": matrix("notes")}, "b/notes.json", true},
		"served, and then refused": {map[string]string{"a/notes.json": matrix("notes"), "b/notes.json": matrix("more")}, "a/notes.json", true},
		"none":                     {map[string]string{"a/desk.json": matrix("desk")}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := put(t, tt.files)
			found, err := Find(filepath.Join(dir, "a"), filepath.Join(dir, "b"))
			if err != nil {
				t.Fatal(err)
			}
			f := Pick(found, func(f *Found) bool { return f.Name == "notes" })
			if f == nil {
				f = &Found{Problem: errors.New("there is none")}
			}
			if f.short != tt.picked || (f.Problem == nil) != tt.served {
				t.Errorf("picked %q, %v", f.short, f.Problem)
			}
		})
	}
}
