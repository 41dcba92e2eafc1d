package policy

import (
	"math/rand/v2"
	"strings"
	"testing"
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
	front := func() (short, long string) { return repeated(" ", `"`, "<", "\u200b", "%20", "`", "\t", "' ") }
	forbidden := 0
	for range 120 {
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
		size, out := least(b.String(), ends)
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
