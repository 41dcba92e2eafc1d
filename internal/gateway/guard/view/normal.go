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
	for i, small := range smallCapitals {
		letter := string(rune('a' + i))
		out[small] = letter
		for _, first := range framedLetters {
			out[first+rune(i)] = letter
		}
	}
	for i := range rune(9) {
		for _, first := range framedDigits {
			out[first+i] = string('1' + i)
		}
	}
	out['⓿'] = "0"
	// The digits of every script map to ASCII digits, even if one of them looks like a letter.
	for _, block := range unicode.Nd.R16[1:] {
		for r := block.Lo; r <= block.Hi; r++ {
			out[rune(r)] = string(rune('0' + (r-block.Lo)%10))
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
	return v.appendNormal(src, 0, len(src))
}

// AppendNormal appends src[start:end] to the view like [View.Normal], behind a separator that no secret contains. It
// appends nothing if this text would not change.
func (v *View) AppendNormal(src []byte, start, end int) {
	text, cuts := len(v.Text), len(v.cuts)
	v.Text = append(v.Text, gap...)
	if !v.appendNormal(src, start, end) {
		v.Text, v.cuts = v.Text[:text], v.cuts[:cuts]
	}
}

func (v *View) appendNormal(src []byte, i, end int) bool {
	changed, tags := false, false
	v.startAt(i)
	for i < end {
		if n := kept(src[i:end]); n > 0 {
			v.Text = append(v.Text, src[i:i+n]...)
			i += n
			tags = false
			continue
		}
		r, n := utf8.DecodeRune(src[i:end])
		before := len(v.Text)
		tag := 0xe0020 <= r && r <= 0xe007e
		switch {
		case tag:
			if !tags {
				v.Text = append(v.Text, ' ') // separates the hidden text from the text before it
			}
			v.Text = append(v.Text, byte(r-0xe0000))
		case r == 0x3164 || r == 0xffa0 || r == 0x2800: // these blanks are as wide as a letter
			v.Text = append(v.Text, ' ')
		case Invisible(r):
		default:
			v.appendPlain(r, src[i:i+n])
		}
		tags = tag
		changed = changed || !bytes.Equal(v.Text[before:], src[i:i+n])
		i += n
		v.startAfter(before, n, i)
	}
	return changed
}

// kept returns the number of bytes at the beginning of src that Normal does not change: visible ASCII, white space,
// punctuation and invalid UTF-8.
func kept(src []byte) (n int) {
	for n < len(src) {
		if unchanged[src[n]] {
			n++
			continue
		}
		r, size := utf8.DecodeRune(src[n:])
		if (r < 0x2010 || 0x2027 < r) && (r != utf8.RuneError || size > 1) {
			break
		}
		n += size
	}
	return n
}

// unchanged is set for the bytes that Normal does not change: visible ASCII and white space.
var unchanged = func() (t set) {
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
		case unicode.Is(unicode.Mn, r), unicode.Is(unicode.Me, r):
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

// These lists contain characters that Unicode neither decomposes to ASCII nor lists as look-alikes. framedLetters and
// framedDigits contain only the first character of each range. Regional indicators are treated as framed letters.
var (
	framedLetters = []rune{0x249c, 0x1f110, 0x1f150, 0x1f170, 0x1f1e6}
	framedDigits  = []rune{0x24f5, 0x2776, 0x2780, 0x278a}
	smallCapitals = []rune("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡxʏᴢ")
)

// Displayed appends text to dst in the order in which it is displayed: text after a right-to-left override is reversed,
// up to the end of the override or of the line. Displayed reports whether text has such an override. If not, it appends
// nothing.
func Displayed(dst, text []byte) ([]byte, bool) {
	const override, pop, popIsolate = '\u202e', '\u202c', '\u2069'
	for found := false; ; found = true {
		at := bytes.Index(text, []byte(string(override)))
		if at < 0 && found {
			dst = append(dst, text...)
		}
		if at < 0 {
			return dst, found
		}
		dst, text = append(dst, text[:at]...), text[at+utf8.RuneLen(override):]
		end := 0
		for end < len(text) && text[end] != '\n' {
			r, n := utf8.DecodeRune(text[end:])
			if r == override || r == pop || r == popIsolate {
				break
			}
			end += n
		}
		for rest := text[:end]; len(rest) > 0; {
			_, n := utf8.DecodeLastRune(rest)
			dst, rest = append(dst, rest[len(rest)-n:]...), rest[:len(rest)-n]
		}
		text = text[end:]
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
