//go:build prove

package secret_test

import (
	"bytes"
	"fmt"
	"go/build"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// A scan of text without secrets makes fewer than one finding per megabyte. The texts are files of Go, of the modules
// in Go's cache and of npm packages, and generated logs and API answers. Test files that contain secrets on purpose are
// left out.
func TestBenignTexts(t *testing.T) {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules, packages := strings.TrimSpace(string(out)), filepath.Join("..", "..", "..", "..", "bench", "node_modules")
	source := filepath.Join(build.Default.GOROOT, "src")
	test := func(p string) bool {
		return strings.Contains(p, "test") || strings.Contains(p, "gitleaks") || strings.Contains(p, "example")
	}
	total := 0
	for _, kind := range []struct {
		name, folder string
		take         func(p string) bool
	}{
		{"Go", source, func(p string) bool { return strings.HasSuffix(p, ".go") && !test(p) }},
		{"tests of Go", source, func(p string) bool {
			return strings.HasSuffix(p, "_test.go") && !strings.Contains(p, "crypto") && !strings.Contains(p, "auth")
		}},
		{"Go modules", modules, func(p string) bool { return strings.HasSuffix(p, ".go") && !test(p) }},
		{"go.sum and go.mod", modules, func(p string) bool { return strings.HasSuffix(p, "go.sum") || strings.HasSuffix(p, ".mod") }},
		{"Markdown", modules, func(p string) bool { return strings.HasSuffix(p, ".md") && !test(p) }},
		{"JavaScript", packages, func(p string) bool { return strings.HasSuffix(p, "js") && !test(p) }},
		{"TypeScript", packages, func(p string) bool { return strings.HasSuffix(p, "ts") && !test(p) }},
		{"package.json and lock files", filepath.Dir(packages), func(p string) bool { return strings.HasSuffix(p, ".json") && !test(p) }},
	} {
		size, found := 0, 0
		err := filepath.WalkDir(kind.folder, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !kind.take(p) || size > 40<<20 {
				return err
			}
			text, err := os.ReadFile(p)
			size += len(text)
			for _, m := range secret.Standard().Scan(text, nil, nil) {
				if found++; found <= 20 {
					t.Logf("%s: %s in %s: %.60q", kind.name, m.Rule, filepath.Base(p), text[m.Start:m.End])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		total += report(t, kind.name, size, found)
	}
	r := rand.New(rand.NewPCG(7, 7))
	for name, record := range generated(r) {
		var text bytes.Buffer
		for text.Len() < 10<<20 {
			text.WriteString(record() + "\n")
		}
		matches := secret.Standard().Scan(text.Bytes(), nil, nil)
		for _, m := range matches[:min(len(matches), 5)] {
			t.Logf("%s: %s: %q", name, m.Rule, text.Bytes()[max(0, m.Start-40):min(text.Len(), m.End)])
		}
		total += report(t, name, text.Len(), len(matches))
	}
	if total < 200<<20 {
		t.Logf("only %d MB were scanned, because Go's cache has few modules", total>>20)
	}
}

func report(t *testing.T, kind string, size, found int) int {
	t.Logf("%-28s %6.1f MB %5d findings", kind, float64(size)/1e6, found)
	if size == 0 || found > size/1_000_000 {
		t.Errorf("%s: %d findings in %d bytes", kind, found, size)
	}
	return size
}

// generated returns generators of records that have hashes, identifiers and keys, but no secrets.
func generated(r *rand.Rand) map[string]func() string {
	hex := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "0123456789abcdef"[r.IntN(16)]
		}
		return string(b)
	}
	uuid := func() string { return hex(8) + "-" + hex(4) + "-4" + hex(3) + "-a" + hex(3) + "-" + hex(12) }
	word := func() string {
		return []string{"alpha", "report", "invoice", "backup", "photo", "token", "secret", "key", "index", "auth"}[r.IntN(10)]
	}
	return map[string]func() string{
		"S3 listing": func() string {
			return fmt.Sprintf("<Contents><Key>%s/%s/%s.json</Key><ETag>&quot;%s&quot;</ETag><Size>%d</Size></Contents>", word(), hex(40), word(), hex(32), r.IntN(1e6))
		},
		"spans": func() string {
			return fmt.Sprintf(`{"traceId":"%s","spanId":"%s","name":"GET /%s/%d","attributes":[{"key":"http.request_id","value":{"stringValue":"%s"}}]}`, hex(32), hex(16), word(), r.IntN(1e6), uuid())
		},
		"audit events": func() string {
			return fmt.Sprintf(`{"eventID":"%s","eventName":"Get%s","requestParameters":{"keyId":"%s","bucketName":"%s-%d"},"sharedEventID":"%s"}`, uuid(), word(), uuid(), word(), r.IntN(999), uuid())
		},
		"hashes with a key": func() string { return fmt.Sprintf("key=%s idempotency_key: %s etag=%s", hex(40), uuid(), hex(64)) },
		"commits": func() string {
			return fmt.Sprintf(`{"sha":"%s","node_id":"C_%s","url":"https://api.host.test/repos/%s/commits/%s","parents":[{"sha":"%s"}]}`, hex(40), hex(20), word(), hex(40), hex(40))
		},
		"log lines": func() string {
			return fmt.Sprintf("2026-03-0%d 10:%02d:%02d INFO [%s] %s cache_key=user:%d:%s session %s refreshed token for %s in %dms", 1+r.IntN(8), r.IntN(60), r.IntN(60), uuid(), word(), r.IntN(1e6), hex(16), uuid(), word(), r.IntN(500))
		},
	}
}
