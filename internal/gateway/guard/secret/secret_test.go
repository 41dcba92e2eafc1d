package secret_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

func engine(t testing.TB) *secret.Engine {
	t.Helper()
	e, err := secret.Standard()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// token is concatenated from parts, so that secret scanners do not report this file as a leak.
var token = "gh" + "p_" + "x7Kq2Vd9RmT4wLz8NcB1yHf6GsJ3uPe5aQoZ"

func scan(t testing.TB, text string) []secret.Match {
	t.Helper()
	m, err := engine(t).Scan([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A secret is found at every position, even if it crosses the border of a block or lane.
func TestFoundAtEveryOffset(t *testing.T) {
	for _, size := range []int{0, 1, 63, 255, 256, 1000, 1<<14 - 20, 1 << 14, 1<<16 - 45, 1<<16 - 20, 1<<16 - 4, 1 << 16, 1<<16 + 1, 1 << 17} {
		text := strings.Repeat("word and ", size/9) + strings.Repeat(".", size%9) + token + strings.Repeat(" and word", 3000)
		m := scan(t, text)
		if len(m) != 1 || text[m[0].Start:m[0].End] != token {
			t.Errorf("after %d bytes, the matches are %v", size, m)
		}
	}
}

func TestLayers(t *testing.T) {
	for name, text := range map[string]string{
		"plain":                token,
		"after an escape":      `x\n` + token,
		"unicode escape":       `\u0067` + token[1:],
		"hex escape":           `\x67` + token[1:],
		"percent":              "https://example.com/?t=%67" + token[1:],
		"invalid percents":     "50% off, 7 %zz and https://example.com/?t=%67" + token[1:],
		"zero width":           token[:6] + "\u200b" + token[6:],
		"escaped zero width":   token[:6] + `\u200b` + token[6:],
		"tag characters":       token[:6] + "\U000e0041" + token[6:],
		"soft hyphen":          token[:6] + "\u00ad" + token[6:],
		"variation selector":   token[:6] + "\ufe0f" + token[6:],
		"in-band switch":       token + " // gitleaks:allow",
		"another switch":       token + " # nosec pragma: allowlist secret",
		"at the end of a text": "x=" + token,
	} {
		if m := scan(t, text); len(m) != 1 {
			t.Errorf("%s: got the matches %v, want one", name, m)
		}
	}
}

// An allowlist that matches a line applies to that line alone.
func TestHarmlessLine(t *testing.T) {
	const harmless = "RUN --mount=type=secret,id=npm "
	key := "api_key = \"Zk3vT9wQx1" + "Lm7RbN2cYd\""
	for text, want := range map[string]int{
		key:                                1,
		"one\n" + key + "\nthree":          1,
		harmless + key:                     0,
		"one\n" + harmless + key + "\n":    0,
		harmless + "\n" + key:              1,
		key + "\n" + harmless + "\n" + key: 2,
	} {
		if m := scan(t, text); len(m) != want {
			t.Errorf("in %q, got the matches %v, want %d", text, m, want)
		}
	}
}

func TestMatchesDoNotOverlap(t *testing.T) {
	text := "api_key = \"" + token + "\" secret: " + token + token
	last := 0
	for _, m := range scan(t, text) {
		if m.Start < last || m.End <= m.Start {
			t.Errorf("the match %v is empty or overlaps the match that ends at %d", m, last)
		}
		last = m.End
	}
	if last == 0 {
		t.Error("Scan found no secret")
	}
}

// The work for an adversarial text is limited in proportion to its size: the scan completes or returns ErrTooHard.
func TestHostileTexts(t *testing.T) {
	tests := []struct {
		name, text string
		hard       bool
		matches    int
	}{
		{"open keys", strings.Repeat("-----BEGIN RSA PRIVATE KEY-----\n", 20_000), false, 1},
		{"curls", strings.Repeat("curl a ", 5_000), true, 0},
		{"assignments", strings.Repeat("api_key=", 5_000), true, 0},
		{"slashes", strings.Repeat("://a:", 50_000), false, 0},
		{"base64", strings.Repeat("QUFBQUFB", 50_000), false, 0},
		{"backslashes", strings.Repeat(`\`, 200_000), false, 0},
		{"percents", strings.Repeat("%41", 100_000), false, 0},
		{"tokens", strings.Repeat("eyJhbGciOiJIUzI1NiJ9.", 5_000), true, 0},
		{"kubernetes", strings.Repeat("kind: secret data: ", 10_000), true, 0},
		{"invisible", strings.Repeat("\u200b", 100_000), false, 0},
		{"many secrets", strings.Repeat(token+"\n", 2_000), false, 2_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := engine(t).Scan([]byte(tt.text), nil, nil)
			if hard := errors.Is(err, secret.ErrTooHard); hard != tt.hard {
				t.Fatalf("ErrTooHard: got %v, want %v", hard, tt.hard)
			}
			if len(m) != tt.matches {
				t.Errorf("got %d matches, want %d", len(m), tt.matches)
			}
		})
	}
}

func TestScansAreIndependent(t *testing.T) {
	e := engine(t)
	done := make(chan string)
	for i := range 8 {
		go func() {
			text := fmt.Sprintf("%d %s %s", i, strings.Repeat("filler ", i*1000), token)
			for range 20 {
				m, err := e.Scan([]byte(text), nil, nil)
				if err != nil || len(m) != 1 || text[m[0].Start:m[0].End] != token {
					done <- fmt.Sprintf("%v %v", m, err)
					return
				}
			}
			done <- ""
		}()
	}
	for range 8 {
		if problem := <-done; problem != "" {
			t.Error(problem)
		}
	}
}

func TestCleanTextCostsNothing(t *testing.T) {
	e := engine(t)
	text := bytes.Repeat([]byte("The key to the house is under the mat, says the author of the token story.\n"), 500)
	var m []secret.Match
	if n := testing.AllocsPerRun(50, func() { m, _ = e.Scan(text, nil, m[:0]) }); n > 0 && !race || len(m) > 0 {
		t.Errorf("got %v allocations and the matches %v", n, m)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if err := secret.Load(); err != nil {
			b.Fatal(err)
		}
	}
}
