package policy

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// forbids reports whether a forbid of some folders holds for a text.
func forbids(text string) bool {
	var p places
	if err := p.addLooks(&spelt{text: text, base: "/srv/desk", work: new(int)}); err != nil {
		return true
	}
	return p.any["/etc"] || p.any["/home/other"]
}

// However a place is spelt, a forbid of it holds for the long form if it holds for
// the short one.
func TestLongSpellings(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	times := func(text string) string { return strings.Repeat(text, 1+5200/len(text)) }
	// What can be inserted any number of times: short, and long.
	repeated := func(all ...string) (short, long string) {
		one := pick(all...)
		return one, times(one)
	}
	within := func() (short, long string) {
		if r.IntN(3) > 0 {
			return repeated("/.", "//", "/a/..", `\.`, "/%2e", "%2f%2e", "%252f.", "/\u200b", "\u200b", "／．", "\u2215.", "/b%2fc/../..", "%5c", "/. ", "/x\u200b/..")
		}
		before, after := pick("/", "/%20", "／"), pick("/..", "/%2e%2e", "/.\u200b.", "/‥", `\..`, "%2f..")
		return before + "x" + after, before + times(pick("x", "y z ", `a\`, "é", "ﷺ")) + after
	}
	behind := func() (short, long string) {
		switch r.IntN(3) {
		case 0:
			start := pick("#", "?", "%23", "\x00", "%00", "/", " ", "\n")
			return start + "x", start + times("x")
		case 1:
			return repeated(" ", ".", "/", `"`, ">", "%20", "\u200b", "\u1680", "/.", "/a/..", ".%20")
		}
		return within()
	}
	front := func() (short, long string) {
		return repeated("../", "x/../../", " ", `"`, "<", "\u200b", "%20", "`", "\t", "' ")
	}
	forbidden := 0
	for range 160 {
		// A place has a spelling of each of its parts, and long is one of these.
		at := r.IntN(3)
		head := pick("", "", "<", "URL:", "<URL:", "%3c", "url:jar:", `"'`)
		start := pick("/etc", "file:///etc", "<URL:file:///etc", "FILE://h/etc", "file:%2f%2f/etc", "file:/x/../etc", "~/../other", "~root/../etc", "$HOME/../other", "${HOME}/../other",
			"%7e/../other", "/proc/self/root/etc", "/srv/../etc", "../../../../../etc", "x/../../../../etc", `\etc`, "%2fetc", "%252fetc", "／etc", "/e\u200btc", "/private/etc", "sqlite:////etc", "ﬁle:///etc", "file:~root/../etc")
		var short, long [3]string
		short[0], long[0] = front()
		short[1], long[1] = within()
		short[2], long[2] = behind()
		spell := func(parts [3]string) string { return parts[0] + head + start + parts[1] + "/passwd" + parts[2] }
		whole := short
		whole[at] = long[at]
		if !forbids(spell(short)) {
			continue
		}
		forbidden++
		if text := spell(whole); !forbids(text) {
			t.Errorf("%q is forbidden, and not with its part %d of %d bytes: %.60q…", spell(short), at, len(long[at]), text)
		}
	}
	if forbidden < 100 {
		t.Errorf("only %d of them are forbidden when they are short", forbidden)
	}
}

// No reading is shorter than least says, nor leads out where it says none does.
func TestLeast(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	r := rand.New(rand.NewPCG(3, 4))
	signs := []string{
		"a", "bcd", "/", "/", "/", "..", "..", ".", `\`, " ", "%", "2", "e", "f", "%2e", "%2f", "%252e", "%252f", "%5c", "%c0%ae", "%u2215",
		"\u200b", "．", "／", "‥", "％", "é", "e\u0301", "ﷺ", "\x00", "%00", `"`, "<", "\u1680", "~", "\n", "℀",
		"gh", "Not", "…", "㎉", "Ⅷ", "％", "%u", "67",
	}
	looked := 0
	for range 10_000 {
		var b strings.Builder
		for range 1 + r.IntN(12) {
			b.WriteString(signs[r.IntN(len(signs))])
		}
		forms, err := readings(b.String(), new(int))
		if err != nil {
			continue
		}
		looked++
		size, out, err := (&spelt{text: b.String(), work: new(int)}).least(ends)
		if err != nil {
			t.Errorf("%q: %v", b.String(), err)
		}
		for _, form := range forms {
			clean := cleanPath(form)
			if len(clean) < size {
				t.Errorf("%q can be %q, and has at least %d bytes", b.String(), clean, size)
			}
			if climbs(clean) && !out {
				t.Errorf("%q can be %q", b.String(), clean)
			}
		}
	}
	if looked < 5_000 {
		t.Errorf("only %d texts have been looked at", looked)
	}
}

// No sign is shorter than what it holds of the letters that are counted on.
func TestFirm(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if sign := string(r); firm(norm.NFKC.String(sign)) > len(sign) {
			t.Errorf("%q is %q to some", sign, norm.NFKC.String(sign))
		}
	}
}

// What takes a text long to be read, or makes it longer, is counted, and refused
// where it is too much. What is only long is not.
func TestWork(t *testing.T) {
	const left = 1 << 19
	deep := "%" + strings.Repeat("25", 13) + "41"
	for _, tt := range []struct {
		name, text string
		least      int // of the work that is left
		refused    bool
	}{
		{"signs that grow", strings.Repeat("ﷺ", 5_000), 2 * 5_000 * 30, false},
		{"more signs that grow", strings.Repeat("ﷺ", 125_000), left, true},
		{"signs that grow, behind an escape", deep + strings.Repeat("ﷺ", 125_000), left, true},
		{"many passes", strings.Repeat("a", 1<<13) + deep, 2 * 13 << 13, false},
		{"many passes over more", strings.Repeat("a", 1<<17) + deep, left, true},
		{"many parts", strings.Repeat("Ａ/", 50_000), left, true},
		{"prose", strings.Repeat("C’est bien… 5 % de plus, et l’a%20b.\n", left/30), 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			work := maxWork - left
			text := &spelt{text: tt.text, work: &work}
			var p places
			err := p.addLooks(text)
			if tt.refused != errors.Is(err, errReadings) || !tt.refused && err != nil {
				t.Error(err)
			}
			if !tt.refused && looksLikeURL(text) {
				t.Error("it is a URL")
			}
			// What is beyond the bound is not looked at before it is refused.
			if used := work - maxWork + left; used < tt.least || used > left+1<<20 {
				t.Errorf("%d bytes are %d bytes of work", len(tt.text), used)
			}
		})
	}
}

// Of a text that is long at every level, no more is kept than how it starts.
func TestLevels(t *testing.T) {
	levels, err := (&spelt{text: "'%2527" + strings.Repeat("a", 10*maxStart), work: new(int)}).levels()
	if err != nil || len(levels) != 4 {
		t.Fatal(len(levels), err)
	}
	for i, start := range []string{"'%2527a", "%27a", "'a", "a"} {
		if len(levels[i]) != maxStart || !strings.HasPrefix(levels[i], start) {
			t.Errorf("%d: %d bytes, %.10q", i, len(levels[i]), levels[i])
		}
	}
}
