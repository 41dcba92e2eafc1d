package manifest

import (
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/secretlike"
	"github.com/ambit-run/ambit/manifest/diag"
	"github.com/ambit-run/ambit/manifest/doc"
)

// checkHygiene looks through every text of a manifest for what none may hold.
// It runs last: what a dialect's rule already masked is not reported again.
func checkHygiene(t *doc.Tree, r *diag.Reporter) {
	for v := range t.All() {
		// Most keys and texts are short or plain, and cost nothing more.
		if key := v.Key(); key != "" && !clean(key, v.PlainKey()) {
			checkText(r, key, func(int, int) diag.Place { return v.KeyPlace() })
		}
		if v.Is(doc.String) {
			if text := v.Text(); !clean(text, v.Plain()) {
				checkText(r, text, v.Within)
			}
		}
	}
}

func clean(s string, plain bool) bool { return plain && !secretlike.Find(s).Found() }

func checkText(r *diag.Reporter, s string, place func(start, end int) diag.Place) {
	if f := secretlike.Find(s); f.Found() {
		if at := place(f.Start, f.End); !r.Source.Masked(at.Start, at.End) {
			r.Source.Mask(at.Start, at.End)
			r.Report(diag.SecretValue, at, "", "this looks like a secret: %s", f.Kind)
		}
	}
	if start, end, what := hidden(s); what != "" {
		r.Report(diag.HiddenText, place(start, end), "", "the text holds %s", what)
	}
}

// hidden finds the first run of characters that people do not see.
func hidden(s string) (start, end int, what string) {
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7F || c == '\n' || c == '\t' || c == '\r' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		what = hiddenKind(r)
		if (r == zwnj || r == zwj) && joinsASCII(s, i, i+size) {
			what = "an invisible joiner inside a word"
		}
		if what == "" {
			i += size
			continue
		}
		start, end = i, i+size
		for end < len(s) {
			next, n := utf8.DecodeRuneInString(s[end:])
			if hiddenKind(next) == "" {
				break
			}
			end += n
		}
		return start, end, what
	}
	return 0, 0, ""
}

const (
	zwnj = '\u200C'
	zwj  = '\u200D'
)

func hiddenKind(r rune) string {
	switch {
	case r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r >= 0x7F && r < 0xA0:
		return "a control character"
	case r < 0xAD:
		return ""
	case r >= 0xE0000 && r <= 0xE007F:
		return "tag characters, which spell text that only machines read"
	case r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069:
		return "characters that change the direction of text"
	case r == 0xAD, r == 0x34F, r == 0x115F, r == 0x1160, r == 0x180E, r == 0x200B, r >= 0x2060 && r <= 0x2064,
		r == 0x3164, r == 0xFEFF, r == 0xFFA0, r >= 0xE0100 && r <= 0xE01EF:
		return "invisible characters"
	}
	return ""
}

// joinsASCII reports whether the joiner from i to j stands between two ASCII
// letters. In Persian text or an emoji it has work to do; there it hides.
func joinsASCII(s string, i, j int) bool {
	return i > 0 && s[i-1] < utf8.RuneSelf && j < len(s) && s[j] < utf8.RuneSelf
}
