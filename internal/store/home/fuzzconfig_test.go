package home

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// FuzzReadTable checks that ReadTable finds only existing tables without unknown settings. It also checks
// that the errors of ReadTable do not quote values.
func FuzzReadTable(f *testing.F) {
	for _, text := range []string{
		"[login]\nissuer = \"canary-value\"\n", "[login]\nisuer = \"canary-value\"\n", "[login]\nissuer = 3\n", "[login.inner]\nx = 1\n", "login = \"canary-value\"\n",
		"[[login]]\nissuer = \"canary-value\"\n", "[login]\nissuer = \"a\"\nissuer = \"canary-value\"\n", "[two]\n", "", "\xff", "[login]\nscopes = [\"a\", \"b\"]\n", "[login]\nissuer = \"\"\"\ncanary-value",
	} {
		f.Add([]byte(text))
	}
	file := filepath.Join(f.TempDir(), "config.toml")
	f.Fuzz(func(t *testing.T, text []byte) {
		os.Remove(file) // overwriting an existing file may wait for the disk
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var into struct {
			Name string   `toml:"issuer"`
			List []string `toml:"scopes"`
		}
		found, err := ReadTable(file, "login", &into)
		var whole map[string]any
		valid := toml.Unmarshal(text, &whole) == nil
		switch {
		case err != nil && found:
			t.Error("ReadTable returned both found and an error")
		case err == nil && !valid:
			t.Error("ReadTable accepted a file that is not valid TOML")
		case err != nil && valid && !hasKey(whole, "canary-value") && strings.Contains(err.Error(), "canary-value"):
			t.Errorf("the error quotes a value: %v", err)
		case found:
			table, ok := whole["login"].(map[string]any)
			if !ok {
				t.Fatalf("ReadTable accepted %v as a table", whole["login"])
			}
			for key := range table {
				if key != "issuer" && key != "scopes" {
					t.Errorf("the unknown setting %q was ignored", key)
				}
			}
		}
	})
}

// hasKey reports whether a key in a decoded file contains a text. Errors may quote keys.
func hasKey(v any, text string) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if strings.Contains(key, text) || hasKey(value, text) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return hasKey(item, text) })
	}
	return false
}
