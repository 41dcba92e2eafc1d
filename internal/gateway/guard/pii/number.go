package pii

import "strings"

// Bounds of what is taken for one number.
const (
	maxGroups  = 10
	maxCompact = 40
	maxToken   = 100
	maxGlued   = 12
)

// group is a run of letters and digits.
type group struct{ start, end int }

// lengths are the ids by the length of their form.
var lengths = func() (t [maxCompact + 1][]*id) {
	for i := range ids {
		n := len(ids[i].form)
		t[n] = append(t[n], &ids[i])
	}
	return t
}()

func separator(c byte) bool { return c == ' ' || c == '-' || c == '.' || c == '/' }

// number looks at what begins around a digit, and answers where to go on.
func (s *search) number(i int) int {
	text := s.text
	a, b := i, i+1
	for a > s.done && alnum(text[a-1]) {
		a--
	}
	for b < len(text) && alnum(text[b]) {
		b++
	}
	if s.phone && a > s.done && (text[a-1] == '+' || text[a-1] == '(') {
		if end := s.dial(a); end > 0 {
			return end
		}
	}
	if b-a > maxToken {
		return b
	}
	if s.wallet && b-a >= 14 && (a == 0 || text[a-1] != '/') && (wallet(text[a:b]) || s.walletNear(a, b)) {
		return s.found(Wallet, a, b)
	}
	if s.ip && b-a <= 3 {
		if end := dotted(text, a); end > 0 {
			return s.found(IPAddress, a, end)
		}
	}
	if s.mac && (b-a == 2 || b-a == 4) {
		if start, end := s.dashed(a); end > 0 {
			return s.found(MACAddress, start, end)
		}
	}
	start := a
	// AA 12 34 56 C: letters of their own may come first.
	if j := a - 1; j > s.done && separator(text[j]) && digit(text[a]) {
		k := j
		for k > s.done && letter(text[k-1]) && j-k < 4 {
			k--
		}
		if k < j && (k == 0 || !alnum(text[k-1])) {
			if end := s.window(k); end > 0 {
				return end
			}
		}
	}
	if end := s.window(start); end > 0 {
		return end
	}
	if end := s.glued(a, i); end > 0 {
		return end
	}
	if s.birth {
		if start, end := s.day(a, b); end > 0 {
			return s.found(DateOfBirth, start, end)
		}
	}
	if s.phone && digit(text[a]) {
		if end := s.dial(a); end > 0 {
			return end
		}
	}
	if s.passport && s.isPassport(a, b) {
		return s.found(Passport, a, b)
	}
	return b
}

// glued looks for a number that begins at i, right behind a word that begins at
// a: a space was forgotten.
func (s *search) glued(a, i int) int {
	if i == a || i-a > maxGlued || a > 0 && s.text[a-1] != ' ' {
		return 0
	}
	for _, c := range s.text[a:i] {
		if c < 'a' || c > 'z' {
			return 0
		}
	}
	if end := s.window(i); end > 0 {
		return end
	}
	if s.phone && s.near(a, a, phoneWords) {
		return s.dial(i)
	}
	return 0
}

// window looks for the longest number that begins at start.
func (s *search) window(start int) int {
	text := s.text
	if start > 0 && (text[start-1] == '-' || text[start-1] == '.') && start > 1 && alnum(text[start-2]) {
		return 0 // it is the rest of something
	}
	n, size, digits := 0, 0, 0
	for at := start; n < maxGroups; {
		end := at
		for end < len(text) && alnum(text[end]) && end-at <= maxCompact {
			end++
		}
		if end == at || size+end-at > maxCompact {
			break
		}
		for _, c := range text[at:end] {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			if digit(c) {
				digits++
			}
			s.compact[size] = c
			size++
		}
		s.groups[n] = group{at, end}
		n++
		if end+1 >= len(text) || !separator(text[end]) && text[end] != ':' || !alnum(text[end+1]) {
			break
		}
		at = end + 1
	}
	if digits < 4 {
		return 0
	}
	for ; n > 0; n-- {
		end := s.groups[n-1].end
		if size >= 7 && !continues(text, end) {
			if category := s.what(s.compact[:size], s.groups[:n]); category != "" {
				return s.found(category, start, end)
			}
		}
		size -= end - s.groups[n-1].start
	}
	return 0
}

// continues reports whether a number continues after end.
func continues(text []byte, end int) bool {
	return end+1 < len(text) && (text[end] == '-' || text[end] == '.' || text[end] == '/') && digit(text[end+1])
}

