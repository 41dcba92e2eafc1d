package manifest

import (
	"bytes"
	"fmt"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
)

// Converted is a manifest said in another dialect.
type Converted struct {
	Text []byte
	// Lost is what the other dialect has no word for; Added what it demands
	// and was filled in, to be checked by a person.
	Lost, Added []convert.Note
}

// Convert says a valid manifest in another dialect. Its error wraps
// convert.ErrNothingSurvives where nothing of what the agent does would be
// left.
func Convert(m *Manifest, to agent.Dialect) (*Converted, error) {
	if !m.Valid() {
		return nil, &InvalidError{m}
	}
	target := rooms[to]
	if target == nil {
		return nil, fmt.Errorf("there is no dialect %q", to)
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
	// What comes out must be as good as what people write.
	if check := Parse("converted"+target.ext(), text, Options{Dialect: to}); !check.Valid() {
		return nil, fmt.Errorf("the converted manifest is invalid: %w", &InvalidError{check})
	}
	return &Converted{Text: bytes.TrimRight(text, "\n"), Lost: notes.Lost, Added: notes.Added}, nil
}
