package view_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

func TestRangesLeadBackToTheSource(t *testing.T) {
	tests := []struct {
		name, src, view string
		make            func(*view.View, []byte) bool
		part, source    string
	}{
		{"escapes", `a\nb\u0041\ud83d\ude00c\"`, "a\nbA😀c\"", (*view.View).Unescape, "A😀", `\u0041\ud83d\ude00`},
		{"controls in JSON are resolved", `a\u0000b`, "a\x00b", (*view.View).JSON, "\x00b", `\u0000b`},
		{"controls in other text stay", `a\x00b\f\n`, "a\\x00b\\f\n", (*view.View).Unescape, "x00b", "x00b"},
		{"a lone backslash stays", `a\qb\`, `a\qb\`, (*view.View).Unescape, "qb", "qb"},
		{"percent", "x%41b%zz%20c", "xAb%zz c", (*view.View).Unpercent, "Ab", "%41b"},
		{"zero width", "g\u200bh\u2060p_x", "ghp_x", strip, "ghp_", "g\u200bh\u2060p_"},
		{"tags and selectors", "k\U000e0041e\ufe0fy", "key", strip, "key", "k\U000e0041e\ufe0fy"},
	}
	var v view.View
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.make(&v, []byte(tt.src)) {
				t.Fatal("the view is not different from the source")
			}
			if string(v.Text) != tt.view {
				t.Fatalf("got the view %q, want %q", v.Text, tt.view)
			}
			at := strings.Index(tt.view, tt.part)
			from, to := v.Range(at, at+len(tt.part))
			if got := tt.src[from:to]; got != tt.source {
				t.Errorf("%q came from %q, want %q", tt.part, got, tt.source)
			}
		})
	}
}

func TestPlainTextHasNoViews(t *testing.T) {
	var v view.View
	text := []byte("Plain text: 100 % plain, “quoted” – with\ttabs\r\nand 日本語.")
	if v.Unescape(text) || v.Unpercent(text) || v.Strip(text, 100) {
		t.Errorf("plain text got the view %q", v.Text)
	}
}

// Every invisible character starts with one of the signals, and Strip removes it.
func TestSignalsAnnounceEveryInvisibleCharacter(t *testing.T) {
	signals, alike := view.Signals()
	canon := func(b []byte) string {
		for i, c := range b {
			for _, group := range alike {
				if strings.IndexByte(group, c) >= 0 {
					b[i] = group[0]
				}
			}
		}
		return string(b)
	}
	var v view.View
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !view.Invisible(r) || !utf8.ValidRune(r) {
			continue
		}
		s := string(r)
		announced := false
		for _, signal := range signals {
			announced = announced || strings.HasPrefix(canon([]byte(s)), signal)
		}
		if !announced {
			t.Errorf("%U starts with none of the signals", r)
		}
		if !v.Strip([]byte("a"+s+"b"), 100) || string(v.Text) != "ab" {
			t.Errorf("%U is not stripped", r)
		}
	}
}

func strip(v *view.View, src []byte) bool { return v.Strip(src, 100) }

// Strip keeps only the text near an invisible character.
func TestStripReaches(t *testing.T) {
	var v view.View
	src := []byte(strings.Repeat("a", 50) + "one\u200btwo" + strings.Repeat("b", 50) + "three\u200bfour" + strings.Repeat("c", 9))
	if !v.Strip(src, 10) || string(v.Text) != "aaaaaaaonetwobbbbbbb\n\x00\nbbbbbthreefourcccccc" {
		t.Fatalf("got %q", v.Text)
	}
	for _, word := range []string{"onetwo", "threefour", "aaaone", "bthree", "fourccc"} {
		at := strings.Index(string(v.Text), word)
		start, end := v.Range(at, at+len(word))
		if got := strings.ReplaceAll(string(src[start:end]), "\u200b", ""); got != word {
			t.Errorf("%q is mapped to %q", word, got)
		}
	}
}
