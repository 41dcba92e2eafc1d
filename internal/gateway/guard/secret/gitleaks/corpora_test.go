//go:build prove

package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zricethezav/gitleaks/v8/detect"
)

type vector struct {
	Rule   string
	Secret bool
	Text   string
}

// vectors are gitleaks' own, for measuring.
func vectors(t *testing.T) []vector {
	t.Helper()
	folder := os.Getenv("CORPORA")
	if folder == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CORPORA does not name the folder of the corpora")
		}
		t.Skip("set CORPORA to the folder of the corpora")
	}
	f, err := os.Open(filepath.Join(folder, "gitleaks-vectors.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var v vector
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// What gitleaks' authors call a secret is found, and no more is than by gitleaks.
func TestCorporaGitleaks(t *testing.T) {
	peer, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	var secrets, found, clean, wrong, theirs int
	missed := map[string]int{}
	for _, v := range vectors(t) {
		hit := len(scan(t, v.Text)) > 0
		if v.Secret {
			if secrets++; hit {
				found++
			} else {
				missed[v.Rule]++
			}
			continue
		}
		clean++
		if hit {
			wrong++
		}
		if len(peer.DetectString(v.Text)) > 0 {
			theirs++
		}
	}
	t.Logf("found %d of %d (%.2f %%); missed by rule: %v", found, secrets, 100*float64(found)/float64(secrets), missed)
	t.Logf("of %d texts without a secret, ambit takes %d for one, gitleaks %d", clean, wrong, theirs)
	if float64(found) < 0.99*float64(secrets) || wrong > theirs {
		t.Error("recall is below 99 %, or there are more false positives than gitleaks has")
	}
}

// The same secrets, hidden from gitleaks: in a large document, with a marker, and
// with a zero-width space in the middle of what was found.
func TestCorporaHiding(t *testing.T) {
	filler := strings.Repeat("{\"id\": 7, \"note\": \"nothing of interest\"},\n", 200)
	counts := map[string]int{}
	n := 0
	for i, v := range vectors(t) {
		m := scan(t, v.Text)
		if !v.Secret || len(m) == 0 || i%3 != 0 {
			continue
		}
		n++
		middle := (m[0].Start + m[0].End) / 2
		for name, text := range map[string]string{
			"in a document": filler + v.Text + "\n" + filler,
			"marker":        v.Text + " gitleaks:allow",
			"zero width":    v.Text[:middle] + "\u200b" + v.Text[middle:],
		} {
			if len(scan(t, text)) > 0 {
				counts[name]++
			}
		}
	}
	for name, found := range counts {
		t.Logf("%s: %d of %d", name, found, n)
		if float64(found) < 0.99*float64(n) {
			t.Errorf("%s: less than 99 %%", name)
		}
	}
	if n < 1000 || len(counts) != 3 {
		t.Errorf("only %d texts, %d ways", n, len(counts))
	}
}
