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

// A list of 200 secrets is scanned to its end in every notation. So is a longer list with enough other text.
func TestListsOfSecrets(t *testing.T) {
	e := secret.Standard()
	r := rand.New(rand.NewPCG(6, 6))
	examples := e.Examples(rand.New(rand.NewPCG(4, 4)))
	token := func(i int) string { return examples[i%len(examples)].Token }
	password := func(int) string { return fmt.Sprintf("%c%06x%c!", 'G'+r.IntN(20), r.IntN(1<<24), 'g'+r.IntN(20)) }
	note := strings.Repeat(" The customer prefers a call in the afternoon.", 8)
	for name, list := range map[string]struct {
		lines  int
		format string
		value  func(i int) string
	}{
		"lines":     {200, "%[2]s\n", token},
		"CSV":       {200, "%[1]d,%[2]s,active\n", token},
		"JSON":      {200, `{"id":%[1]d,"name":"key %[1]d","api_key":"%[2]s","created":"2026-01-01T00:00:00Z"},`, token},
		"long":      {2_000, `{"id":%[1]d,"api_key":"%[2]s","note":"` + note + `"},`, token},
		"short":     {200, "password=%[2]s\n", password},
		"variables": {200, "SERVICE%[1]d_PASSWORD=%[2]s\n", password},
		"users":     {200, "user: u%[1]d, password: %[2]s, since 2026\n", password},
	} {
		var text strings.Builder
		for i := range list.lines {
			fmt.Fprintf(&text, list.format, i, list.value(i))
		}
		matches := e.Scan([]byte(text.String()), nil, nil)
		if len(matches) < list.lines*9/10 || matches[len(matches)-1].Rule == "unscanned" {
			t.Errorf("%s: %d matches in %d lines; the last one is %v", name, len(matches), list.lines, matches[len(matches)-1])
		}
	}
}

// In a long list of nothing but secrets, the first secrets are found one by one, and the rest is redacted as a whole.
func TestLongListsOfSecrets(t *testing.T) {
	e := secret.Standard()
	examples := e.Examples(rand.New(rand.NewPCG(4, 4)))
	var text strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&text, "%d,%s,active\n", i, examples[i%len(examples)].Token)
	}
	matches := e.Scan([]byte(text.String()), nil, nil)
	last := matches[len(matches)-1]
	if len(matches) < 200 || last.Rule != "unscanned" || last.End != text.Len() {
		t.Errorf("%d matches in %d bytes, and the last one is %v, want unscanned text at the end", len(matches), text.Len(), last)
	}
}

// A text that repeats a part of a secret again and again is not slow: the search for copies stops, and the rest of the
// text is redacted.
func TestCopiesAreBounded(t *testing.T) {
	text := "password=Zk3vT9wQx1Lm7RbN2cYd4\n" + strings.Repeat("Zk3vT9wQ-", 10_000)
	matches := secret.Standard().Scan([]byte(text), nil, nil)
	if last := matches[len(matches)-1]; last.Rule != "unscanned" || last.End != len(text) || last.Start > 50_000 {
		t.Errorf("the last of %d matches is %v, want unscanned text up to %d", len(matches), last, len(text))
	}
}
