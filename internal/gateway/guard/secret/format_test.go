package secret_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// containers lists texts around a token that occur in results.
var containers = map[string]string{
	"json":     `{"id": 7, "value": "%s", "ok": true}`,
	"yaml":     "spec:\n  value: %s\n  other: 1\n",
	"xml":      "<item><v>%s</v></item>",
	"csv":      "1,alice,%s,2024-01-01\n",
	"url":      "https://host.test/path/%s?page=2#top",
	"query":    "https://host.test/?a=%s&b=2",
	"header":   "X-Value: %s\r\nAccept: */*\r\n",
	"shell":    "run --opt %s --verbose; echo done",
	"log":      "2024-01-01T00:00:00Z INFO handler %s took 12ms",
	"markdown": "Use **%s** or `this`.",
	"code":     "f(%s)",
	"prose":    "The value is %s.",
}

// Every format is found in every container, next to every character that cannot be part of it. A second scan finds
// nothing. With the race detector, which makes this slow, the test has a sample of the characters.
func TestFormats(t *testing.T) {
	e := secret.Standard()
	examples := e.Examples(rand.New(rand.NewPCG(1, 1)))
	if len(examples) < 400 {
		t.Fatalf("there are only %d formats", len(examples))
	}
	for i, x := range examples {
		missed := 0
		for c := byte(1); c < 0x80; c++ {
			if isLetter(c) || x.Letters(c) || race && (int(c)+i)%32 != 0 {
				continue
			}
			for name, container := range containers {
				for _, token := range []string{string(c) + x.Token + string(c), x.Token + string(c)} {
					text := fmt.Sprintf(container, token)
					clean, n := redact(e, text)
					if n == 0 || strings.Contains(clean, x.Token) {
						if missed++; missed < 3 {
							t.Errorf("%s: %q in %s is not found: %q", x.Rule, token, name, clean)
						}
					}
					if again, n := redact(e, clean); n > 0 && missed < 3 {
						missed++
						t.Errorf("%s: %q in %s: a second scan changes %q to %q", x.Rule, token, name, clean, again)
					}
				}
			}
		}
	}
}

// A text that is one character shorter than a credential is not found, unless another rule finds it.
func TestNearMisses(t *testing.T) {
	e := secret.Standard()
	for _, x := range e.Examples(rand.New(rand.NewPCG(2, 2))) {
		for _, m := range e.Scan([]byte(x.NearMiss), nil, nil) {
			if m.Rule == x.Rule && m.End-m.Start == len(x.NearMiss) {
				t.Errorf("%s: the match %v covers %q", x.Rule, m, x.NearMiss)
			}
		}
	}
}

// Credentials with other random values are found completely, for every format.
func TestWholeTokens(t *testing.T) {
	e := secret.Standard()
	for seed := range uint64(20) {
		for _, x := range e.Examples(rand.New(rand.NewPCG(3, seed))) {
			m := e.Scan([]byte(x.Token), nil, nil)
			if len(m) != 1 || m[0].Start != 0 || m[0].End != len(x.Token) {
				t.Errorf("%s: the matches in %q are %v", x.Rule, x.Token, m)
			}
		}
	}
}

func isLetter(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// redact replaces each secret with a placeholder.
func redact(e *secret.Engine, text string) (string, int) {
	matches := e.Scan([]byte(text), nil, nil)
	for _, m := range slices.Backward(matches) {
		text = text[:m.Start] + "[secret:" + m.Rule + "]" + text[m.End:]
	}
	return text, len(matches)
}
