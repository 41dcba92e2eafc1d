package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Fork returns the text of a valid manifest under another name. Only the
// agent's identity changes; layout and everything else stay as they are.
func Fork(m *Manifest, name string) ([]byte, error) {
	if !m.Valid() {
		return nil, &InvalidError{m}
	}
	type edit struct {
		at   doc.Value
		text string
	}
	root := m.tree().Root()
	var edits []edit
	switch m.Dialect {
	case agent.Matrix:
		edits = []edit{{root.Get("agent"), "matrix://agent/" + name}}
	case agent.GPARS:
		id := root.Get("id")
		prefix := id.Text()[:strings.LastIndexAny(id.Text(), ":/")+1]
		edits = []edit{{id, prefix + name}}
	case agent.Covenant:
		section := root.Get("agent")
		_, host, ok := strings.Cut(section.Get("id").Text(), "@")
		if !ok {
			host = "local"
		}
		edits = []edit{{section.Get("id"), name + "@" + host}, {section.Get("name"), name}}
	case agent.FindAgent:
		edits = []edit{{root.Get("name"), name}}
	}
	// From the end, so that the places of the others stay right.
	slices.SortFunc(edits, func(a, b edit) int { return b.at.Place().Start - a.at.Place().Start })
	text := m.Source.Text
	for _, e := range edits {
		// JSON's strings are TOML basic strings too.
		quoted, err := json.Marshal(e.text)
		if err != nil {
			return nil, err
		}
		p := e.at.Place()
		text = text[:p.Start] + string(quoted) + text[p.End:]
	}
	fork := Parse(m.Path, []byte(text), Options{Dialect: m.Dialect})
	if !fork.Valid() {
		return nil, fmt.Errorf("%q cannot be its name: %s", name, fork.Diagnostics[0].Message)
	}
	return []byte(text), nil
}
