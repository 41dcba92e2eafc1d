package toolserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// A lock file can come from a stranger, and install scripts run without a sandbox. So a server does not start if its
// lock file lists install scripts. The message names the command that runs them.
func TestScriptsOfALockFile(t *testing.T) {
	r := newRig(t)
	r.o.Want = map[string]pack.Want{"one": {Digest: "sha256:" + strings.Repeat("0", 64), Scripts: []string{"evil"}}}
	s := newServer("id", Spec{Server: agent.Server{
		Alias: "one", Transport: agent.Stdio, Command: "npx", Args: []string{"-y", "@ambit-test/none@1.0.0"}, Version: "1.0.0",
		Digest: "sha256:" + strings.Repeat("0", 64),
	}}, r.o)
	_, err := s.prepare(t.Context())
	refusal, ok := errors.AsType[*call.Refusal](err)
	if !ok || !strings.Contains(refusal.Error(), "install scripts of evil") || !strings.Contains(refusal.Hint, "--allow-scripts evil") {
		t.Errorf("got %v, want a refusal of the scripts", err)
	}
}

// A package can fail to start because ambit does not run install scripts. The hint names the command that runs them.
func TestHintAtScriptsNotRun(t *testing.T) {
	r := newRig(t)
	r.o.Servers = []Spec{{
		Server: agent.Server{Alias: "one", Transport: agent.Stdio, Args: []string{"sh", "-c", "exit 1"}},
		Package: func(context.Context, pack.Want, pack.Progress) (*pack.Package, error) {
			return &pack.Package{Kind: pack.NPM, Dependencies: []byte(`{"node_modules/native": {"hasInstallScript": true}}`)}, nil
		},
	}}
	m := Start(t.Context(), &agent.Agent{ID: "id"}, r.o)
	defer m.Close()
	refusal := m.Proofs()[0].Refusal
	if refusal == nil || !strings.HasSuffix(refusal.HintFor("agent.json"), "run: ambit lock --allow-scripts native agent.json") {
		t.Errorf("got %v, want a hint with the command that runs the scripts", refusal)
	}
}
