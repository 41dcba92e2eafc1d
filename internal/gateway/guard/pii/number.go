package pii

import "strings"

// Limits on the text that is read as one number.
const (
	maxGroups  = 10
	maxCompact = 40
	maxToken   = 100
	maxGlued   = 12
)

// group is a run of letters and digits.
type group struct{ start, end int }

// lengths lists the kinds of identity numbers for each length.
var lengths = func() (t [maxCompact + 1][]*id) {
	for i := range ids {
		n := len(ids[i].form)
		t[n] = append(t[n], &ids[i])
	}
	return t
}()

func separator(c byte) bool { return c == ' ' || c == '-' || c == '.' || c == '/' }

// numberAt looks for personal data around the digit at offset i. It returns the offset at which the search continues.
func (s *search) numberAt(i int) int {
	text := s.text
	a, b := i, i+1
	for a > s.done && alnum(text[a-1]) {
		a--
	}
	for b < len(text) && alnum(text[b]) {
		b++
	}
	if s.phone && a > s.done && (text[a-1] == '+' || text[a-1] == '(') {
		if end := s.findPhone(a); end > 0 {
			return end
		}
	}
	if b-a > maxToken {
		return b
	}
	if s.wallet && b-a >= 14 && (a == 0 || text[a-1] != '/') && (isWallet(text[a:b]) || s.walletNear(a, b)) {
		return s.found(Wallet, a, b)
	}
	if s.ip && b-a <= 3 {
		if end := ipv4End(text, a); end > 0 {
			return s.found(IPAddress, a, end)
		}
	}
	if s.mac && (b-a == 2 || b-a == 4) {
		if start, end := s.macAt(a); end > 0 {
			return s.found(MACAddress, start, end)
		}
	}
	start := a
	// A group of letters can come first, as in AA 12 34 56 C.
	if j := a - 1; j > s.done && separator(text[j]) && digit(text[a]) {
		k := j
		for k > s.done && letter(text[k-1]) && j-k < 4 {
			k--
		}
		if k < j && (k == 0 || !alnum(text[k-1])) {
			if end := s.longestNumber(k); end > 0 {
				return end
			}
		}
	}
	if end := s.longestNumber(start); end > 0 {
		return end
	}
	if end := s.numberAfterWord(a, i); end > 0 {
		return end
	}
	if s.birth {
		if start, end := s.birthDate(a, b); end > 0 {
			return s.found(DateOfBirth, start, end)
		}
	}
	if s.phone && digit(text[a]) {
		if end := s.findPhone(a); end > 0 {
			return end
		}
	}
	if s.passport && s.isPassport(a, b) {
		return s.found(Passport, a, b)
	}
	return b
}

// numberAfterWord looks for a number that directly follows a word because someone forgot a space. The word begins at
// offset a, and the number at offset i. The result is the end of the number, or 0 if there is none.
func (s *search) numberAfterWord(a, i int) int {
	if i == a || i-a > maxGlued || a > 0 && s.text[a-1] != ' ' {
		return 0
	}
	for _, c := range s.text[a:i] {
		if c < 'a' || c > 'z' {
			return 0
		}
	}
	if end := s.longestNumber(i); end > 0 {
		return end
	}
	if s.phone && s.wordNear(a, a, phoneWords) {
		return s.findPhone(i)
	}
	return 0
}

// longestNumber looks for the longest number that begins at offset start. It returns the end of the number, or 0 if
// there is none.
func (s *search) longestNumber(start int) int {
	text := s.text
	if start > 0 && (text[start-1] == '-' || text[start-1] == '.') && start > 1 && alnum(text[start-2]) {
		return 0 // start is in the middle of a longer number or word
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
		if size >= 7 && !continuesAfter(text, end) {
			if category := s.categoryOf(s.compact[:size], s.groups[:n]); category != "" {
				return s.found(category, start, end)
			}
		}
		size -= end - s.groups[n-1].start
	}
	return 0
}

