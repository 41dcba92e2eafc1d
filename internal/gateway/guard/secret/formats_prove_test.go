//go:build prove

package secret_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// alphabets are the names of character sets in the table of formats.
var alphabets = func() map[string]string {
	const digits, small, large = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const base62 = digits + small + large
	return map[string]string{
		"base62": base62, "base64url": base62 + "-_", "hex lower": digits + "abcdef", "base64": base62 + "+/",
		"hex and - (UUID)": digits + "abcdef", "a-z0-9": small + digits, "A-Z0-9": large + digits, "base32 upper": large + "234567",
		"base32 lower": small + "234567", "letters": small + large, "bech32 upper": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
		"digits": digits, "a-z": small, "base62 and _": base62 + "_", "base62 and ._": base62 + "._", "base62 and ./": base62 + "./",
		"base62 and _~.-": base62 + "_~.-", "base58": small + large, "hex upper": digits + "ABCDEF", "Crockford base32": digits + "ABCDEFGHJKMNPQRSTVWXYZ",
	}
}()

var (
	shapeParts = regexp.MustCompile("\\((?:`[^`]*`\\|?)+\\)|`X`\\*\\d+(?:\\.\\.\\d+)?|`[^`]*`")
	quotedText = regexp.MustCompile("`([^`]*)`")
)

// Every format of secrets in a public table is found completely and without any context, if the format identifies
// itself. One format is left out: "0x" and 40 hex digits are also an Ethereum address, and addresses are not secret.
func TestCorporaFormats(t *testing.T) {
	folder := os.Getenv("CORPORA")
	if folder == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("the environment variable CORPORA is not set to the folder of the corpora")
		}
		t.Skip("this test needs the corpora: set the environment variable CORPORA to their folder")
	}
	f, err := os.Open(filepath.Join(folder, "token-formats.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := rand.New(rand.NewPCG(11, 11))
	formats := 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		row := strings.Split(lines.Text(), "\t")
		kind, shape := row[2], row[9]
		if kind != "secret" && kind != "secret URL" && kind != "connection string" || strings.HasPrefix(shape, "`0x`") {
			continue
		}
		formats++
		for range 200 {
			text := random(t, r, shape, row[5])
			m := secret.Standard().Scan([]byte(text), nil, nil)
			whole := len(m) == 1 && m[0].Start == 0 && m[0].End == len(text)
			if kind != "secret" { // only a part of an address is secret
				whole = len(m) > 0
			}
			if !whole {
				t.Errorf("%s %s: the matches in %q are %v", row[0], row[1], text, m)
				break
			}
		}
	}
	if err := lines.Err(); err != nil || formats < 400 {
		t.Fatalf("read %d formats: %v", formats, err)
	}
	t.Logf("%d formats", formats)
}

// random returns random text of a shape. The shape is written like `ghp_` + `X`*36.
func random(t *testing.T, r *rand.Rand, shape, sets string) string {
	names, parts := strings.Split(sets, ", "), shapeParts.FindAllString(shape, -1)
	runs := strings.Count(shape, "`X`*")
	var out strings.Builder
	run := 0
	for _, p := range parts {
		switch {
		case strings.HasPrefix(p, "("):
			choices := quotedText.FindAllStringSubmatch(p, -1)
			out.WriteString(choices[r.IntN(len(choices))][1])
		case strings.HasPrefix(p, "`X`*"):
			var low, high int
			if n, _ := fmt.Sscanf(p, "`X`*%d..%d", &low, &high); n < 2 {
				high = low
			}
			name := names[min(run, len(names)-1)]
			if len(names) > 1 && len(names) < runs && run < runs-1 {
				name = names[0] // the table does not say which run has which character set
			}
			run++
			chars := alphabets[name]
			if chars == "" {
				t.Fatalf("unknown character set %q", name)
			}
			for range low + r.IntN(high-low+1) {
				out.WriteByte(chars[r.IntN(len(chars))])
			}
		default:
			out.WriteString(strings.Trim(p, "`"))
		}
	}
	return out.String()
}
