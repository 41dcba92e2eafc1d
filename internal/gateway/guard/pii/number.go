package pii

// Limits on the text that is read as one number.
const (
	maxCompact = 40
	maxGroups  = 9
	maxToken   = 100
)

// id describes one kind of number. The documentation lists all kinds.
type id struct {
	country, name string
	// forms lists the ways to write the number, separated by bars. In a form, 9 is a digit, A is a letter, and X is
	// either. A tilde is a space or a dash, the same one in the whole number. All other characters are themselves. A
	// number needs a label nearby, unless its form is distinctive. The mark ! means that the form is distinctive, and ^
	// means that it is distinctive in capital letters only.
	forms  string
	ok     check
	labels string
}

// form is one way to write a number.
type form struct {
	*id
	category string
	chars    string // the form without separators
	sep      byte   // the first separator; 0 for a number without separators
	mark     byte
	index    int // the index in search.failed
	labels   labels
}

// token is the position of a run of letters and digits.
type token struct{ start, end int }

// node is a position between two groups of a number. A group is a run of letters and digits.
type node struct {
	next  []edge
	forms []*form // the forms that end here
}

type edge struct {
	sep  byte
	size int
	to   *node
}

// step is a node that the search has reached, and the offset of the text at which it was reached.
type step struct {
	node *node
	end  int
}

func (n *node) follow(sep byte, size int) *node {
	for i := range n.next {
		if e := &n.next[i]; e.size == size && e.sep == sep {
			return e.to
		}
	}
	return nil
}

// numbers contains the forms of a finder.
type numbers struct {
	// first contains the nodes after the first group. The first index is 0 for forms that begin with a digit and 1 for
	// forms that begin with a letter. The second index is the size of the first group.
	first [2][maxCompact + 1]*node
	size  int // the number of forms
}

func (n *numbers) add(category string, rows []id) {
	for i := range rows {
		set := rowLabels[&rows[i]]
		for _, text := range forms(rows[i].forms) {
			f := &form{id: &rows[i], category: category, labels: set, index: n.size}
			n.size++
			if mark := text[0]; mark == '!' || mark == '^' {
				f.mark, text = mark, text[1:]
			}
			var groups []edge
			for j := range len(text) {
				if c := text[j]; c != '9' && c != 'A' && c != 'X' {
					groups = append(groups, edge{sep: c})
					if f.sep == 0 {
						f.sep = c
					}
					continue
				}
				if j == 0 {
					groups = append(groups, edge{})
				}
				groups[len(groups)-1].size++
				f.chars += text[j : j+1]
			}
			for kind := range n.first {
				if kind == 0 && text[0] == 'A' || kind == 1 && text[0] == '9' {
					continue
				}
				at := &n.first[kind][groups[0].size]
				if *at == nil {
					*at = &node{}
				}
				node := *at
				for _, g := range groups[1:] {
					node = node.grow(g)
				}
				node.forms = append(node.forms, f)
			}
		}
	}
}

func (n *node) grow(e edge) *node {
	if to := n.follow(e.sep, e.size); to != nil {
		return to
	}
	e.to = &node{}
	n.next = append(n.next, e)
	return e.to
}

func separator(c byte) bool { return c == ' ' || c == '-' || c == '.' || c == '/' }

// numberAt looks for personal data around the digit at offset i. It returns the offset at which the search continues.
func (s *search) numberAt(i int) int {
	text := s.text
	a, b := i, i+1
	for a > s.done && alnum(text[a-1]) && i-a <= maxToken {
		a--
	}
	for b < len(text) && alnum(text[b]) {
		b++
	}
	s.work += b - a
	if s.phone && a > s.done && (text[a-1] == '+' || text[a-1] == '(') {
		if end := s.phoneAt(a); end > 0 {
			return end
		}
	}
	if b-a > maxToken {
		return b
	}
	if s.wallet && b-a >= 14 && (a == 0 || text[a-1] != '/') && !inBase64(text, b) &&
		(isWallet(text[a:b]) || s.walletNear(a, b)) {
		return s.found(Wallet, a, b)
	}
	if s.ip && b-a <= 3 {
		if end := ipv4End(text, a); end > 0 {
			return s.found(IPAddress, a, end)
		}
	}
	if s.mac && (b-a == 2 && (b < len(text) && text[b] == '-' || a > 0 && text[a-1] == '-') || b-a == 4 && b < len(text) && text[b] == '.') {
		if start, end := s.macAt(a); end > 0 {
			return s.found(MACAddress, start, end)
		}
	}
	// Two letters can come first, as in AA 12 34 56 C or AB.C12.345/0001-99.
	if a >= 3 && a-3 >= s.done && (text[a-1] == ' ' && (b-a == 2 || b-a == 7) || text[a-1] == '.' && b-a == 3) &&
		letter(text[a-2]) && letter(text[a-3]) && (a == 3 || !alnum(text[a-4])) {
		if end := s.identify(a-3, a-1); end > 0 {
			return end
		}
	}
	if end := s.identify(a, b); end > 0 {
		return end
	}
	// People also write "my number is123", without a space.
	if i == a+2 && text[a] == 'i' && text[a+1] == 's' && (a == 0 || text[a-1] == ' ') {
		if end := s.identify(i, b); end > 0 {
			return end
		}
		a = i
	}
	if s.birth {
		if start, end := s.birthDate(a, b); end > 0 {
			return s.found(DateOfBirth, start, end)
		}
	}
	if s.phone && digit(text[a]) {
		if end := s.phoneAt(a); end > 0 {
			return end
		}
	}
	if s.passport && s.isPassport(a, b) {
		return s.found(Passport, a, b)
	}
	if t := (token{a, b}); s.isLong(t) {
		s.others[s.turn%crowd] = t
		s.turn++
	}
	return b
}

