package toolserver

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/mcpwire"
)

// secrets are the values that a server was given for its $env: references. A
// server may say them back by accident, in its log or in an error; nothing of
// that is handed on with them in it. A server that means harm can of course
// spell them in another way: it was given them.
type secrets struct {
	mu       sync.Mutex
	values   map[string]string // by name
	replacer *strings.Replacer
}

// shortSecret is the least length of what is masked: anything shorter would be
// found everywhere and hides nothing.
const shortSecret = 6

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
	var found [][2]string
	for name, value := range s.values {
		// Logs and errors are lines, so each line of it is a secret.
		for part := range strings.Lines(value) {
			if part = strings.TrimSpace(part); len(part) >= shortSecret {
				quoted := strconv.Quote(part)
				found = append(found, [2]string{part, name}, [2]string{quoted[1 : len(quoted)-1], name})
			}
		}
	}
	// The longest first: one may be the beginning of another.
	slices.SortFunc(found, func(a, b [2]string) int { return len(b[0]) - len(a[0]) })
	var pairs []string
	for _, f := range found {
		pairs = append(pairs, f[0], "$env:"+f[1])
	}
	s.replacer = strings.NewReplacer(pairs...)
}

// maskJSON is mask for what a server says in JSON. What would be no JSON any more
// is not told at all.
func (s *secrets) maskJSON(raw jsontext.Value) jsontext.Value {
	masked := s.mask(string(raw))
	if masked == string(raw) {
		return raw
	}
	if !mcpwire.Valid([]byte(masked)) {
		return jsontext.Value("{}")
	}
	return jsontext.Value(masked)
}

// mask puts the names in the place of the values.
func (s *secrets) mask(text string) string {
	s.mu.Lock()
	r := s.replacer
	s.mu.Unlock()
	if r == nil {
		return text
	}
	return r.Replace(text)
}
