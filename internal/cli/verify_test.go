package cli

import (
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/supply/importer"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// TestAddHints checks the hints that ambit verify adds to the refusals of servers.
func TestAddHints(t *testing.T) {
	const hint = "as it was"
	file := agent.Server{Alias: "s", Transport: agent.Stdio, Command: "./server", Digest: "sha256:b", Version: importer.UnknownVersion}
	npm := agent.Server{Alias: "s", Transport: agent.Stdio, Command: "npx", Args: []string{"notes"}, Version: importer.UnknownVersion}
	remote := agent.Server{Alias: "s", Transport: agent.StreamableHTTP, Endpoint: "https://b.example/mcp"}
	lockAgain := "restore the locked version; or, if you made the change, lock the declared version: ambit lock PATH"
	write := "to write these tools into the manifest, with side-effect classes for you to check, run: ambit lock --write-tools PATH"
	imported := toolserver.Proof{Missing: []string{importer.UnknownTool}, Unexpected: []string{"list"}}
	for name, tt := range map[string]struct {
		server        agent.Server
		locked        *pack.LockedPackage
		proof         toolserver.Proof
		message, hint string
	}{
		"another package":             {file, &pack.LockedPackage{Digest: "sha256:a"}, toolserver.Proof{}, "no: declared sha256:b, locked sha256:a", lockAgain},
		"another address":             {remote, &pack.LockedPackage{Kind: pack.Remote, Name: "https://a.example/mcp"}, toolserver.Proof{}, "no: declared https://b.example/mcp, locked https://a.example/mcp", lockAgain},
		"a package, locked as remote": {file, &pack.LockedPackage{Kind: pack.Remote, Name: "https://a.example/mcp"}, toolserver.Proof{}, "no: declared sha256:b, locked nothing", lockAgain},
		"as locked":                   {file, &pack.LockedPackage{Digest: "sha256:b"}, toolserver.Proof{}, "no", hint},
		"not locked":                  {file, nil, toolserver.Proof{}, "no", hint},
		"an imported package":         {npm, nil, imported, "no", write},
		"an imported file":            {file, nil, imported, "no", write},
		"an imported address":         {remote, nil, imported, "no", write},
		"another tool has gone":       {npm, nil, toolserver.Proof{Missing: []string{"list"}, Unexpected: []string{"exec"}}, "no", hint},
	} {
		t.Run(name, func(t *testing.T) {
			a := &agent.Agent{ID: "a", Servers: []agent.Server{tt.server}}
			var lock *pack.Lock
			if tt.locked != nil {
				lock = pack.NewLock()
				lock.Agents["a"] = &pack.LockedAgent{Servers: map[string]*pack.LockedServer{"s": {Package: *tt.locked}}}
			}
			tt.proof.Alias, tt.proof.Refusal = "s", &call.Refusal{Message: "no", Hint: hint}
			before := tt.proof.Refusal
			if r := (&terminal{}).addHints([]toolserver.Proof{tt.proof}, a, lock)[0].Refusal; r.Message != tt.message || r.HintFor("") != tt.hint {
				t.Errorf("got the message %q and the hint %q, want %q and %q",
					r.Message, r.HintFor(""), tt.message, tt.hint)
			}
			if before.Message != "no" || before.Hint != hint {
				t.Error("addHints changed the original refusal")
			}
		})
	}
}
