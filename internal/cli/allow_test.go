package cli

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// A proposal has no effect until the owner accepts it. If a later manifest proposes more, the new part has no effect.
func TestProposals(t *testing.T) {
	var out strings.Builder
	term := newTerminal(strings.NewReader(""), &out, io.Discard)
	term.json, term.home = true, home.At(t.TempDir())
	data := t.TempDir()
	s := &toolServer{
		rights: host.Rights{Agent: &agent.Agent{ID: "matrix://agent/desk"}, Name: "desk"},
		server: &agent.Server{Alias: "fs", Transport: agent.Stdio, Proposed: agent.Access{
			{Kind: agent.CanRead, What: data, Reason: "it reads notes"}, {Kind: agent.CanConnect, What: "API.example.com"},
		}},
	}
	s.Holder = s.rights.Holder(s.server)
	listed := func(access, proposed int) {
		t.Helper()
		if err := term.flush(); err != nil { // flush the output of an earlier call
			t.Fatal(err)
		}
		out.Reset()
		var doc accessDocument
		if err := errors.Join(term.showAccess(t.Context(), s, ""), term.flush(),
			json.Unmarshal([]byte(out.String()), &doc)); err != nil {
			t.Fatal(err)
		}
		if len(doc.Access) != access || len(doc.Proposed) != proposed {
			t.Errorf("the server has the rights %v and the proposals %v, want %d and %d",
				doc.Access, doc.Proposed, access, proposed)
		}
	}
	listed(0, 2)
	rights, err := term.canonical(s.server.Proposed)
	if err != nil {
		t.Fatal(err)
	}
	if err := term.allow(t.Context(), s, "", rights, true); err != nil {
		t.Fatal(err)
	}
	listed(2, 0)
	s.server.Proposed = append(s.server.Proposed, agent.Right{Kind: agent.CanWrite, What: data})
	listed(2, 1)
	if _, err := term.canonical(agent.Access{{Kind: agent.CanConnect, What: "169.254.169.254"}}); err == nil {
		t.Error("a manifest can propose a metadata service")
	}
}

// --unconfined applies only to the agent that the user started, and not to agents that it calls.
func TestNeighboursAreConfined(t *testing.T) {
	o := host.Options{Home: home.At(t.TempDir()), UnconfinedServers: []string{"fs"}}
	n := newNeighbours(t.Context(), &manifest.Manifest{Path: "agent.json"}, o)
	if n.options.UnconfinedServers != nil {
		t.Errorf("the servers %q of other agents are unconfined, want none", n.options.UnconfinedServers)
	}
}
