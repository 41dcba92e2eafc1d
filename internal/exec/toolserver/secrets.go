package toolserver

import (
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// secrets are the values that a server received for its $env: references. A server may repeat them by
// accident in a log or an error, plain or encoded, so they are removed there. A malicious server can always
// encode its credentials in some other way.
type secrets struct {
	mu     sync.Mutex
	values map[string]string // by name
	known  *secret.Known
	broken bool // values cannot be searched for, so no text is shown
}

// keep adds a value to remove.
func (s *secrets) keep(name, value string) {
	if slices.Contains(agent.PlainEnv, name) {
		return // not a secret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values[name] == value {
		return
	}
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[name] = value
	var all []secret.Value
	for name, value := range s.values {
		all = append(all, secret.Value{Name: name, Secret: value})
		// Logs and errors contain single lines, so each line of a value is a secret.
		for part := range strings.Lines(value) {
			all = append(all, secret.Value{Name: name, Secret: strings.TrimSpace(part)})
		}
	}
	known, err := secret.NewKnown(all)
	s.known, s.broken = known, err != nil
}

// maskJSON is mask for JSON. It returns {} if the result is no longer valid JSON.
func (s *secrets) maskJSON(raw jsontext.Value) jsontext.Value {
	masked := s.mask(string(raw))
	if masked == string(raw) {
		return raw
	}
	if !rawjson.Valid([]byte(masked)) {
		return jsontext.Value("{}")
	}
	return jsontext.Value(masked)
}

// mask replaces credential values by their names.
func (s *secrets) mask(text string) string {
	s.mu.Lock()
	known, broken := s.known, s.broken
	s.mu.Unlock()
	if broken {
		return "(not shown: cannot be checked for credentials)"
	}
	return known.Replace(text, func(name string) string { return "$env:" + name })
}
