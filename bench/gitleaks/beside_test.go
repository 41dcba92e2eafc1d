package gitleaks

import (
	"go/build"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zricethezav/gitleaks/v8/detect"
)

// ambit finds every secret that gitleaks finds in source code. The source code contains few secrets, so the test adds
// tokens that gitleaks knows. The tokens are split in this file, so that scanners do not report them.
func TestFindsWhatGitleaksFinds(t *testing.T) {
	peer, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", "crypto", "*", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("found no source files", err)
	}
	salt := []string{
		token, "AK" + "IAQ3EXZ7PLM2VN4RTY", "xox" + "b-123456789012-123456789012-Zk3vT9wQx1Lm7RbN2cYdZk3v",
		"api_key = \"Zk3vT9wQx1" + "Lm7RbN2cYd\"", "sk" + "_live_51H8xQ2vK9mT4wLz8NcR1yHf6",
	}
	total := 0
	for i, file := range files {
		if i%8 != 0 {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = text[:min(len(text), 4_000)]
		half := len(text) / 2
		salted := string(text[:half]) + "\n// " + salt[i/8%len(salt)] + "\n" + string(text[half:])
		ours := scan(t, salted)
		for _, f := range peer.DetectString(salted) {
			total++
			found := false
			for _, m := range ours {
				got := salted[m.Start:m.End]
				found = found || strings.Contains(f.Match, got) || strings.Contains(got, f.Secret)
			}
			if !found {
				t.Errorf("%s: ambit does not find the secret that gitleaks reports as %s", filepath.Base(file), f.RuleID)
			}
		}
	}
	if total < 5 {
		t.Errorf("gitleaks found %d secrets, want at least 5 for a comparison", total)
	}
}
