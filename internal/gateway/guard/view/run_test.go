package view_test

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

func TestRunsAreFoundWhereverTheyStart(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		// The text consists of words of random length, so that runs of every length begin at every offset.
		var b strings.Builder
		for b.Len() < 300 {
			b.WriteString(strings.Repeat("a", r.IntN(60)))
			b.WriteString(strings.Repeat(" ", 1+r.IntN(3)))
		}
		text := b.String()
		var want []string
		for _, w := range strings.Fields(text) {
			if len(w) >= view.MinRun {
				want = append(want, w)
			}
		}
		var got []string
		for at := 0; ; {
			start, end := view.NextRun([]byte(text), at)
			if start < 0 {
				break
			}
			got = append(got, text[start:end])
			at = end
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Fatalf("%q:\ngot  %d runs\nwant %d", text, len(got), len(want))
		}
	}
}

func TestRunsAreDecoded(t *testing.T) {
	plain := "the quick brown fox jumps?>"
	for name, run := range map[string]string{
		"base64": base64.RawStdEncoding.EncodeToString([]byte(plain)),
		"url":    base64.RawURLEncoding.EncodeToString([]byte(plain)),
		"hex":    hex.EncodeToString([]byte(plain)),
	} {
		if got, ok := view.DecodeRun(nil, []byte(run)); !ok || string(got) != plain {
			t.Errorf("%s: got %q, %v", name, got, ok)
		}
	}
	for _, run := range []string{"ThisIsJustALongIdentifierInSomeSource", "d41d8cd98f00b204e9800998ecf8427e"} {
		if got, ok := view.DecodeRun(nil, []byte(run)); ok {
			t.Errorf("%s does not encode text, but was decoded to %q", run, got)
		}
	}
}

func TestNormalIsWhatAReaderSees(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"fullwidth", "ｉｇｎｏｒｅ", "ignore"},
		{"math bold", "𝐢𝐠𝐧𝐨𝐫𝐞", "ignore"},
		{"accents", "ïgnörê", "ignore"},
		{"combining strike", "i\u0336g\u0336n\u0336ore", "ignore"},
		{"Cyrillic", "іgnоrе", "ignore"},
		{"tags", "a\U000e0069\U000e0067b", "a igb"},
		{"soft hyphen", "ig\u00adnore", "ignore"},
		{"no-break space", "a\u00a0b", "a b"},
		{"framed letters", "🅓🅁 ⒪🅿🇹 ➊⓵", "dR opt 11"},
		{"small capitals", "ᴅʀᴏᴘ", "drop"},
		{"enclosing mark", "a\u20ddb", "ab"},
		{"blanks", "a\u2800b\u3164c", "a b c"},
		{"other scripts stay", "日本語 ignore", "日本語 ignore"},
		{"bad UTF-8 stays", "a\xffb\u200b", "a\xffb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var v view.View
			if changed := v.Normal([]byte(tt.in)); changed != (tt.in != tt.want) {
				t.Errorf("Normal returned %v", changed)
			}
			if string(v.Text) != tt.want {
				t.Errorf("got %q, want %q", v.Text, tt.want)
			}
			if from, to := v.Range(0, len(v.Text)); from != 0 || to != len(tt.in) && !strings.HasSuffix(tt.in, "\u200b") {
				t.Errorf("the whole view is mapped to the bytes %d to %d of the source, want all bytes", from, to)
			}
		})
	}
}

func TestWhatWasOneCharacterIsNotCut(t *testing.T) {
	src := "xﬁy"
	var v view.View
	v.Normal([]byte(src))
	if string(v.Text) != "xfiy" {
		t.Fatalf("got %q", v.Text)
	}
	for _, r := range [][2]int{{1, 2}, {2, 3}, {1, 3}} {
		if from, to := v.Range(r[0], r[1]); src[from:to] != "ﬁ" {
			t.Errorf("the range %v is mapped to %q, want the whole ligature", r, src[from:to])
		}
	}
}

// Displayed reverses the text after an override, up to the end of the override.
func TestDisplayed(t *testing.T) {
	for in, want := range map[string]string{
		"abc": "", "a\u202ecb": "abc", "a\u202ecb\u202cd\u202efe\ng": "a" + "bc\u202cdef\ng",
		"\u202e\u202eb\xffä": "ä\xffb", "\u202ec\u2069x": "c\u2069x",
	} {
		got, found := view.Displayed(nil, []byte(in))
		if string(got) != want || found != (in != "abc") {
			t.Errorf("Displayed(%q) = %q, %t, want %q", in, got, found, want)
		}
	}
}

func TestTricksAreNamed(t *testing.T) {
	for in, want := range map[string]string{
		"plain – “text” …": "", "a\u202eb": "bidi_control", "a\u2066b": "bidi_control", "a\U000e0041": "tag_character", "👩\u200d💻": "",
	} {
		if got := view.Tricks([]byte(in)); got != want {
			t.Errorf("Tricks(%q) = %q, want %q", in, got, want)
		}
	}
}
