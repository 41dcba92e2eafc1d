//go:build unix

package adversary

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestHomeIsForItsUserAlone checks that other users of the machine cannot read or write ambit's files, even with an
// open umask.
func TestHomeIsForItsUserAlone(t *testing.T) {
	w := newWorld(t)
	w.openly = true
	agent := w.write("agents/mine/findagent.json", findagent(t, "fine"))
	w.matrix("agents/other.json", "honest")
	w.keep(agent, "canary-secret-value")
	for _, args := range [][]string{{"key", "new", "--agents", "mine"}, {"grant", "eve@local", "tool.x"}, {"policy", "init"}} {
		if _, stderr, code := w.ambit(args...); code != 0 {
			t.Fatalf("ambit %q failed: %s", args, stderr)
		}
	}
	d := w.serve()
	if resp, body := d.send("POST", "/api/v1/agents/other/call", `{"tool":"look"}`, nil); resp.StatusCode != 200 {
		t.Fatal(body)
	}
	home := filepath.Join(w.dir, "home")
	var seen []string
	if err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		seen = append(seen, strings.TrimPrefix(path, home+"/"))
		if others := info.Mode().Perm() & 0o077; others != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"keys/root", "state.db", "daemon.json", "policy.cedar", "run/serve-"} {
		if !strings.Contains(strings.Join(seen, "\n"), want) {
			t.Errorf("%s is missing in %q", want, seen)
		}
	}
}
