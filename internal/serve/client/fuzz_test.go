package client

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/tailscale/hujson"
)

// seeds adds the original files in the golden files to the corpus.
func seeds(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		ar, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range ar.Files {
			if file.Name == "original" {
				f.Add(file.Data, "report-builder")
			}
		}
	}
}

// meaningOf returns a file's content as JSON, without ambit's entry. If the container of the entries is
// then empty, it is omitted too.
func meaningOf(t *testing.T, root map[string]any, holder, key string) string {
	t.Helper()
	if h, ok := root[holder].(map[string]any); ok {
		delete(h, key)
		if len(h) == 0 {
			delete(root, holder)
		}
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Skip("the file contains a value that JSON cannot represent")
	}
	return string(text)
}

func decodeJSON(t *testing.T, text []byte) map[string]any {
	t.Helper()
	_, text = splitMark(text)
	if blank(text) {
		return map[string]any{}
	}
	standard, err := hujson.Standardize(text)
	var root map[string]any
	if err == nil {
		err = json.Unmarshal(standard, &root)
	}
	if err != nil {
		t.Fatalf("the edited file cannot be read: %v\n%q", err, text)
	}
	return root
}

// FuzzJSON adds an entry to an arbitrary valid file and removes it again. All other content must keep
// its meaning.
func FuzzJSON(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if ValidName(key) != nil || string([]rune(key)) != key {
			return
		}
		ed := jsonFile{key: "mcpServers", reads: trailing, shape: typed}
		e := NewEntry("/bin/ambit", key, "/home")
		added, err := ed.set(text, key, e)
		if err != nil {
			return
		}
		before := meaningOf(t, decodeJSON(t, text), ed.key, key)
		if got, err := ed.get(added.text, key); err != nil || !same(got, ed.valueOf(e)) {
			t.Fatalf("%q: the entry is %v, %v\n%q", text, got, err, added.text)
		}
		if after := meaningOf(t, decodeJSON(t, added.text), ed.key, key); after != before {
			t.Fatalf("%q became\n%q", text, added.text)
		}
		removed, err := ed.remove(added.text, key, added.made)
		if err != nil {
			t.Fatalf("%q: %v", added.text, err)
		}
		if after := meaningOf(t, decodeJSON(t, removed.text), ed.key, key); after != before {
			t.Fatalf("%q became\n%q", added.text, removed.text)
		}
		if got, err := ed.get(removed.text, key); err != nil || got != nil {
			t.Fatalf("%q: the entry is still %v, %v", removed.text, got, err)
		}
	})
}

// FuzzTOML is like FuzzJSON, but for TOML.
func FuzzTOML(f *testing.F) { fuzzChecked(f, tomlFile{table: "mcp_servers", shape: usual}) }

// FuzzYAML is like FuzzJSON, but for YAML.
func FuzzYAML(f *testing.F) { fuzzChecked(f, yamlFile{key: "extensions", shape: goose}) }

// fuzzChecked adds an entry to an arbitrary valid file and removes it again. The edit itself checks that all other
// content keeps its meaning. So fuzzChecked checks only the entry.
func fuzzChecked(f *testing.F, ed editor) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if ValidName(key) != nil || string([]rune(key)) != key {
			return
		}
		e := NewEntry("/bin/ambit", key, "/home")
		added, err := ed.set(text, key, e)
		if err != nil {
			return
		}
		if got, err := ed.get(added.text, key); err != nil || !same(got, ed.valueOf(e)) {
			t.Fatalf("%q: the entry is %v, %v\n%q", text, got, err, added.text)
		}
		removed, err := ed.remove(added.text, key, added.made)
		if err != nil {
			t.Fatalf("%q: %v", added.text, err)
		}
		if got, err := ed.get(removed.text, key); err != nil || got != nil {
			t.Fatalf("%q: the entry is still %v, %v", removed.text, got, err)
		}
	})
}
