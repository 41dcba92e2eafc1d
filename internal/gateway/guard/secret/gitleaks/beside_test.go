package main

import (
	"go/build"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zricethezav/gitleaks/v8/detect"
)

// What gitleaks finds in some source, we find too. Its findings are few, so the
// texts are salted with tokens of the kinds it knows, cut in two here.
func TestFindsWhatGitleaksFinds(t *testing.T) {
	peer, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", "crypto", "*", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("found no source", err)
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
				t.Errorf("%s: %s is not found", filepath.Base(file), f.RuleID)
			}
		}
	}
	if total < 5 {
		t.Errorf("gitleaks found %d secrets, too few to compare", total)
	}
}