// what returns the category of the number that groups form, if any.
func (s *search) what(compact []byte, groups []group) string {
	start, end := groups[0].start, groups[len(groups)-1].end
	if s.iban && letter(compact[0]) && letter(compact[1]) && s.spaced(groups) && iban(compact) {
		return IBAN
	}
	plain := allDigits(compact)
	if plain && s.card && s.spaced(groups) && card(compact) {
		return CreditCard
	}
	if !s.national || len(compact) >= len(lengths) {
		return ""
	}
	for _, n := range lengths[len(compact)] {
		if !s.separated(n, groups) || !n.matches(compact) {
			continue
		}
		if s.alone(n, groups) || s.uniform(groups) && (s.near(start, end, n.words) || s.near(start, end, anyID)) {
			return NationalID
		}
	}
	return ""
}

// separated reports whether the groups have only separators that an id allows.
func (s *search) separated(n *id, groups []group) bool {
	for _, g := range groups[1:] {
		if c := s.text[g.start-1]; n.by != "" && strings.IndexByte(n.by, c) < 0 || n.by == "" && c == ':' {
			return false
		}
	}
	return true
}

// uniform reports whether the groups have one kind of separator.
func (s *search) uniform(groups []group) bool {
	for _, g := range groups[1:] {
		if s.text[g.start-1] != s.text[groups[0].end] {
			return false
		}
	}
	return true
}

// spaced reports whether groups are written as on a card: of one kind of
// separator, in groups of at least three.
func (s *search) spaced(groups []group) bool {
	for i, g := range groups {
		if i > 0 {
			if c := s.text[g.start-1]; c != s.text[groups[0].end] || c != ' ' && c != '-' && c != '.' {
				return false
			}
		}
		if len(groups) > 1 && g.end-g.start < 2 && i < len(groups)-1 {
			return false
		}
	}
	return true
}

// matches reports whether a compact number is of this form, and right.
func (n *id) matches(s []byte) bool {
	for i, c := range []byte(n.form) {
		if c == '9' && !digit(s[i]) || c == 'A' && digit(s[i]) {
			return false
		}
	}
	return n.ok == nil || n.ok(s)
}

// alone reports whether a number is written in a way that needs no word.
func (s *search) alone(n *id, groups []group) bool {
	for _, form := range n.alone {
		if form == "*" {
			return len(groups) <= 5
		}
		if s.layout(groups, form) {
			return true
		}
	}
	return false
}

// layout reports whether groups have the lengths that form says, 3-2-4. A dash
// in it is any separator, but always the same; others stand for themselves.
func (s *search) layout(groups []group, form string) bool {
	if len(groups) != (len(form)+1)/2 {
		return false
	}
	any := byte(0)
	for i, g := range groups {
		if g.end-g.start != int(form[2*i]-'0') {
			return false
		}
		if i == 0 {
			continue
		}
		c := s.text[g.start-1]
		if want := form[2*i-1]; want == '-' {
			if any == 0 {
				any = c
			}
			if c != any {
				return false
			}
		} else if c != want {
			return false
		}
	}
	return true
}

var passportWords = newWords("passport", "reisepass", "pasaporte", "passaporto", "passeport", "paspoort", "paszport", "passaporte", "travel document")

// isPassport reports whether a token is a passport's number: there is no check, so
// a word must say so.
func (s *search) isPassport(a, b int) bool {
	if b-a < 6 || b-a > 10 {
		return false
	}
	digits, letters := 0, 0
	for _, c := range s.text[a:b] {
		if digit(c) {
			digits++
		} else {
			letters++
		}
	}
	return digits >= 4 && letters <= 4 && (a == 0 || s.text[a-1] != '.') && s.near(a, b, passportWords)
}

var walletWords = newWords("wallet", "crypto", "solana", "monero", "ethereum", "bitcoin", "btc", "eth", "sol", "xmr", "ltc")

// walletNear knows addresses without a check by the word beside them.
func (s *search) walletNear(a, b int) bool {
	n := b - a
	if n < 32 || n > 44 && n != 95 && n != 106 || n < 36 && (s.text[a] == '1' || s.text[a] == '3') {
		return false // the last have a check, and it failed
	}
	upper, low := false, false
	for _, c := range s.text[a:b] {
		switch {
		case c == '0' || c == 'O' || c == 'I' || c == 'l':
			return false
		case 'a' <= c && c <= 'z':
			low = true
		case 'A' <= c && c <= 'Z':
			upper = true
		}
	}
	return upper && low && s.near(a, b, walletWords)
}
