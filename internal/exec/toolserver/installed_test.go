//go:build unix

package toolserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
)

// installed declares a server whose file is in ambit's home, next to ambit's own files.
func (r *rig) installed(file string) {
	r.t.Helper()
	for _, name := range []string{"secrets", "state.db", "keys/own", "policy.cedar", "agents/other/agent.json"} {
		r.write("real/"+name, canary)
	}
	r.write("real/agents/mine/notes", "mine to read")
	s := r.fake("one", []string{"read", "write", "uncover", "echo"})
	script := "#!/bin/sh\nexec " + s.Command + ` "$@"` + "\n"
	r.write("real/"+file, script)
	if err := os.Chmod(r.path("real/"+file), 0o700); err != nil {
		r.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(script))
	s.Command, s.Digest, s.Placeholder = filepath.Join(r.o.Home.Dir(), file), "sha256:"+hex.EncodeToString(sum[:]), false
}

// A server whose file is in the folder of an installed agent sees that folder and none of ambit's other
// files.
func TestServerOfAnInstalledAgent(t *testing.T) {
	requireContainment(t)
	for _, tt := range []struct {
		name         string
		link, pinned bool
	}{
		{name: "pinned", pinned: true},
		{name: "not pinned"},
		{name: "home is a link", pinned: true, link: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.o.Home = home.At(r.path("real"))
			if tt.link {
				if err := os.Symlink(r.path("real"), r.path("home")); err != nil {
					t.Fatal(err)
				}
				r.o.Home = home.At(r.path("home"))
			}
			r.installed("agents/mine/server")
			r.server("one").Placeholder = !tt.pinned
			m := r.proven()
			r.works(m, "one")
			if result, refusal := r.call(m, "one", "read", fmt.Sprintf(`{"path":%q}`, r.path("real/agents/mine/notes"))); refusal != nil || !strings.Contains(string(result.Raw), "mine to read") {
				t.Errorf("the server cannot read its own folder: %s, %v", result.Raw, refusal)
			}
			for _, hidden := range []string{"secrets", "state.db", "keys/own", "policy.cedar", "agents/other/agent.json", "agents/mine/../../secrets"} {
				result, refusal := r.call(m, "one", "read", fmt.Sprintf(`{"path":%q}`, filepath.Join(r.path("real"), hidden)))
				if refusal != nil || !strings.Contains(string(result.Raw), "cannot") {
					t.Errorf("the server could read %s: %s, %v", hidden, result.Raw, refusal)
				}
			}
			for _, place := range []string{"agents/mine/forged", "agents/mine/notes", "agents/forged", "forged"} {
				if result, refusal := r.call(m, "one", "write", fmt.Sprintf(`{"path":%q,"content":"x"}`, r.path("real/"+place))); refusal != nil || !strings.Contains(string(result.Raw), "cannot") {
					t.Errorf("the server could write %s: %s, %v", place, result.Raw, refusal)
				}
			}
			if result, refusal := r.call(m, "one", "uncover", fmt.Sprintf(`{"path":%q,"content":"secrets"}`, r.path("real"))); refusal != nil || strings.Contains(string(result.Raw), canary) {
				t.Errorf("the server could unmount the cover of ambit's home: %s, %v", result.Raw, refusal)
			}
		})
	}
}

// A server is not started if its file is in ambit's home but not in the folder of an installed agent.
func TestServerAmongWhatAmbitKeeps(t *testing.T) {
	requireContainment(t)
	for _, file := range []string{"server", "agents/server", "keys/server", "agents/mine/../../keys/server"} {
		t.Run(file, func(t *testing.T) {
			r := newRig(t)
			r.o.Home = home.At(r.path("real"))
			r.installed(file)
			refused(t, r.start().Proofs()[0], call.ServerUnavailable)
			if r.read("one/lives") != "" {
				t.Error("the server was started")
			}
		})
	}
}
