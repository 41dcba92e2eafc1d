package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Note describes a part of an agent that a conversion lost, or a field that it added.
type Note = convert.Note

// ErrNothingSurvives means that no part of the agent can be converted to the target dialect.
var ErrNothingSurvives = convert.ErrNothingSurvives

// Converted is a manifest in another dialect.
type Converted struct {
	Text []byte
	// Lost lists the parts of the agent that cannot be converted to the target dialect. Added lists the required fields
	// that ambit filled in. A person should check the added fields.
	Lost, Added []Note
}

// Convert translates a valid manifest to another dialect. The error wraps ErrNothingSurvives if no part of the agent
// can be converted.
func Convert(m *Manifest, to agent.Dialect) (*Converted, error) {
	if !m.Valid() {
		return nil, &InvalidError{m}
	}
	target := formats[to]
	if target == nil {
		return nil, fmt.Errorf("unknown dialect %q", to)
	}
	if m.Dialect == to {
		return &Converted{Text: []byte(m.Source.Text)}, nil
	}
	var notes convert.Notes
	typed, err := target.from(m.Agent(), &notes)
	if err != nil {
		return nil, err
	}
	text, err := target.encode(typed)
	if err != nil {
		return nil, err
	}
	if _, err := Parse("converted", text, Options{Dialect: to}); err != nil {
		return nil, fmt.Errorf("the converted manifest is invalid: %w", err)
	}
	return &Converted{Text: bytes.TrimRight(text, "\n"), Lost: notes.Lost, Added: notes.Added}, nil
}

// Fork copies the text of a valid manifest and replaces the agent's name in the copy. The rest of the text stays
// the same.
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
	// Edit the end of the text first, so that the offsets of the other edits stay valid.
	slices.SortFunc(edits, func(a, b edit) int { return b.at.Place().Start - a.at.Place().Start })
	text := m.Source.Text
	for _, e := range edits {
		// A JSON string is also valid as a TOML basic string.
		quoted, err := json.Marshal(e.text)
		if err != nil {
			return nil, err
		}
		p := e.at.Place()
		text = text[:p.Start] + string(quoted) + text[p.End:]
	}
	if fork, err := Parse(m.Path, []byte(text), Options{Dialect: m.Dialect}); err != nil {
		return nil, fmt.Errorf("%q cannot be the agent's name: %s", name, fork.Errors()[0].Message)
	}
	return []byte(text), nil
}
