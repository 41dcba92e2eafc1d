package doc

import (
	"bytes"
	"os"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// BenchmarkJSON parses one manifest with this package's parser and with two JSON libraries, for comparison.
func BenchmarkJSON(b *testing.B) {
	text, err := os.ReadFile("../../../agents/default.json")
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("doc", func() error {
		src := diag.NewSource("x", string(text))
		if _, ok := ParseJSON(src, diag.NewReporter(src, false)); !ok {
			return os.ErrInvalid
		}
		return nil
	})
	run("hujson", func() error {
		_, err := hujson.Parse(bytes.Clone(text))
		return err
	})
	run("jsontext tokens", func() error {
		d := jsontext.NewDecoder(bytes.NewBuffer(text))
		for {
			if _, err := d.ReadToken(); err != nil {
				if d.InputOffset() >= int64(len(bytes.TrimSpace(text))) {
					return nil
				}
				return err
			}
		}
	})
}
