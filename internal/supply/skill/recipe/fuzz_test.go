package recipe

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Whatever a schema says, it says it in a list: no line of it begins anything else,
// and nothing in it is hidden.
func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		`{"type":"object"}`, `{"properties":{"a\n## b":{"enum":["x\n# y",1],"description":"x\u200by\nz"}},"required":["a"]}`, `{"pattern":"\n- a\r","format":"\u2028"}`,
		`{"type":"array","items":{"type":["string","null"],"default":"\u0007"}}`, `{"anyOf":[{"const":"\n"}]}`, "not\n\x1bJSON", `[]`, `{"minimum":1e400}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		var w writer
		w.schema("Takes", schema)
		for line := range strings.Lines(w.String()) {
			if !strings.HasPrefix(strings.TrimLeft(line, " "), "- ") || !strings.HasSuffix(line, "\n") || strings.Contains(line, "\r") {
				t.Errorf("%q has the line %q", schema, line)
			}
		}
		if _, _, what := diag.HiddenRun(w.String()); what != "" {
			t.Errorf("%q hides %s in %q", schema, what, w.String())
		}
	})
}
