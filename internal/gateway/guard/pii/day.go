package pii

var birthWords = newWords("birth", "born", "dob", "birthday", "birthdate", "bday", "geboren", "geburt", "geb", "naissance", "nacimiento", "nascita", "nascimento", "urodz", "geboorte")

var months = map[string]bool{
	"jan": true, "feb": true, "mar": true, "apr": true, "may": true, "jun": true, "jul": true, "aug": true, "sep": true, "oct": true, "nov": true, "dec": true,
	"mär": true, "mai": true, "okt": true, "dez": true, "ene": true, "abr": true, "ago": true, "dic": true, "fév": true, "avr": true, "aoû": true, "déc": true,
	"fev": true, "set": true, "out": true, "gen": true, "mag": true, "giu": true, "lug": true, "ott": true, "jui": true, "aou": true,
}

// day finds the date that begins with the digits text[a:b], if a word marks it as a date
// of birth.
func (s *search) day(a, b int) (start, end int) {
	start, end = s.date(a, b)
	if end == 0 || !s.near(start, end, birthWords) {
		return 0, 0
	}
	return start, end
}

// date reads a date that begins with the token text[a:b], or just before it with
// the name of a month.
func (s *search) date(a, b int) (start, end int) {
	text := s.text
	if !allDigits(text[a:b]) && !ordinal(text[a:b]) {
		return 0, 0
	}
	if b-a == 8 && allDigits(text[a:b]) && date(number(text[a:a+4]), number(text[a+4:a+6]), number(text[a+6:b])) {
		return a, b
	}
	if b-a > 4 {
		return 0, 0
	}
	if b+1 < len(text) && (text[b] == '-' || text[b] == '/' || text[b] == '.') && digit(text[b+1]) {
		return s.inNumbers(a, b)
	}
	if n := s.month(b); n > 0 {
		return s.dayFirst(a, n)
	}
	return s.monthFirst(a, b)
}

// ordinal reports whether a token is the day of a month: 12th, 1st.
func ordinal(token []byte) bool {
	n := len(token)
	if n < 3 || n > 4 || !allDigits(token[:n-2]) {
		return false
	}
	c := token[n-2]
	return c == 't' || c == 's' || c == 'n' || c == 'r'
}

// inNumbers parses 1980-03-12, 12.3.1980, 3/12/80: the first number is text[a:b], and a
// separator and a digit follow.
func (s *search) inNumbers(a, b int) (start, end int) {
	text := s.text
	c := s.digits(b + 1)
	if c+1 >= len(text) || text[c] != text[b] || !digit(text[c+1]) || c-b > 3 {
		return 0, 0
	}
	d := s.digits(c + 1)
	x, y, z := number(text[a:b]), number(text[b+1:c]), number(text[c+1:min(d, c+5)])
	switch {
	case b-a == 4 && d-c <= 3 && year(x) && date(x, y, z):
	case b-a <= 2 && (d-c == 5 && year(z) || d-c == 3) && (date(z, y, x) || date(z, x, y)):
	default:
		return 0, 0
	}
	return a, d
}

// dayFirst reads 12 March 1980, 12. März 1980, 12-Mar-1980: the day begins at a,
// and the month ends at n.
func (s *search) dayFirst(a, n int) (start, end int) {
	text := s.text
	c := n
	for c < len(text) && (text[c] == ' ' || text[c] == '.' || text[c] == ',' || text[c] == '-') && c-n < 3 {
		c++
	}
	if d := s.digits(c); d-c == 4 && year(number(text[c:d])) {
		return a, d
	}
	return 0, 0
}

// monthFirst reads March 12, 1980, and March 1980: text[a:b] is the first number.
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
	if d := s.digits(c); c > b && d-c == 4 && year(number(text[c:d])) {
		return k, d
	}
	if b-a == 4 && year(number(text[a:b])) {
		return k, b
	}
	return 0, 0
}

// digits is the end of the digits that follow at.
func (s *search) digits(at int) int {
	for at < len(s.text) && digit(s.text[at]) {
		at++
	}
	return at
}

func year(y int) bool { return y >= 1890 && y <= 2035 }

// month is the end of the name of a month that follows at, or 0.
func (s *search) month(at int) int {
	a := at
	for a < len(s.text) && (s.text[a] == ' ' || s.text[a] == '.' || s.text[a] == '-') && a-at < 3 {
		a++
	}
	// 12th of March.
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
	return months[string(word[:3])]
}
