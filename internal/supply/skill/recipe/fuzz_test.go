package recipe

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// FuzzSchema checks that the description of any schema is a Markdown list without invisible characters.
// A schema must not be able to add a heading or a paragraph.
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
				t.Errorf("the description of %q has the line %q, which is not a list item", schema, line)
			}
		}
		if _, _, what := diag.HiddenRun(w.String()); what != "" {
			t.Errorf("the description of %q contains %s: %q", schema, what, w.String())
		}
	})
}