// identify looks for the longest number whose first token is text[a:b]. It returns the end of the number, or 0 if there
// is none.
func (s *search) identify(a, b int) int {
	text := s.text
	if b-a > maxCompact || a > 1 && (text[a-1] == '-' || text[a-1] == '.' || text[a-1] == '_') && alnum(text[a-2]) {
		return 0 // a is in the middle of a longer number or word
	}
	kind := 0
	if letter(text[a]) {
		kind = 1
	}
	path := &s.path
	n, size, from := 0, 0, a
	for node := s.numbers.first[kind][b-a]; node != nil && n < maxGroups; {
		size = len(appendUpper(s.compact[:size], text[from:b]))
		path[n].node, path[n].end = node, b
		n++
		if b+1 >= len(text) || len(node.next) == 0 || !alnum(text[b+1]) || n == 1 && kind == 1 && size == 4 && !s.beginsIBAN(a) {
			break
		}
		sep := text[b]
		from = b + 1
		for b = from; b < len(text) && alnum(text[b]) && b-from <= maxCompact-size; b++ {
		}
		node = node.follow(sep, b-from)
	}
	s.work += b - a
	for n--; n >= 0; n-- {
		end := path[n].end
		if followed(text, end) {
			continue
		}
		for _, f := range path[n].node.forms {
			if (f.mark != 0 || s.anyNear(a, end)) && s.accepts(f, a, end) {
				return s.found(f.category, a, end)
			}
		}
	}
	return 0
}

// beginsIBAN reports whether the group of four characters at offset a can begin an IBAN. No other number begins with
// such a group. beginsIBAN returns false if the preceding group also looks like the beginning of an IBAN. Otherwise, a
// list of such groups would be slow to search.
func (s *search) beginsIBAN(a int) bool {
	begins := func(t []byte) bool {
		var country [2]byte
		return lengthOfIBAN(appendUpper(country[:0], t[:2])) > 0 && digit(t[2]) && digit(t[3])
	}
	return begins(s.text[a:]) && !(a >= 5 && begins(s.text[a-5:]) && separator(s.text[a-1]))
}

// followed reports whether the number before an offset continues with a separator and another digit.
func followed(text []byte, end int) bool {
	return end < len(text) && text[end] == '_' || end+1 < len(text) &&
		(text[end] == '-' || text[end] == '.' || text[end] == '/') && digit(text[end+1])
}

// accepts reports whether text[a:end] is a number of the given form. The compact form of the number is in s.compact.
func (s *search) accepts(f *form, a, end int) bool {
	compact := s.compact[:len(f.chars)]
	if f.category == IBAN && lengthOfIBAN(compact) != len(compact) || !f.fits(compact) {
		return false
	}
	ok := f.ok(compact)
	if ok && (s.near(a, end, f.labels) || f.category == NationalID && s.near(a, end, anyID)) {
		return true
	}
	if f.mark == 0 || f.mark == '^' && !isUpper(s.text[a:end]) {
		return false
	}
	if !ok || f.sep == ' ' && s.inList(a, end) {
		s.failed[f.index] = [2]int{end, s.failed[f.index][0]}
		return false
	}
	if f.sep == 0 && (allDigits(compact) && isTime(compact) || s.amongNumbers(f, a, end)) {
		return false
	}
	return !s.isOther(f, a, end) && !s.inColumn(f, a)
}

// fits reports whether the letters and digits of a number without separators are where the form requires them.
func (f *form) fits(compact []byte) bool {
	for i, c := range compact {
		if f.chars[i] == '9' && !digit(c) || f.chars[i] == 'A' && digit(c) {
			return false
		}
	}
	return true
}

// A crowd is a group of similar numbers in the same part of a text.
const (
	around = 320 // maximum distance, in bytes, between a number and its crowd
	crowd  = 2   // minimum number of other numbers in a crowd
)

