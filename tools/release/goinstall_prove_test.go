//go:build prove

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// TestGoInstall publishes the module in a folder that serves as a module proxy, and installs ambit with "go install".
func TestGoInstall(t *testing.T) {
	self := gomodule.Version{Path: ownPath, Version: "v0.1.0"}
	sources, proxy := filepath.Join(t.TempDir(), "sources"), t.TempDir()
	copySources(t, filepath.Join("..", ".."), sources)
	folder := filepath.Join(proxy, ownPath, "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Create(filepath.Join(folder, self.Version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromDir(archive, self, sources); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"v0.1.0.info": `{"Version":"v0.1.0","Time":"2026-01-01T00:00:00Z"}`, "v0.1.0.mod": read(t, sources, "go.mod"),
		"list": "v0.1.0\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cache := output(t, exec.Command("go", "env", "GOMODCACHE"))
	bin := t.TempDir()
	install := exec.Command("go", "install", ownPath+"/cmd/ambit@v0.1.0")
	// Dependencies come from the module cache, where Go verified them when it downloaded them. So the test needs neither
	// a proxy nor the checksum database. The new module must not enter that cache.
	install.Env = append(os.Environ(), "GOENV=off", "GOFLAGS=-modcacherw", "GOBIN="+bin, "GOMODCACHE="+t.TempDir(),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(strings.TrimSpace(cache), "cache", "download"),
		"GOSUMDB=off", "CGO_ENABLED=0")
	install.Dir = t.TempDir()
	output(t, install)
	if out := output(t, exec.Command(filepath.Join(bin, "ambit"), "version")); !strings.HasPrefix(out, "ambit v0.1.0 ") {
		t.Errorf("ambit version printed %q, want the released version", out)
	}
}
