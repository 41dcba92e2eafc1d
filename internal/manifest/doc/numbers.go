package doc

import (
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// This file parses JSON numbers, and reports numbers of both syntaxes that not every
// parser represents exactly.

// number parses a number, and reports one that is not JSON or not exact.
func (p *jsonParser) number() (text int32) {
	start := p.pos
	i := start
	for i < len(p.src) && '0' <= p.src[i] && p.src[i] <= '9' {
		i++
	}
	short := i-start <= 15 && (i-start == 1 || i > start && p.src[start] != '0')
	if short && i < len(p.src) && !isNumberByte(p.src[i]) {
		p.pos = i
		return 0 // a few digits, as in most numbers
	}
	for i < len(p.src) && isNumberByte(p.src[i]) {
		i++
	}
	p.pos = i
	lexeme := p.src[start:i]
	at := diag.Place{Start: start, End: i}
	if !isJSONNumber(lexeme) {
		p.r.Report(diag.BadJSON, at, "", "%s is not a JSON number", diag.Quote(lexeme))
		return p.t.keep("0")
	}
	reportInexact(p.r, at, lexeme)
	return 0
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == '-' || c == '+' || c == '_'
}

// isJSONNumber reports whether s is a number by RFC 8259.
func isJSONNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	digits := func() int {
		n := 0
		for n < len(s) && '0' <= s[n] && s[n] <= '9' {
			n++
		}
		return n
	}
	n := digits()
	if n == 0 || n > 1 && s[0] == '0' {
		return false
	}
	s = s[n:]
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		if n = digits(); n == 0 {
			return false
		}
		s = s[n:]
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		if n = digits(); n == 0 {
			return false
		}
		s = s[n:]
	}
	return s == ""
}

const maxExact = 1 << 53

// changes reports whether converting to a double changes the value:
// 1.0000000000000001, 1e-400.
func changes(lexeme string, f float64) bool {
	shortest := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa := func(s string) string {
		s, _, _ = strings.Cut(strings.ToLower(strings.TrimPrefix(s, "-")), "e")
		return strings.Trim(strings.Replace(s, ".", "", 1), "0")
	}
	return mantissa(lexeme) != mantissa(shortest)
}

// reportInexact reports a number that does not survive conversion to a double.
func reportInexact(r *diag.Reporter, at diag.Place, lexeme string) {
	if len(lexeme) <= 15 && !strings.ContainsAny(lexeme, "eE") {
		return
	}
	if n, err := strconv.ParseInt(lexeme, 10, 64); err == nil && n <= maxExact && n >= -maxExact {
		return
	}
	f, err := strconv.ParseFloat(lexeme, 64)
	digits := 0
	for i := range len(lexeme) {
		if c := lexeme[i]; c == 'e' || c == 'E' {
			break
		} else if '0' <= c && c <= '9' {
			digits++
		}
	}
	if err != nil || f >= maxExact || f <= -maxExact || digits > 17 || changes(lexeme, f) {
		r.Report(diag.InexactNumber, at, "", "not every JSON parser represents %s exactly", diag.Quote(lexeme))
	}
}
