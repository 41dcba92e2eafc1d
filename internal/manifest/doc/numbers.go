package doc

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// This file parses JSON numbers. It also reports JSON and TOML numbers that some parsers do not represent exactly.

// number parses a number. Numbers that are invalid or inexact are reported. The result is an index in Tree.decoded,
// or 0 if the text is a span of the source.
func (p *jsonParser) number() (text int32) {
	start := p.pos
	i := start
	for i < len(p.src) && '0' <= p.src[i] && p.src[i] <= '9' {
		i++
	}
	short := i-start <= 15 && (i-start == 1 || i > start && p.src[start] != '0')
	if short && i < len(p.src) && !isNumberByte(p.src[i]) {
		p.pos = i
		return 0 // most numbers have few digits and are exact
	}
	for i < len(p.src) && isNumberByte(p.src[i]) {
		i++
	}
	p.pos = i
	lexeme := p.src[start:i]
	at := diag.Place{Start: start, End: i}
	if !json.Valid([]byte(lexeme)) {
		p.r.Report(diag.BadJSON, at, "", "%s is not a JSON number", diag.Quote(lexeme))
		return p.t.addDecoded("0")
	}
	reportInexact(p.r, at, lexeme)
	return 0
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == '-' || c == '+' ||
		c == '_'
}

const maxExact = 1 << 53

// reportInexact reports a number that a double cannot represent exactly, such as 1.0000000000000001 or 1e-400.
func reportInexact(r *diag.Reporter, at diag.Place, lexeme string) {
	if len(lexeme) <= 15 && !strings.ContainsAny(lexeme, "eE") {
		return
	}
	digits := func(s string) string {
		s, _, _ = strings.Cut(strings.ToLower(strings.TrimPrefix(s, "-")), "e")
		return strings.Replace(s, ".", "", 1)
	}
	f, err := strconv.ParseFloat(lexeme, 64)
	written, kept := digits(lexeme), digits(strconv.FormatFloat(f, 'e', -1, 64))
	if err != nil || math.Abs(f) > maxExact || len(written) > 17 || strings.Trim(written, "0") != strings.Trim(kept, "0") {
		r.Report(diag.InexactNumber, at, "", "not every JSON parser represents %s exactly", diag.Quote(lexeme))
	}
}