// continuesAfter reports whether the number continues with a separator and another digit.
func continuesAfter(text []byte, end int) bool {
	return end+1 < len(text) && (text[end] == '-' || text[end] == '.' || text[end] == '/') && digit(text[end+1])
}

// categoryOf returns the category of a number, or "" if the number is not personal data. The groups are the parts of
// the number in the text.
func (s *search) categoryOf(compact []byte, groups []group) string {
	start, end := groups[0].start, groups[len(groups)-1].end
	if s.iban && letter(compact[0]) && letter(compact[1]) && s.groupedLikeCard(groups) && iban(compact) {
		return IBAN
	}
	plain := allDigits(compact)
	if plain && s.card && s.groupedLikeCard(groups) && isCard(compact) {
		return CreditCard
	}
	if !s.national || len(compact) >= len(lengths) {
		return ""
	}
	for _, n := range lengths[len(compact)] {
		if !s.allowsSeparators(n, groups) || !n.matches(compact) {
			continue
		}
		if s.isBare(n, groups) || s.uniform(groups) && (s.wordNear(start, end, n.words) || s.wordNear(start, end, anyID)) {
			return NationalID
		}
	}
	return ""
}

// allowsSeparators reports whether n allows the separators between the groups.
func (s *search) allowsSeparators(n *id, groups []group) bool {
	for _, g := range groups[1:] {
		if c := s.text[g.start-1]; n.seps != "" && strings.IndexByte(n.seps, c) < 0 || n.seps == "" && c == ':' {
			return false
		}
	}
	return true
}

// uniform reports whether all separators between the groups are equal.
func (s *search) uniform(groups []group) bool {
	for _, g := range groups[1:] {
		if s.text[g.start-1] != s.text[groups[0].end] {
			return false
		}
	}
	return true
}

// groupedLikeCard reports whether the groups are written as on a card: all separators are equal, and only the last
// group can have a single character.
func (s *search) groupedLikeCard(groups []group) bool {
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

// matches reports whether a number without separators has the form of this id and a correct check digit.
func (n *id) matches(s []byte) bool {
	for i, c := range []byte(n.form) {
		if c == '9' && !digit(s[i]) || c == 'A' && digit(s[i]) {
			return false
		}
	}
	return n.ok == nil || n.ok(s)
}

// isBare reports whether a number is written in a layout that needs no describing word nearby.
func (s *search) isBare(n *id, groups []group) bool {
	for form := range strings.FieldsSeq(n.bareLayouts) {
		if form == "*" {
			return len(groups) <= 5
		}
		if s.hasLayout(groups, form) {
			return true
		}
	}
	return false
}

// hasLayout reports whether the groups have the layout in form, such as 3-2-4. Each digit in form is the length of a
// group. A dash in form matches any separator, but all dashes must match the same one. Every other separator in form
// matches only itself.
func (s *search) hasLayout(groups []group, form string) bool {
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

var passportWords = newWords("passport, reisepass, pasaporte, passaporto, passeport, " +
	"paspoort, paszport, passaporte, travel document")

// isPassport reports whether text[a:b] may be a passport number. A word such as "passport" must be nearby, because
// passport numbers have no check digit.
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
	return digits >= 4 && letters <= 4 && (a == 0 || s.text[a-1] != '.') && s.wordNear(a, b, passportWords)
}

var walletWords = newWords("wallet, crypto, solana, monero, ethereum, bitcoin, btc, eth, sol, xmr, ltc")

// walletNear reports whether text[a:b] may be a wallet address without a checksum. A word such as "wallet" must be
// nearby.
func (s *search) walletNear(a, b int) bool {
	n := b - a
	if n < 32 || n > 44 && n != 95 && n != 106 || n < 36 && (s.text[a] == '1' || s.text[a] == '3') {
		return false // addresses that begin with 1 or 3 have a checksum, and it did not match
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
	return upper && low && s.wordNear(a, b, walletWords)
}
