package secret

// A token can be interrupted: by the end of a line in a narrow column, by Markdown marks, by an HTML tag, or by the
// codes that color a terminal. If a format begins with a distinctive literal, the scan therefore also skips such noise
// when it compares the format with the text.

// maxNoise is the maximum number of interruptions in a token. minLoud is the minimum length of a distinctive literal.
const (
	maxNoise = 12
	minLoud  = 4
)

// loud reports whether a format begins with a distinctive literal.
func (f *format) loud() bool {
	first := f.parts[0].text
	return len(first) >= minLoud && !alnum[first[len(first)-1]]
}

// tryNoisy compares a format with the text at offset start and skips noise. The literal at the beginning must be free
// of noise. The run after this literal has noise at offset end.
func (s *scan) tryNoisy(text []byte, start, end int, f *format, dst []Match) []Match {
	if !f.loud() || start < s.covered {
		return dst
	}
	at, noise := end, 0
	value := append(s.quiet[:0], text[start+len(f.parts[0].text):end]...)
	n := len(value) // the number of bytes of the current part that were read
	for _, p := range f.parts[1:] {
		for ; p.text != "" && n < len(p.text) || p.text == "" && (p.max == 0 || n < p.max); n++ {
			if n >= p.min && p.text == "" && (at == len(text) || skipNoise(text, at) > at) {
				break // all parts of the token were found
			}
			for skip := skipNoise(text, at); skip > at; skip = skipNoise(text, at) {
				if noise++; noise > maxNoise {
					return dst
				}
				at = skip
			}
			s.effort += 2
			if s.noise--; s.noise < 0 || at >= len(text) {
				return dst
			}
			c := text[at]
			if p.text != "" && c != p.text[n] || p.text == "" && n < p.min && !s.classes.has(p.class, c) {
				return dst
			}
			if p.text == "" && !s.classes.has(p.class, c) {
				break
			}
			value = append(value, c)
			at++
		}
		n = 0
	}
	s.quiet = value
	if q := measure(value); noise == 0 || !looksRandom(value, true) || q.wordy() || q.digits == 0 {
		return dst
	}
	return s.found(text, start, at, f.id, f.rank, dst)
}

// startsNoise contains the characters at which noise can begin.
var startsNoise = bytesOf(" `*<\r\n\x1b")

// skipNoise skips the noise at an offset and returns the offset of its end. If there is no noise, it returns the same
// offset.
func skipNoise(text []byte, at int) int {
	if at >= len(text) || !startsNoise[text[at]] {
		return at
	}
	switch text[at] {
	case ' ', '`':
		return at + 1
	case '*':
		if at+1 < len(text) && text[at+1] == '*' {
			return at + 2
		}
		return at + 1
	case '<': // a tag of HTML, such as <em>
		for end := at + 1; end < len(text) && end-at < maxName; end++ {
			if text[end] == '>' {
				return end + 1
			}
		}
	case '\r', '\n':
		end := at
		for end < len(text) && end-at < maxName && blanks[text[end]] {
			end++
		}
		return end
	case 0x1b:
		if at+1 < len(text) && text[at+1] == '[' {
			for end := at + 2; end < len(text) && end-at < maxName; end++ {
				if c := text[end]; 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
					return end + 1
				}
			}
		}
	}
	return at
}
