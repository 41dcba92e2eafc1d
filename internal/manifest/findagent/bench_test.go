package findagent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

func BenchmarkSeed(b *testing.B) {
	text, err := os.ReadFile(filepath.Join("testdata", "seed.json"))
	if err != nil {
		b.Fatal(err)
	}
	src := diag.NewSource("findagent.json", string(text))
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			doc.ParseJSON(src, diag.NewReporter(src, false))
		}
	})
	b.Run("read and check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := diag.NewReporter(src, false)
			tree, _ := doc.ParseJSON(src, r)
			Parse(tree.Root(), r)
		}
	})
}
