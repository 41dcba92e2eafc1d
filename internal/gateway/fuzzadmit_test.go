package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzDeeper: what is let through nests no deeper than the bound, as a reader
// counts it.
func FuzzDeeper(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":[[[1]]]}`, `"[[[["`, `"\\\"[[[["`, `[[[[[[]]]]]]`, `]]]][[[[`, `{"a\\":[[[[[1]]]]]}`, `"`, `"\`, strings.Repeat("[", 200), strings.Repeat(`{"a":`, 90) + "1" + strings.Repeat("}", 90),
	} {
		f.Add([]byte(text))
	}
	const levels = 4
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			_ = deeper(text, levels)
			return
		}
		deepest, depth := 0, 0
		for d := json.NewDecoder(bytes.NewReader(text)); ; {
			token, err := d.Token()
			if err != nil {
				break
			}
			switch token {
			case json.Delim('{'), json.Delim('['):
				depth++
				deepest = max(deepest, depth)
			case json.Delim('}'), json.Delim(']'):
				depth--
			}
		}
		if got := deeper(text, levels); got != (deepest > levels) {
			t.Errorf("%s is %d deep, and is said to be deeper than %d: %t", text, deepest, levels, got)
		}
	})
}
