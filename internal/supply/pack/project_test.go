package pack

import (
	"os"
	"path/filepath"
	"testing"
)

// The digest of a project depends on the paths and content of its files, and on nothing else.
func TestProject(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("USERPROFILE", os.Getenv("HOME"))
	dir := filepath.Join(os.Getenv("HOME"), "agents")
	manifest := filepath.Join(dir, "tool", "agent.json")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check(t, os.WriteFile(path, []byte(text), 0o644))
	}
	digest := func(name string) string {
		t.Helper()
		var p Package
		check(t, p.hashProject(Ref{Kind: File, Name: filepath.FromSlash(name), Runtime: "node"}, manifest))
		return p.Tree
	}
	write("a.json", `{}`)
	write("tool/src/main.mjs", "main")
	write("tool/src/lib.mjs", "lib")
	if got := digest("src/main.mjs"); got != "" {
		t.Errorf("without a project, got the digest %s, want none", got)
	}
	write("../package.json", `{}`)
	if got := digest("src/main.mjs"); got != "" {
		t.Errorf("a package.json in the home folder results in the digest %s, want none", got)
	}
	write("tool/package.json", `{}`)
	was := digest("src/main.mjs")
	if was == "" || digest("src/lib.mjs") != was {
		t.Errorf("got the digest %q, want one for the whole project", was)
	}
	for _, name := range []string{"other.txt", "tool/.git/HEAD", "tool/ambit.lock", "tool/agent.json"} {
		write(name, "x")
		if got := digest("src/main.mjs"); got != was {
			t.Errorf("writing %s changes the digest of the project", name)
		}
	}
	check(t, os.Chmod(filepath.Join(dir, "tool", "src", "lib.mjs"), 0o755))
	if got := digest("src/main.mjs"); got != was {
		t.Error("changing the mode of a file changes the digest of the project")
	}
	for _, name := range []string{
		"tool/src/lib.mjs", "tool/new.json", "tool/node_modules/.bin/x", "tool/.env", "tool/.venv/bin/python",
		"tool/.pnp.cjs", "tool/src/.git/x", "tool/src/agent.json", "tool/src/ambit.lock",
	} {
		write(name, `{"schema_version": 1, "servers": [{"package_digest": "sha256:0"}]}`)
		got := digest("src/main.mjs")
		if got == was {
			t.Errorf("writing %s does not change the digest of the project", name)
		}
		was = got
	}
	check(t, os.Truncate(filepath.Join(dir, "tool", "new.json"), maxProjectBytes))
	if got := digest("src/main.mjs"); got != "" {
		t.Errorf("a project that is too large: got the digest %s, want none", got)
	}
	var p Package
	if err := p.hashProject(Ref{Kind: File, Name: "program"}, manifest); err != nil || p.Tree != "" {
		t.Errorf("a program without an interpreter: got the digest %q (error %v), want none", p.Tree, err)
	}
}
