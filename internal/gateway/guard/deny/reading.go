package deny

// leet are the letters that digits and signs stand for, alike to the prefilter.
var leet = []string{"i1!|l", "o0", "e3", "a4@", "s5$", "t7+", "b8", "g9"}

// readings are the letters that the signs of leet can be: a 1 is an i or an l.
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

// unleet appends text with the signs among letters replaced by letters. It reports
// whether there were any. A digit may end a word, a sign that ends one is
// punctuation.
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

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// flatten appends text with runs of white space as one space, up to size bytes.
// It reports whether there were any, and how much of the text that took.
func flatten(dst, text []byte, size int) (flat []byte, changed bool, used int) {
	done := 0
	for i := 0; i < len(text) && len(dst)+i-done < size; i++ {
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
	if room := size - len(dst); room > 0 {
		end := min(len(text), done+room)
		dst, done = append(dst, text[done:end]...), end
	}
	return dst, changed, done
}

// back is where text begins of which flatten makes size bytes up to end.
func back(text []byte, end, size int) int {
	for ; end > 0 && size > 0; size-- {
		end--
		for white[text[end]] && end > 0 && white[text[end-1]] {
			end--
		}
	}
	return end
}

var white = [256]bool{' ': true, '\t': true, '\n': true, '\v': true, '\f': true, '\r': true}

// Letters spaced out are at least so many.
const minSpaced = 8

// nextSpaced is where the next stretch of spaced letters begins, "i g n o r e",
// or -1. It looks at two of any minSpaced bytes: such a stretch is longer.
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

// join appends the spaced letters that begin at a place, without the spaces, and
// returns their end. A wider space stays one.
func join(dst, text []byte, at int) ([]byte, int) {
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

func spacer(c byte) bool {
	return c == ' ' || c == '.' || c == '-' || c == '_' || c == '*' || c == '\t' || c == '\n' || c == '/' || c == ','
}
