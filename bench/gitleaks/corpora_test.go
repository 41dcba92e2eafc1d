//go:build prove

package gitleaks

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

// vectors returns the test vectors of gitleaks.
func vectors(t *testing.T) []vector {
	t.Helper()
	folder := os.Getenv("CORPORA")
	if folder == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("the environment variable CORPORA is not set to the folder of the corpora")
		}
		t.Skip("this test needs the corpora: set the environment variable CORPORA to their folder")
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

// ambit finds at least 99.8 % of the secrets in gitleaks' test vectors. It also finds values that gitleaks leaves to
// other files or rules, such as <add key="ClearTextPassword" value="…"/>, but in less than a fifth of the texts.
func TestCorporaGitleaks(t *testing.T) {
	peer, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	var secrets, found, clean, wrong, theirs int
	missed := map[string]int{}
	for _, v := range vectors(t) {
		if v.Rule == "flutterwave-public-key" {
			continue // a public key is not a secret
		}
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
	t.Logf("%d texts without a secret: ambit has %d false positives, gitleaks has %d", clean, wrong, theirs)
	if float64(found) < 0.998*float64(secrets) || 5*wrong > clean {
		t.Error("recall is below 99.8 %, or there are findings in more than a fifth of the texts without a secret")
	}
}

// ambit finds a secret even if it is hidden. The secret is in a large document, next to the comment
// "gitleaks:allow", or contains a zero-width space.
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
			t.Errorf("%s: ambit finds less than 99 %% of the secrets", name)
		}
	}
	if n < 1000 || len(counts) != 3 {
		t.Errorf("the test used %d texts and found secrets in %d hiding places, want at least 1000 texts and 3 hiding places", n, len(counts))
	}
}
