package deny

import "bytes"

// leet contains groups of similar characters. Each group begins with a letter, followed by the digits and signs that
// can replace it. The search for words treats all characters of a group as equal.
var leet = []string{"i1!|l", "o0", "e3", "a4@", "s5$", "t7+", "b8", "g9"}

// readings contains two tables that map digits and signs to letters. The first table maps 1 to i, and the second maps
// 1 to l.
var readings = [2]*[256]byte{signs('i'), signs('l')}

func signs(one byte) *[256]byte {
	var t [256]byte
	for i := range t {
		t[i] = byte(i)
	}
	for _, s := range leet[1:] {
		for i := 1; i < len(s); i++ {
			t[s[i]] = s[0]
		}
	}
	t['1'], t['!'], t['|'] = one, one, one
	return &t
}

// unleet appends text to dst, with digits and signs inside words replaced by letters. A sign at the end of a word is
// left unchanged, because it is punctuation. The second result reports whether any character was replaced.
func unleet(dst, text []byte, letters *[256]byte) ([]byte, bool) {
	changed := false
	for i, c := range text {
		if to := letters[c]; to != c &&
			(i+1 < len(text) && letter(letters[text[i+1]]) || '0' <= c && c <= '9' && i > 0 && letter(letters[text[i-1]])) {
			c, changed = to, true
		}
		dst = append(dst, c)
	}
	return dst, changed
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// flatten appends text to dst, with each run of white space replaced by one space. It stops when dst has maxLen bytes.
// The second result reports whether any white space was replaced, and the third is the number of bytes read from text.
func flatten(dst, text []byte, maxLen int) (flat []byte, changed bool, used int) {
	done := 0
	for i := 0; i < len(text) && len(dst)+i-done < maxLen; i++ {
		if !white[text[i]] {
			continue
		}
		end := i + 1
		for end < len(text) && white[text[end]] {
			end++
		}
		if end > i+1 || text[i] != ' ' {
			dst = append(append(dst, text[done:i]...), ' ')
			changed, done = true, end
		}
		i = end - 1
	}
	if room := maxLen - len(dst); room > 0 {
		end := min(len(text), done+room)
		dst, done = append(dst, text[done:end]...), end
	}
	return dst, changed, done
}

// unflatten returns the offset in text of the byte that [flatten] wrote at the given offset.
func unflatten(text []byte, offset int) int {
	for i := 0; i < len(text); i++ {
		if offset == 0 {
			return i
		}
		for white[text[i]] && i+1 < len(text) && white[text[i+1]] {
			i++
		}
		offset--
	}
	return len(text)
}

// maxSentence is the maximum number of bytes that sentenceBefore returns.
const maxSentence = 160

// sentenceBefore returns the part of the sentence before the given offset.
func sentenceBefore(text []byte, offset int) []byte {
	before := text[max(0, offset-maxSentence):offset]
	return before[bytes.LastIndexAny(before, ".!?;\n")+1:]
}

// stepBack returns the offset n bytes before the given offset. It counts a run of white space as one byte, because
// flatten replaces the run with one space.
func stepBack(text []byte, offset, n int) int {
	for ; offset > 0 && n > 0; n-- {
		offset--
		for white[text[offset]] && offset > 0 && white[text[offset-1]] {
			offset--
		}
	}
	return offset
}

var white = [256]bool{' ': true, '\t': true, '\n': true, '\v': true, '\f': true, '\r': true}

// minSpaced is the minimum number of spaced letters that are joined into a word.
const minSpaced = 8

// nextSpaced returns the start of the next run of spaced letters, such as "i g n o r e". It returns -1 if there is
// none. A run of minSpaced letters has almost twice as many bytes, so nextSpaced moves in steps of minSpaced bytes. At
// each step it checks two adjacent offsets, because every second byte of a run is a separator.
func nextSpaced(text []byte, at int) int {
	for i := at; i+4 < len(text); i += minSpaced {
		for _, j := range [2]int{i, i + 1} {
			if j+4 >= len(text) || !letter(text[j]) || !spacer(text[j+1]) || !letter(text[j+2]) || !spacer(text[j+3]) {
				continue
			}
			for j >= at+2 && letter(text[j-2]) && spacer(text[j-1]) {
				j -= 2
			}
			if j == 0 || !letter(text[j-1]) {
				return j
			}
		}
	}
	return -1
}

// joinSpaced appends spaced letters to dst, starting with the letter at the given offset of the text. It drops a single
// separator between two letters, and replaces several separators with one space. The second result is the offset at
// which it stopped.
func joinSpaced(dst, text []byte, at int) ([]byte, int) {
	for at < len(text) && letter(text[at]) {
		dst = append(dst, text[at])
		at++
		gaps := 0
		for at < len(text) && spacer(text[at]) && gaps < 6 {
			at++
			gaps++
		}
		if gaps == 0 {
			break
		}
		if gaps > 1 {
			dst = append(dst, ' ')
		}
	}
	return dst, at
}

func spacer(c byte) bool { return spacers[c] }

var spacers = [256]bool{
	' ': true, '.': true, '-': true, '_': true, '*': true, '\t': true, '\n': true, '/': true, ',': true,
}
