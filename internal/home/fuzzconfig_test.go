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
		"[one]\nname = \"canary-value\"\n", "[one]\nnme = \"canary-value\"\n", "[one]\nname = 3\n", "[one.inner]\nx = 1\n", "one = \"canary-value\"\n",
		"[[one]]\nname = \"canary-value\"\n", "[one]\nname = \"a\"\nname = \"canary-value\"\n", "[two]\n", "", "\xff", "[one]\nlist = [\"a\", \"b\"]\n", "[one]\nname = \"\"\"\ncanary-value",
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
			Name string   `toml:"name"`
			List []string `toml:"list"`
		}
		found, err := ReadTable(file, "one", &into)
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
			table, ok := whole["one"].(map[string]any)
			if !ok {
				t.Fatalf("%v is taken for a table", whole["one"])
			}
			for key := range table {
				if !strings.EqualFold(key, "name") && !strings.EqualFold(key, "list") {
					t.Errorf("the setting %q is passed over", key)
				}
			}
		}
	})
}
