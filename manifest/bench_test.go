package manifest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/manifest"
)

// BenchmarkParse parses one shipped manifest of each dialect and checks every rule.
func BenchmarkParse(b *testing.B) {
	for name, file := range map[string]string{
		"matrix": "default.json", "gpars": "examples/gpars-researcher.json",
		"covenant": "examples/research/agent.toml", "findagent": "examples/mcp-tool/findagent.json",
	} {
		b.Run(name, func(b *testing.B) {
			src, err := os.ReadFile(filepath.Join("../agents", file))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if m, _ := manifest.Parse(file, src, manifest.Options{}); !m.Valid() {
					b.Fatal(m.Diagnostics)
				}
			}
		})
	}
}
