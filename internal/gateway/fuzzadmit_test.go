package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// FuzzDeeper compares rawjson.Deeper with the depth that encoding/json finds.
func FuzzDeeper(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":[[[1]]]}`, `"[[[["`, `"\\\"[[[["`, `[[[[[[]]]]]]`, `]]]][[[[`, `{"a\\":[[[[[1]]]]]}`, `"`, `"\`, strings.Repeat("[", 200), strings.Repeat(`{"a":`, 90) + "1" + strings.Repeat("}", 90),
	} {
		f.Add([]byte(text))
	}
	const levels = 4
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			_ = rawjson.Deeper(text, levels)
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
		if got := rawjson.Deeper(text, levels); got != (deepest > levels) {
			t.Errorf("Deeper(%s, %d) = %t, but the text is nested %d levels deep", text, levels, got, deepest)
		}
	})
}
