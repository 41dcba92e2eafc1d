package view

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// This command writes the table: go test -run TestConfusables -confusables FILE
//
//go:embed confusables.txt.gz
var packed []byte

// lookalikes maps each character that looks like ASCII text to the text that it resembles.
var lookalikes = sync.OnceValue(func() map[rune]string {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(fmt.Sprintf("confusables: %v", err))
	}
	out := make(map[rune]string, 2000)
	for sc := bufio.NewScanner(z); sc.Scan(); {
		from, to, ok := strings.Cut(sc.Text(), " ")
		if n, err := strconv.ParseUint(from, 16, 32); ok && err == nil {
			out[rune(n)] = to
		}
	}
	return out
})

// ASCII reports whether text consists only of ASCII characters.
func ASCII(text []byte) bool {
	for len(text) >= 8 {
		if (text[0]|text[1]|text[2]|text[3]|text[4]|text[5]|text[6]|text[7])&0x80 != 0 {
			return false
		}
		text = text[8:]
	}
	for _, c := range text {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// Normal sets the view to the text that a reader sees in src. It removes invisible characters and accents, and replaces
// look-alikes with ASCII. A language model also reads tag characters, so Normal replaces them with the ASCII characters
// that they encode. Normal reports whether the view differs from src.
func (v *View) Normal(src []byte) bool {
	v.reset(len(src))
	changed, tags := false, false
	for i := 0; i < len(src); {
		start := i
		for i < len(src) && unchanged[src[i]] {
			i++
		}
		if i > start {
			v.startAt(start)
			v.Text = append(v.Text, src[start:i]...)
			tags = false
			continue
		}
		r, n := utf8.DecodeRune(src[i:])
		v.startUnit(i)
		before := len(v.Text)
		tag := 0xe0020 <= r && r <= 0xe007e
		switch {
		case tag:
			if !tags {
				v.Text = append(v.Text, ' ') // separate the hidden text from the preceding text
			}
			v.Text = append(v.Text, byte(r-0xe0000))
		case Invisible(r):
		case 0x2010 <= r && r <= 0x2027, r == utf8.RuneError && n == 1:
			v.Text = append(v.Text, src[i:i+n]...) // keep punctuation and invalid UTF-8
		default:
			v.appendPlain(r, src[i:i+n])
		}
		tags = tag
		changed = changed || !bytes.Equal(v.Text[before:], src[i:i+n])
		i += n
	}
	v.startAt(len(src))
	return changed
}

// unchanged is set for the bytes that Normal does not change: visible ASCII and white space.
var unchanged = func() (t [256]bool) {
	for c := ' '; c <= '~'; c++ {
		t[c] = true
	}
	t['\t'], t['\n'], t['\r'] = true, true, true
	return t
}()

// appendPlain appends the character r, whose encoding is src, to the view. A look-alike is replaced with ASCII. Any
// other character is appended without its accents.
func (v *View) appendPlain(r rune, src []byte) {
	if s, ok := lookalikes()[r]; ok {
		v.Text = append(v.Text, s...)
		return
	}
	d := norm.NFKD.Properties(src).Decomposition()
	if d == nil {
		d = src
	}
	for len(d) > 0 {
		r, n := utf8.DecodeRune(d)
		switch s, ok := lookalikes()[r]; {
		case unicode.Is(unicode.Mn, r):
		case ok:
			v.Text = append(v.Text, s...)
		case unicode.IsSpace(r):
			v.Text = append(v.Text, ' ')
		default:
			v.Text = append(v.Text, d[:n]...)
		}
		d = d[n:]
	}
}

// Tricks returns the kind of the first deceptive character in a text, or "" if there is none. A "tag_character" is
// invisible to people, but a language model reads it. A "bidi_control" changes the order in which the text is
// displayed.
func Tricks(text []byte) string {
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] < 0xe2:
		case text[i] == 0xe2 && i+2 < len(text):
			if r, _ := utf8.DecodeRune(text[i:]); 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 {
				return "bidi_control"
			}
		case text[i] == 0xf3:
			if r, _ := utf8.DecodeRune(text[i:]); 0xe0000 <= r && r <= 0xe007f {
				return "tag_character"
			}
		}
	}
	return ""
}
