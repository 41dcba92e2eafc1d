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
				t.Fatal("the view is the same as the source, want a different one")
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

// Classify finds every invisible character at every position, and Strip removes it.
func TestInvisibleCharacters(t *testing.T) {
	var v view.View
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		before := strings.Repeat("x", int(r)%9)
		ascii, invisible := view.Classify([]byte(before + string(r) + "bcdefghij"))
		if ascii != (r < 0x80) || invisible != view.Invisible(r) {
			t.Errorf("%U: Classify returned %v, %v", r, ascii, invisible)
		}
		if view.Invisible(r) && (!v.Strip([]byte("a"+string(r)+"b"), 100) || string(v.Text) != "ab") {
			t.Errorf("%U is not stripped", r)
		}
	}
}

// Escapes decodes percent escapes and character references, even if they are escaped twice, and maps them back.
// Every format character is invisible.
func TestFormatCharacters(t *testing.T) {
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if unicode.Is(unicode.Cf, r) && !view.Invisible(r) || unicode.IsLetter(r) && view.Invisible(r) && !blank[r] {
			t.Errorf("Invisible(%U) is %v", r, view.Invisible(r))
		}
	}
}

// blank contains the letters without a shape.
var blank = map[rune]bool{0x115f: true, 0x1160: true, 0x3164: true, 0xffa0: true}

func TestEscapes(t *testing.T) {
	for src, want := range map[string]string{
		"a b%67c d":            "bgc",
		"x%2567y":              "xgy",
		"&#103;h&#x70;_1 q":    "ghp_1",
		"u?a=1&amp;b=%41%42 z": "u?a=1&b=AB",
		"50% off & more":       "",
	} {
		var v view.View
		found := want != ""
		if got := v.Escapes([]byte(src), 100); got != found || found && !strings.Contains(string(v.Text), want) {
			t.Errorf("%q: got %v and the view %q, want %q", src, got, v.Text, want)
		}
		if found {
			at := strings.Index(string(v.Text), want)
			start, end := v.Range(at, at+len(want))
			if again := new(view.View); !again.Escapes([]byte(src[start:end]), 100) || !strings.Contains(string(again.Text), want) {
				t.Errorf("%q: %q is mapped to %q", src, want, src[start:end])
			}
		}
	}
}

func TestNextOther(t *testing.T) {
	for _, text := range []string{"", "é", "abc", "abcdefgé", "abcdefghijklmnopé", "abcdefghé"} {
		want := strings.IndexRune(text, 'é')
		if want < 0 {
			want = len(text)
		}
		if got := view.NextOther([]byte(text), 0); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// AppendRun appends the decoded run, even if it has line breaks.
func TestAppendRun(t *testing.T) {
	for run, want := range map[string]string{
		"QSByZWFkYWJsZSB0ZXh0IGhlcmU":              ">A readable text here",
		"QSByZWFkYWJs\nZSB0ZXh0IG\r\nhlcmU":        ">A readable text here",
		"QSByZWFk\nYWJsZQ\n\n\n\n\n\n\n\n\n\n\n":   ">",
		strings.Repeat("/", view.MinRun):           ">",
		"H4sIAAAAAAAAA8tIzcnJVyjPL8pJAQCFEUoNCwAA": ">\x1f\x8b",
	} {
		got, _ := view.AppendRun([]byte(">"), []byte(run))
		if !strings.HasPrefix(string(got), want) || want == ">" && len(got) > 1 {
			t.Errorf("%q: got %q, want %q", run, got, want)
		}
	}
}

func strip(v *view.View, src []byte) bool { return v.Strip(src, 100) }

// Strip keeps only the text near an invisible character.
func TestStripReaches(t *testing.T) {
	var v view.View
	src := []byte(strings.Repeat("a", 50) + "one\u200btwo" + strings.Repeat("b", 50) + "three\u200bfour" + strings.Repeat("c", 9))
	if !v.Strip(src, 10) || string(v.Text) != "aaaaaaaonetwobbbbbbb\n\xff\nbbbbbthreefourcccccc" {
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
