// Package fuzz contains the journal's fuzz targets. The other tests are in another package: they link whole
// database engines, which would slow down the fuzzer.
package fuzz

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/store/journal"
)

// The golden files contain everything that was ever signed with the test key. So only these numbers of records
// can verify.
const (
	exportRecords = 2
	logsRecords   = 6
	newerRecords  = 7
	olderRecords  = 4
)

func golden(f *testing.F, name string) []byte {
	f.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		f.Fatal(err)
	}
	return text
}

func goldenKey(f *testing.F) journal.Key {
	f.Helper()
	key, err := journal.ParseKey(string(golden(f, "key")))
	if err != nil {
		f.Fatal(err)
	}
	return key
}

func FuzzVerifyExport(f *testing.F) {
	f.Add(golden(f, "export.jsonl"))
	f.Add(golden(f, "logs.jsonl"))
	f.Add(golden(f, "checkpoint"))
	f.Add([]byte(`{"log":0,"seq":0,"hash":"","record":{}}`))
	key := goldenKey(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, want := range []journal.Check{{}, {Key: key}, {Checkpoints: [][]byte{text}}} {
			r, err := journal.VerifyExport(bytes.NewReader(text), want)
			if err == nil && r.OK == (r.FirstBad != nil) {
				t.Errorf("got report %+v", r)
			}
			if err == nil && r.OK && !want.Key.IsZero() && r.Records != exportRecords && r.Records != logsRecords {
				t.Errorf("an unsigned export was accepted: %+v", r)
			}
		}
	})
}

func FuzzVerifyProof(f *testing.F) {
	f.Add(golden(f, "inclusion.json"))
	f.Add(golden(f, "consistency.json"))
	key := goldenKey(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := journal.VerifyProof(text, journal.Key{}); (p == nil) == (err == nil) {
			t.Errorf("got %+v, %v", p, err)
		}
		p, err := journal.VerifyProof(text, key)
		if err != nil {
			return
		}
		if p.Size != newerRecords && p.Size != olderRecords {
			t.Errorf("an unsigned proof was accepted: %+v", p)
		}
		if p.Proves == journal.Inclusion && !p.Entry.Erased && p.Entry.Call != "call-000003" {
			t.Errorf("an unsigned proof was accepted: %+v", p)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(string(golden(f, "key")))
	f.Fuzz(func(t *testing.T, s string) {
		key, err := journal.ParseKey(s)
		if err != nil {
			return
		}
		again, err := journal.ParseKey(key.String())
		if err != nil || !again.Equal(key) {
			t.Errorf("the key %q does not survive formatting as %q: %v", s, key, err)
		}
	})
}