// inColumn reports whether the last numbers of the same form before offset a were rejected, for example for wrong check
// digits. In a column of numbers that are not personal data, some check digits are right by chance.
func (s *search) inColumn(f *form, a int) bool {
	at := s.failed[f.index][crowd-1]
	return at > 0 && at >= a-around
}

// amongNumbers reports whether a number without separators is surrounded by numbers of similar length that are not
// personal data. In a log or a table, some check digits are right by chance.
func (s *search) amongNumbers(f *form, a, end int) bool {
	similar := func(t token) bool {
		n := t.end - t.start
		return n >= len(f.chars)-4 && n <= len(f.chars)+4 && s.isLong(t)
	}
	others := 0
	for _, t := range s.others {
		if t.end > 0 && t.end <= a && t.end >= a-around && similar(t) {
			others++
		}
	}
	limit, i := min(len(s.text), end+around), end
	for seen := 0; i < limit && seen < crowd && others < crowd; i++ {
		t := token{start: i}
		for i < limit && alnum(s.text[i]) {
			i++
		}
		if t.end = i; !similar(t) {
			continue
		}
		var compact [maxCompact]byte
		if seen++; i-t.start != len(f.chars) || !f.fits(s.text[t.start:i]) || !f.ok(appendUpper(compact[:0], s.text[t.start:i])) {
			others++
		}
	}
	s.work += i - end
	return others >= crowd
}

// isLong reports whether a token has at least seven characters and five digits.
func (s *search) isLong(t token) bool {
	if t.end-t.start < 7 || t.end-t.start > maxCompact {
		return false
	}
	digits := 0
	for _, c := range s.text[t.start:t.end] {
		if digit(c) {
			digits++
		}
	}
	return digits >= 5
}

func appendUpper(dst, text []byte) []byte {
	for _, c := range text {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// isUpper reports whether a text contains no lower-case letter.
func isUpper(text []byte) bool {
	for _, c := range text {
		if 'a' <= c && c <= 'z' {
			return false
		}
	}
	return true
}

// inList reports whether a number with spaces is part of a list of short numbers with spaces.
func (s *search) inList(a, end int) bool {
	const longest = 6
	text := s.text
	if a > 1 && text[a-1] == ' ' && digit(text[a-2]) {
		b := a - 2
		for b > 0 && digit(text[b-1]) && a-b <= longest+1 {
			b--
		}
		if a-b <= longest+1 && (b == 0 || !alnum(text[b-1]) && text[b-1] != '-') {
			return true
		}
	}
	if end+1 < len(text) && text[end] == ' ' && digit(text[end+1]) {
		b := end + 2
		for b < len(text) && digit(text[b]) && b-end <= longest+1 {
			b++
		}
		return b-end <= longest+1 && (b == len(text) || !alnum(text[b]) && text[b] != '-')
	}
	return false
}

// isOther reports whether the label of a number names another kind of number, such as an order number. The label is the
// word directly in front of the number, or the name of the JSON member if the number is its whole value. The label "id"
// is ignored before a number with separators.
func (s *search) isOther(f *form, a, end int) bool {
	kind := unknown
	if a == 0 && end == len(s.text) {
		kind = s.keyLabel()
	} else {
		kind = s.labelBefore(s.text, a)
	}
	return kind == another || kind == anID && f.sep == 0
}

// keyLabel returns the label kind of the last word in the name of the JSON member.
func (s *search) keyLabel() direct {
	if !s.keyRead {
		s.keyRead, s.keyKind = true, s.labelBefore(s.key, len(s.key))
	}
	return s.keyKind
}

var passportLabels = newLabels("passport, reisepass, pasaporte, passaporto, passeport, " +
	"paspoort, paszport, passaporte, travel document")

// isPassport reports whether text[a:b] may be a passport number. A word such as "passport" must be nearby, because
// passport numbers have no check digit.
func (s *search) isPassport(a, b int) bool {
	if b-a < 6 || b-a > 10 {
		return false
	}
	digits := 0
	for _, c := range s.text[a:b] {
		if digit(c) {
			digits++
		}
	}
	return digits >= 4 && b-a-digits <= 4 && (b-a > 6 || digits < 6) && (a == 0 || s.text[a-1] != '.') &&
		s.near(a, b, passportLabels) &&
		!(digits == b-a && isTime(s.text[a:b]))
}

var walletLabels = newLabels("wallet, crypto, solana, monero, ethereum, bitcoin, btc, eth, sol, xmr, ltc")

// inBase64 reports whether the word before text[end] continues with a character of base64.
func inBase64(text []byte, end int) bool {
	return end < len(text) &&
		(text[end] == '+' || text[end] == '=' || text[end] == '/' && end+1 < len(text) && alnum(text[end+1]))
}

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
	return upper && low && s.near(a, b, walletLabels)
}
