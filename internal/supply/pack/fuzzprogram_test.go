package pack

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzNodeProgram checks that, for any package.json, the program of a package is a file in the
// package.
func FuzzNodeProgram(f *testing.F) {
	for _, s := range []string{
		`{"name":"p","bin":"cli.js"}`, `{"name":"p","bin":{"p":"cli.js","q":"./cli.js"}}`, `{"name":"p","bin":{"p":"../evil.js"}}`, `{"name":"p","bin":"/etc/passwd"}`,
		`{"name":"@s/p","bin":""}`, `{"bin":{"":"cli.js"}}`, `{"bin":[]}`, `{"name":"../../p","bin":"cli.js/../cli.js"}`, `{`,
	} {
		f.Add([]byte(s), "")
	}
	f.Add([]byte(`{"name":"p","bin":{"a":"cli.js","b":"b.js"}}`), "a")
	tree := f.TempDir()
	dir := filepath.Join(tree, "node_modules", "p")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	for _, file := range []string{filepath.Join(dir, "cli.js"), filepath.Join(tree, "node_modules", "evil.js")} {
		if err := os.WriteFile(file, []byte("#!/usr/bin/env node\n"), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, bin string) {
		os.Remove(filepath.Join(dir, "package.json")) // overwriting the file instead could wait for the disk
		if err := os.WriteFile(filepath.Join(dir, "package.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		argv, err := nodeProgram(tree, Ref{Kind: NPM, Name: "p", Version: "1.0.0", Bin: bin})
		if err != nil {
			return
		}
		var self struct{ Bin json.RawMessage }
		if json.Unmarshal(text, &self) != nil || self.Bin == nil {
			t.Errorf("the package.json %q lists no program, but nodeProgram returned %q", text, argv)
		}
		for _, arg := range argv {
			if filepath.IsAbs(arg) && strings.HasPrefix(arg, tree) && !strings.HasPrefix(arg, dir+string(filepath.Separator)) {
				t.Errorf("the package.json %q runs %q, which is outside the package", text, argv)
			}
		}
	})
}
