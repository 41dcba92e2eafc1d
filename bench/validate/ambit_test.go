package main

import (
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/manifest"
)

// BenchmarkParse is meant for profiling. It validates the same manifests as the comparison, from memory, with ambit
// only.
func BenchmarkParse(b *testing.B) {
	dir := b.TempDir()
	if _, err := generate(dir, 1000); err != nil {
		b.Fatal(err)
	}
	groups, err := readGroups(dir)
	if err != nil {
		b.Fatal(err)
	}
	for i, d := range agent.Dialects {
		b.Run(string(d), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				f := &groups[i][n%len(groups[i])]
				_, _ = manifest.Parse(f.name, f.src, manifest.Options{})
			}
		})
	}
}
