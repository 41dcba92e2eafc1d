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

// secrets are the values that a server was given for its $env: references. A
// server may say them back by accident, in its log or in an error, as they are or
// in an encoding; nothing of that is handed on with them in it. A server that
// means harm can of course spell them in another way: it was given them.
type secrets struct {
	mu     sync.Mutex
	values map[string]string // by name
	known  *secret.Known
	broken bool // they cannot be looked for, so nothing is told
}

// keep remembers a value that must not be told.
func (s *secrets) keep(name, value string) {
	if slices.Contains(agent.PlainEnv, name) {
		return // no secret
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
		// Logs and errors are lines, so each line of it is a secret.
		for part := range strings.Lines(value) {
			all = append(all, secret.Value{Name: name, Secret: strings.TrimSpace(part)})
		}
	}
	known, err := secret.NewKnown(all)
	s.known, s.broken = known, err != nil
}

// maskJSON is mask for what a server says in JSON. What would be no JSON any more
// is not told at all.
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

// mask puts the names in the place of the values.
func (s *secrets) mask(text string) string {
	s.mu.Lock()
	known, broken := s.known, s.broken
	s.mu.Unlock()
	if broken {
		return "(not shown: it cannot be looked through for credentials)"
	}
	return known.Replace(text, func(name string) string { return "$env:" + name })
}
