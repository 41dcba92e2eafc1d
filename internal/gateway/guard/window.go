package guard

import "bytes"

// A large text is searched in windows, because its decoded forms would need as much memory as the text itself. The search
// of a window continues for overlap bytes in the next window, so it finds what lies at the border. What depends on text
// that is further away, such as the header of a long table, counts only in its own window.
const (
	maxWhole = 4 << 20 // the maximum size of a text that is searched as a whole
	window   = 1 << 20
	overlap  = 64 << 10
	maxWord  = 4 << 10 // the maximum size of a word that is not divided
)

// windows calls a callback with each window of a text and the offset of the window. It stops when the callback returns
// false.
func windows(text []byte, do func(at int, part []byte) bool) {
	if len(text) <= maxWhole {
		do(0, text)
		return
	}
	for at := 0; ; {
		next := nextWindow(text, at)
		end := min(len(text), max(next, at+window)+overlap)
		if !do(at, text[at:end]) || end == len(text) {
			return
		}
		at = next
	}
}

// nextWindow returns the start of the window after the one that starts at an offset. If possible, this is the start of a
// word. A longer word may be base64, so it is divided after a whole number of groups of four characters. If the word
// contains escapes, such as the line ends of wrapped base64, it is not divided: the next window starts after it.
func nextWindow(text []byte, at int) int {
	end := min(len(text), at+window)
	word := end
	for word > at && inWord(text[word-1]) {
		word--
	}
	switch {
	case end-word <= maxWord:
		return word
	case bytes.IndexByte(text[word:end], '\\') < 0:
		return end - (end-word)%4
	}
	for end < len(text) && inWord(text[end]) {
		end++
	}
	return end
}

// inWord reports whether a word of base64 or hex can contain a byte, with the escapes of JSON.
func inWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_' || c == '\\'
}
