package home

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// FuzzReadTable: a table that is read is there, and holds nothing but the settings
// that are known; an error quotes no value of it.
func FuzzReadTable(f *testing.F) {
	for _, text := range []string{
		"[login]\nissuer = \"canary-value\"\n", "[login]\nisuer = \"canary-value\"\n", "[login]\nissuer = 3\n", "[login.inner]\nx = 1\n", "login = \"canary-value\"\n",
		"[[login]]\nissuer = \"canary-value\"\n", "[login]\nissuer = \"a\"\nissuer = \"canary-value\"\n", "[two]\n", "", "\xff", "[login]\nscopes = [\"a\", \"b\"]\n", "[login]\nissuer = \"\"\"\ncanary-value",
	} {
		f.Add([]byte(text))
	}
	file := filepath.Join(f.TempDir(), "config.toml")
	f.Fuzz(func(t *testing.T, text []byte) {
		os.Remove(file) // to write over a file can wait for the disk
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
			t.Error("it is found, and it cannot be read")
		case err == nil && !valid:
			t.Error("what is no TOML is taken")
		case err != nil && valid && strings.Contains(err.Error(), "canary-value"):
			t.Errorf("it says %v", err)
		case found:
			table, ok := whole["login"].(map[string]any)
			if !ok {
				t.Fatalf("%v is taken for a table", whole["login"])
			}
			for key := range table {
				if key != "issuer" && key != "scopes" {
					t.Errorf("the setting %q is passed over", key)
				}
			}
		}
	})
}
