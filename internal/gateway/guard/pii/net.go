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

// ipv4End returns the end of the IPv4 address that begins at offset a, or 0 if there is none.
func ipv4End(text []byte, a int) int {
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

// addressAtColon looks for an IPv6 or MAC address around the colon at offset i. It returns the end of the address, or 0
// if there is none.
func (s *search) addressAtColon(i int) int {
	text := s.text
	// An address has another colon nearby.
	j := i + 1
	for j < len(text) && j < i+6 && hexDigit(text[j]) {
		j++
	}
	if j >= len(text) || text[j] != ':' {
		return 0
	}
	if s.ip && j == i+1 && s.isUnspecified(i) {
		return s.found(IPAddress, i, i+2)
	}
	if i < s.colons {
		return 0
	}
	a, b := i, i+1
	for a > s.done && (hexDigit(text[a-1]) || text[a-1] == ':') && i-a < 46 {
		a--
	}
	for b < len(text) && (hexDigit(text[b]) || text[b] == ':' || text[b] == '.') && b-i < 46 {
		b++
	}
	s.work += b - a
	s.colons = b
	if a > 0 && (alnum(text[a-1]) || text[a-1] == ':') || b < len(text) && alnum(text[b]) {
		return 0
	}
	for b > a && text[b-1] == '.' {
		b--
	}
	if s.mac && b-a == 17 && hasHexPairs(text[a:b], ':') {
		return s.found(MACAddress, a, b)
	}
	if !s.ip || b-a < 3 {
		return 0
	}
	if b-a > 2 && text[b-1] == ':' && text[b-2] != ':' {
		b--
	}
	if addr, err := netip.ParseAddr(string(text[a:b])); err == nil && addr.Is6() && !addr.IsUnspecified() &&
		(bytes.ContainsAny(text[a:b], "0123456789") || bytes.Count(text[a:b], []byte(":")) > 2) {
		return s.found(IPAddress, a, b)
	}
	return 0
}

var ipLabels = newLabels("ip, ipv6, address, src, dst, source, destination, unspecified, listen, bind")

// isUnspecified reports whether the two colons at offset i are the unspecified IPv6 address. Two colons are common in
// source code, so a prefix length must follow or a word such as "ip" must be nearby.
func (s *search) isUnspecified(i int) bool {
	text, b := s.text, i+2
	if i > 0 && text[i-1] != ' ' && text[i-1] != '=' && text[i-1] != '[' {
		return false
	}
	if b+1 < len(text) && text[b] == '/' && digit(text[b+1]) {
		return true
	}
	return (b == len(text) || text[b] == ' ' || text[b] == ']' || text[b] == ',') && s.near(i, b, ipLabels)
}

// hasHexPairs reports whether text consists of six pairs of hex digits, separated by sep. It returns false if all
// digits are equal.
func hasHexPairs(text []byte, sep byte) bool {
	for i, c := range text {
		if i%3 == 2 && c != sep || i%3 != 2 && !hexDigit(c) {
			return false
		}
	}
	return !bytes.Equal(text, bytes.Repeat([]byte{text[0], text[0], sep}, 6)[:17])
}

// macAt finds the MAC address around the hex digits at offset a. The address consists of pairs with dashes or of groups
// of four with dots. The second result is 0 if there is no address.
func (s *search) macAt(a int) (start, end int) {
	text := s.text
	for range 5 {
		if a-3 >= s.done && text[a-1] == '-' && hexDigit(text[a-2]) && hexDigit(text[a-3]) {
			a -= 3
		}
	}
	free := func(from, to int) bool {
		return to <= len(text) && (from == 0 || !alnum(text[from-1]) && text[from-1] != '-') &&
			(to == len(text) || !alnum(text[to]) && text[to] != '-')
	}
	if free(a, a+17) && hasHexPairs(text[a:a+17], '-') {
		return a, a + 17
	}
	if free(a, a+14) && hasHexQuads(text[a:a+14]) {
		return a, a + 14
	}
	return 0, 0
}

// hasHexQuads reports whether text consists of three groups of four hex digits, as Cisco writes MAC addresses. At least
// one digit must be a letter.
func hasHexQuads(text []byte) bool {
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

var emailLabels = newLabels("email, e mail, mail, correo")

// emailAt looks for an email address around the @ sign at offset i. It returns the end of the address, or 0 if there is
// none.
func (s *search) emailAt(i int) int {
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
	if _, icann := publicsuffix.PublicSuffix(domain); !icann && !s.near(a, b, emailLabels) &&
		!strings.Contains(reserved, " "+domain[dot+1:]+" ") {
		return 0
	}
	return s.found(Email, a, b)
}

// reserved contains the top-level domains that RFC 2606 reserves, and some that are common in private networks. They
// are not in the public suffix list, but people use them in addresses.
const reserved = " test example invalid localhost local internal corp lan home "
