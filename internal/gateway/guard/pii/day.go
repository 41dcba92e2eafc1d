package pii

import "strings"

var birthLabels = newLabels("birth, born, dob, birthday, birthdate, bday, geboren, geburt, geb, naissance, " +
	"nacimiento, nascita, nascimento, urodz, geboorte")

// months contains the first three letters of month names in several languages.
const months = " jan feb mar apr may jun jul aug sep oct nov dec mär mai okt dez ene abr ago dic fév avr aoû déc" +
	" fev set out gen mag giu lug ott jui aou "

// birthDate finds a date of birth that begins with the token text[a:b]. A word such as "born" must be nearby. The
// second result is 0 if there is no date of birth.
func (s *search) birthDate(a, b int) (start, end int) {
	start, end = s.findDate(a, b)
	if end == 0 || !s.near(start, end, birthLabels) {
		return 0, 0
	}
	return start, end
}

// findDate finds a date that begins with the token text[a:b], or with a month name directly before the token. The
// second result is 0 if there is no date.
func (s *search) findDate(a, b int) (start, end int) {
	text := s.text
	if b-a > 8 || a > 1 && b+1 < len(text) && text[b] == ' ' && digit(text[b+1]) && digit(text[a-2]) ||
		!allDigits(text[a:b]) && !isOrdinal(text[a:b]) {
		return 0, 0 // a long number, or a number in a list
	}
	if b-a == 8 && allDigits(text[a:b]) && year(number(text[a:a+4])) && isDate(number(text[a:a+4]), number(text[a+4:a+6]), number(text[a+6:b])) {
		return a, b
	}
	if b-a > 4 {
		return 0, 0
	}
	if b+1 < len(text) && (text[b] == '-' || text[b] == '/' || text[b] == '.') && digit(text[b+1]) {
		return s.numericDate(a, b)
	}
	if n := s.monthEnd(b); n > 0 {
		return s.dayFirst(a, n)
	}
	return s.monthFirst(a, b)
}

// isOrdinal reports whether a token is a day of the month such as 12th or 1st.
func isOrdinal(token []byte) bool {
	n := len(token)
	if n < 3 || n > 4 || !allDigits(token[:n-2]) {
		return false
	}
	c := token[n-2]
	return c == 't' || c == 's' || c == 'n' || c == 'r'
}

// numericDate reads a date such as 1980-03-12, 12.3.1980 or 3/12/80. The first number is text[a:b].
func (s *search) numericDate(a, b int) (start, end int) {
	text := s.text
	c := s.skipDigits(b + 1)
	if c+1 >= len(text) || text[c] != text[b] || !digit(text[c+1]) || c-b > 3 {
		return 0, 0
	}
	d := s.skipDigits(c + 1)
	x, y, z := number(text[a:b]), number(text[b+1:c]), number(text[c+1:min(d, c+5)])
	switch {
	case b-a == 4 && d-c <= 3 && year(x) && isDate(x, y, z):
	case b-a <= 2 && (d-c == 5 && year(z) || d-c == 3) && (isDate(z, y, x) || isDate(z, x, y)):
	default:
		return 0, 0
	}
	return a, d
}

// dayFirst reads a date such as 12 March 1980, 12. März 1980 or 12-Mar-1980. The day begins at offset a, and the
// month ends at offset n.
func (s *search) dayFirst(a, n int) (start, end int) {
	text := s.text
	c := n
	for c < len(text) && (text[c] == ' ' || text[c] == '.' || text[c] == ',' || text[c] == '-') && c-n < 3 {
		c++
	}
	if d := s.skipDigits(c); d-c == 4 && year(number(text[c:d])) {
		return a, d
	}
	return 0, 0
}

// monthFirst reads a date such as March 12, 1980 or March 1980. The first number is text[a:b].
func (s *search) monthFirst(a, b int) (start, end int) {
	text := s.text
	m := a
	for m > s.done && (text[m-1] == ' ' || text[m-1] == '.') && a-m < 2 {
		m--
	}
	k := m
	for k > s.done && (letter(text[k-1]) || text[k-1] >= 0x80) && m-k < 12 {
		k--
	}
	if m == a || !s.isMonth(k, m) {
		return 0, 0
	}
	c := b
	for c < len(text) && (text[c] == ' ' || text[c] == ',') && c-b < 3 {
		c++
	}
	if d := s.skipDigits(c); c > b && d-c == 4 && year(number(text[c:d])) {
		return k, d
	}
	if b-a == 4 && year(number(text[a:b])) {
		return k, b
	}
	return 0, 0
}

// skipDigits returns the offset after the digits that begin at offset i.
func (s *search) skipDigits(i int) int {
	for i < len(s.text) && digit(s.text[i]) {
		i++
	}
	return i
}

func year(y int) bool { return y >= 1890 && y <= 2035 }

// monthEnd returns the end of the month name that follows an offset of the text, or 0 if no month name follows.
func (s *search) monthEnd(at int) int {
	a := at
	for a < len(s.text) && (s.text[a] == ' ' || s.text[a] == '.' || s.text[a] == '-') && a-at < 3 {
		a++
	}
	// Skip "of", as in 12th of March.
	if a+3 < len(s.text) && string(s.text[a:a+3]) == "of " {
		a += 3
	}
	b := a
	for b < len(s.text) && (letter(s.text[b]) || s.text[b] >= 0x80) && b-a < 12 {
		b++
	}
	if a > at && s.isMonth(a, b) {
		return b
	}
	return 0
}

func (s *search) isMonth(a, b int) bool {
	if b-a < 3 || b-a > 11 {
		return false
	}
	word := []rune(string(s.text[a:b]))
	if len(word) < 3 {
		return false
	}
	for i, r := range word[:3] {
		if 'A' <= r && r <= 'Z' {
			word[i] = r + 'a' - 'A'
		}
	}
	return strings.Contains(months, " "+string(word[:3])+" ")
}
