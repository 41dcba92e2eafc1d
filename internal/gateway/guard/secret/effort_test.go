package secret_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// slow lists beginnings of tokens. A scan of any of them, repeated many times, stops early.
var slow = []string{
	"live_live_live_", `\nsk_test_UUID-----BEGIN A-Za-z0-9` + "\u200b", "bearer SWMKEY-1-live_live_x", "sgp_tk.eyJpnu_xA-Za-z0-9kind: secretpa-glft-",
}

// The scan of a slow text ends with a match that covers the rest of the text. A secret before that match is found, and
// a secret inside it is redacted too. A second scan finds nothing.
func TestSlowTexts(t *testing.T) {
	e := secret.Standard()
	known, err := secret.NewKnown([]secret.Value{{Name: "SLOT", Secret: "stored-value"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range slow {
		text := token + " stored-value " + strings.Repeat(unit, 200_000/len(unit)) + "\npassword:\n  " + token
		matches := e.Scan([]byte(text), known, nil)
		last := matches[len(matches)-1]
		if last.Rule != "unscanned" || last.End != len(text) || last.Start < 500 || last.Start > 20_000 {
			t.Errorf("%q: the last of %d matches is %v, want a match at the end of the %d bytes", unit, len(matches), last, len(text))
		}
		clean, _ := redact(e, text)
		if strings.Contains(clean, token) {
			t.Errorf("%q: the token is still in the text", unit)
		}
		for _, m := range matches[:min(len(matches), 2)] {
			if got := text[m.Start:m.End]; got != token && got != "stored-value" {
				t.Errorf("%q: one of the first two matches is %q, want the token or the stored value", unit, got)
			}
		}
		for range 2 { // a later scan can find further copies of the token
			clean, _ = redact(e, clean)
		}
		if again, n := redact(e, clean); n > 0 {
			t.Errorf("%q: a fourth scan changed the text from %d to %d bytes", unit, len(clean), len(again))
		}
	}
}

// Compressed runs pay for their decompression, so a text cannot consist of them.
func TestCompressedRunsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range 500 {
		fmt.Fprintf(&text, "%s %d\n", base64.StdEncoding.EncodeToString(zip(fmt.Sprintf("%d %s", i, token))), i)
	}
	matches := secret.Standard().Scan([]byte(text.String()), nil, nil)
	if most := (text.Len() + secret.FreeDecode) / secret.InflateStart; len(matches) == 0 || len(matches) > most {
		t.Errorf("the scan of %d bytes looked into %d compressed runs, but can pay for %d", text.Len(), len(matches), most)
	}
}

// Values that share most of their bytes do not share a slot of the table of copies, wherever they differ.
func TestTableOfCopies(t *testing.T) {
	for _, format := range []string{"0-9a-f%c%c", "%c%c0-9a-f", "0-9%c%ca-f"} {
		var values [][]byte
		for i := range 4_000 {
			values = append(values, fmt.Appendf(nil, format, 'A'+i%64, '0'+i/64))
		}
		if n := secret.Crowd(values); n > 500 {
			t.Errorf("%s: %d slots in a row are used for %d values", format, n, len(values))
		}
	}
}

// The scan of a long value after a name does not stop.
func TestLongValues(t *testing.T) {
	value := strings.Repeat("Zk3vT9wQx1Lm7RbN2cYd4Tp6.", 1<<20/25)
	for _, before := range []string{"token ", "token=", "password: ", "Bearer ", "Cookie: a=", "https://", `key="`} {
		for _, m := range secret.Standard().Scan([]byte(before+value+"\nthe end"), nil, nil) {
			if m.Rule == "unscanned" {
				t.Errorf("%q: the text is not scanned after %d bytes", before, m.Start)
			}
		}
	}
}

// Long lists of secrets are scanned to their end.
func TestListsOfSecrets(t *testing.T) {
	e := secret.Standard()
	examples := e.Examples(rand.New(rand.NewPCG(4, 4)))
	for name, format := range map[string]string{
		"lines": "%[2]s\n", "CSV": "%[1]d,%[2]s,active\n", "JSON": `{"id":%[1]d,"name":"key %[1]d","api_key":"%[2]s","created":"2026-01-01T00:00:00Z"},`,
	} {
		var text strings.Builder
		for i := range 5_000 {
			fmt.Fprintf(&text, format, i, examples[i%len(examples)].Token)
		}
		matches := e.Scan([]byte(text.String()), nil, nil)
		if len(matches) < 4_900 || matches[len(matches)-1].Rule == "unscanned" {
			t.Errorf("%s: %d matches, and the last one is %v", name, len(matches), matches[len(matches)-1])
		}
	}
	// A line with a password and little else is expensive, so only a short list is scanned to its end.
	r := rand.New(rand.NewPCG(6, 6))
	for name, list := range map[string]struct {
		size int
		line func(i int, password string) string
	}{
		"short":     {5_000, func(_ int, p string) string { return "password=" + p + "\n" }},
		"variables": {4_000, func(i int, p string) string { return fmt.Sprintf("SERVICE%d_PASSWORD=%s\n", i, p) }},
		"users":     {100_000, func(i int, p string) string { return fmt.Sprintf("user: u%d, password: %s, since 2026\n", i, p) }},
	} {
		var text strings.Builder
		lines := 0
		for ; text.Len() < list.size; lines++ {
			text.WriteString(list.line(lines, fmt.Sprintf("%c%06x%c!", 'G'+r.IntN(20), r.IntN(1<<24), 'g'+r.IntN(20))))
		}
		matches := e.Scan([]byte(text.String()), nil, nil)
		if len(matches) < lines*9/10 || matches[len(matches)-1].Rule == "unscanned" {
			t.Errorf("%s: %d matches in %d lines; the last one is %v", name, len(matches), lines, matches[len(matches)-1])
		}
	}
}
