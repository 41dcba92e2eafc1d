package main

import (
	"encoding/json"
	"os"
	"testing"
)

func TestReason(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{
			"a module without its file",
			"m@v1.2.3: reading https://modules.example/m/@v/v1.2.3.info: 403 Forbidden\n\tserver response: not available.",
			"m@v1.2.3: 403 Forbidden",
		},
		{
			"an import of such a module",
			"go: downloading x v1.0.0\ncmd/a/b.go:13:2: m/n@v0.0.29: reading https://modules.example/m/n/@v/v0.0.29.zip: " +
				"403 Forbidden\n\tserver response: not available.\nexit status 1",
			"m/n@v0.0.29: 403 Forbidden",
		},
		{"a program that ends", "it ended\nstarting\nno container runtime available\n", "no container runtime available"},
		{"one line", "npm ci: exit status 1", "npm ci: exit status 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := reason(c.text); got != c.want {
				t.Errorf("the reason is %q, want %q", got, c.want)
			}
		})
	}
}

// TestPackages checks that package.json lists the peers from npm, and no others.
func TestPackages(t *testing.T) {
	text, err := os.ReadFile("package.json")
	if err != nil {
		t.Fatal(err)
	}
	var listed struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		if _, ok := listed.Dependencies[p.name]; p.module == "" && !ok {
			t.Errorf("package.json does not list %s", p.name)
		}
		delete(listed.Dependencies, p.name)
	}
	for name := range listed.Dependencies {
		t.Errorf("package.json lists %s, which is not a peer", name)
	}
}
