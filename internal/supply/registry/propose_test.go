package registry

import (
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

func TestPropose(t *testing.T) {
	entry := &catalog.Entry{Tools: map[string]agent.SideEffect{"known": agent.Network}}
	const readOnly, writes = `{"annotations": {"readOnlyHint": true}}`, `{"annotations": {"readOnlyHint": false}}`
	for name, tt := range map[string]struct {
		definition string
		class      agent.SideEffect
		from       string
	}{
		"known":            {readOnly, agent.Network, fromCatalogue},
		"stat":             {readOnly, agent.Read, fromAnnotations},
		"list_all":         {writes, agent.Write, fromAnnotations},
		"list_files":       {`{}`, agent.Read, fromName},
		"listFiles":        {`{}`, agent.Read, fromName},
		"list_commands":    {`{}`, agent.Read, fromName},
		"images_search":    {`{}`, agent.Read, fromName},
		"save_search":      {`{}`, agent.Write, fromName},
		"fetch":            {`{}`, agent.Network, fromName},
		"save":             {`{}`, agent.Write, fromName},
		"run_query":        {`{}`, agent.Write, fromName},
		"run_command":      {readOnly, agent.Shell, fromName},
		"exec_in_pod":      {writes, agent.Shell, fromName},
		"browser_run_code": {writes, agent.Shell, fromName},
		"browser_evaluate": {`{}`, agent.Shell, fromName},
		"runCode":          {`{}`, agent.Shell, fromName},
		"start_process":    {`{}`, agent.Shell, fromName},
		"shell":            {`{}`, agent.Shell, fromName},
		"eval":             {`{}`, agent.Shell, fromName},
		"run":              {`{}`, agent.Shell, fromName},
		"_":                {`{}`, agent.Write, fromName},
		"odd":              {`no JSON`, agent.Write, fromName},
	} {
		got := Propose(map[string][]byte{name: []byte(tt.definition)}, entry)
		want := Proposal{Name: name, Class: tt.class, From: tt.from, Review: tt.from == fromName}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// On a server that connects, a search is a connection, even beside a tool that has the class Network.
func TestConnecting(t *testing.T) {
	definitions := map[string][]byte{"brave_web_search": []byte(`{}`), "brave_local_search": []byte(`{}`), "list_keys": []byte(`{}`)}
	want := map[string]agent.SideEffect{"brave_web_search": agent.Network, "brave_local_search": agent.Network, "list_keys": agent.Read}
	for _, p := range Connecting(Propose(definitions, nil), definitions) {
		if p.Class != want[p.Name] || !p.Review {
			t.Errorf("got %+v, want the class %s", p, want[p.Name])
		}
	}
}
