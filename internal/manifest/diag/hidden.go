package diag

import "unicode/utf8"

// Hidden describes the first invisible characters in a string. Hidden returns "" if the string has none.
func Hidden(s string) string {
	_, _, what := HiddenRun(s)
	return what
}

// HiddenRun finds the first run of invisible characters in a string. The results are the byte range of the run and a
// description. If the string has no invisible characters, the description is empty.
func HiddenRun(s string) (start, end int, what string) {
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
			if hiddenKind(next) == "" && next != zwnj && next != zwj {
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
		return "tag characters, which hide text that only programs can read"
	case r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069:
		return "characters that change the direction of text"
	case r == 0x200E, r == 0x200F, r == 0x61C, r >= 0x206A && r <= 0x206F:
		return "characters that change how text is shown"
	case r >= 0xFE00 && r <= 0xFE0E, r >= 0x180B && r <= 0x180D, r == 0x180F, r == 0x17B4, r == 0x17B5, r == 0x2800,
		r >= 0xE0080 && r <= 0xE0FFF, r == 0xAD, r == 0x34F, r == 0x115F, r == 0x1160, r == 0x180E, r == 0x200B,
		r >= 0x2060 && r <= 0x2064, r == 0x3164, r == 0xFEFF, r == 0xFFA0:
		return "invisible characters"
	}
	return ""
}

// joinsASCII reports whether the joiner s[i:j] is between two ASCII characters. A joiner has no purpose there.
// Persian text and emoji need joiners.
func joinsASCII(s string, i, j int) bool {
	return i > 0 && s[i-1] < utf8.RuneSelf && j < len(s) && s[j] < utf8.RuneSelf
}
