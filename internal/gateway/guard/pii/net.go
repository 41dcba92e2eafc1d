package pii

import (
	"bytes"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

func hexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// dotted is the end of the IPv4 address that begins at a, or 0.
func dotted(text []byte, a int) int {
	if a > 0 && (text[a-1] == '.' || text[a-1] == '-' && a > 1 && alnum(text[a-2])) {
		return 0
	}
	at := a
	for part := range 4 {
		if part > 0 {
			if at == len(text) || text[at] != '.' {
				return 0
			}
			at++
		}
		n, digits := 0, 0
		for at < len(text) && digit(text[at]) && digits < 4 {
			n = n*10 + int(text[at]-'0')
			digits++
			at++
		}
		if digits == 0 || n > 255 || digits > 3 {
			return 0
		}
	}
	if at < len(text) && alnum(text[at]) || at+1 < len(text) && text[at] == '.' && digit(text[at+1]) {
		return 0
	}
	return at
}

// colon checks the text around a colon for an IPv6 or a MAC address.
func (s *search) colon(i int) int {
	text := s.text
	// Another colon must be near, or there is nothing to it.
	j := i + 1
	for j < len(text) && j < i+6 && hexDigit(text[j]) {
		j++
	}
	if j >= len(text) || text[j] != ':' {
		return 0
	}
	if s.ip && j == i+1 && s.unspecified(i) {
		return s.found(IPAddress, i, i+2)
	}
	a, b := i, i+1
	for a > s.done && (hexDigit(text[a-1]) || text[a-1] == ':') && i-a < 46 {
		a--
	}
	for b < len(text) && (hexDigit(text[b]) || text[b] == ':' || text[b] == '.') && b-i < 46 {
		b++
	}
	if a > 0 && alnum(text[a-1]) || b < len(text) && alnum(text[b]) {
		return 0
	}
	for b > a && text[b-1] == '.' {
		b--
	}
	if s.mac && b-a == 17 && pairs(text[a:b], ':') {
		return s.found(MACAddress, a, b)
	}
	if !s.ip || b-a < 3 {
		return 0
	}
	if b-a > 2 && text[b-1] == ':' && text[b-2] != ':' {
		b--
	}
	if addr, err := netip.ParseAddr(string(text[a:b])); err == nil && addr.Is6() && !addr.IsUnspecified() && (bytes.ContainsAny(text[a:b], "0123456789") || bytes.Count(text[a:b], []byte(":")) > 2) {
		return s.found(IPAddress, a, b)
	}
	return 0
}

var ipWords = newWords("ip", "ipv6", "address", "src", "dst", "source", "destination", "unspecified", "listen", "bind")

// unspecified reports whether the two colons at i are the address of no machine
// in particular: with a prefix length, or beside a word. Programs are full of
// them otherwise.
func (s *search) unspecified(i int) bool {
	text, b := s.text, i+2
	if i > 0 && text[i-1] != ' ' && text[i-1] != '=' && text[i-1] != '[' {
		return false
	}
	if b+1 < len(text) && text[b] == '/' && digit(text[b+1]) {
		return true
	}
	return (b == len(text) || text[b] == ' ' || text[b] == ']' || text[b] == ',') && s.near(i, b, ipWords)
}

// pairs reports whether text is six pairs of hex digits.
func pairs(text []byte, sep byte) bool {
	for i, c := range text {
		if i%3 == 2 && c != sep || i%3 != 2 && !hexDigit(c) {
			return false
		}
	}
	return !bytes.Equal(text, bytes.Repeat([]byte{text[0], text[0], sep}, 6)[:17])
}

// dashed finds the MAC address of which a pair or a quad begins at a.
func (s *search) dashed(a int) (start, end int) {
	text := s.text
	for a-3 >= s.done && text[a-1] == '-' && hexDigit(text[a-2]) && hexDigit(text[a-3]) {
		a -= 3
	}
	free := func(from, to int) bool {
		return to <= len(text) && (from == 0 || !alnum(text[from-1]) && text[from-1] != '-') && (to == len(text) || !alnum(text[to]) && text[to] != '-')
	}
	if free(a, a+17) && pairs(text[a:a+17], '-') {
		return a, a + 17
	}
	if free(a, a+14) && quads(text[a:a+14]) {
		return a, a + 14
	}
	return 0, 0
}

// quads reports whether text is three quads of hex digits, as Cisco writes.
func quads(text []byte) bool {
	letters := 0
	for i, c := range text {
		if i%5 == 4 && c != '.' || i%5 != 4 && !hexDigit(c) {
			return false
		}
		if letter(c) {
			letters++
		}
	}
	return letters > 0
}

var (
	local = tableOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.!#$'*+-^_`{|}~%")
	host  = tableOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-")
)

func tableOf(s string) *[256]bool {
	var t [256]bool
	for i := range len(s) {
		t[s[i]] = true
	}
	return &t
}

var emailWords = newWords("email", "e mail", "mail", "correo")

// at looks for an address around an @.
func (s *search) at(i int) int {
	if !s.email {
		return 0
	}
	text := s.text
	a, b := i, i+1
	for a > 0 && i-a < 64 && (local[text[a-1]] || text[a-1] >= 0x80) {
		a--
	}
	for a < i && bytes.IndexByte([]byte(".'`*/={|&!#?"), text[a]) >= 0 {
		a++
	}
	for b < len(text) && b-i < 254 && (host[text[b]] || text[b] >= 0x80) {
		b++
	}
	for b > i && (text[b-1] == '.' || text[b-1] == '-') {
		b--
	}
	if a == i || text[i-1] == '.' || b-i < 4 {
		return 0
	}
	domain := strings.ToLower(string(text[i+1 : b]))
	dot := strings.LastIndexByte(domain, '.')
	if dot <= 0 || strings.Contains(domain, "..") || len(domain)-dot < 3 || allDigits([]byte(domain[dot+1:])) {
		return 0
	}
	if _, icann := publicsuffix.PublicSuffix(domain); !icann && !s.near(a, b, emailWords) && !reserved[domain[dot+1:]] {
		return 0
	}
	return s.found(Email, a, b)
}

// reserved are the endings of RFC 2606 and of private networks: no registry has
// them, and people use them.
var reserved = map[string]bool{"test": true, "example": true, "invalid": true, "localhost": true, "local": true, "internal": true, "corp": true, "lan": true, "home": true}
