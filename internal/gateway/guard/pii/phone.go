package pii

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
)

//go:generate go test -run TestPhonesAreCurrent -update

//go:embed phones.json.gz
var packedPhones []byte

// region describes the phone numbers of a country or a part of a country.
type region struct {
	ID        string `json:"id"`
	Code      int    `json:"code"`
	Prefix    string `json:"prefix,omitzero"`
	Transform string `json:"transform,omitzero"`
	Leading   string `json:"leading,omitzero"`
	Lengths   []int  `json:"lengths"`
	Number    string `json:"number"`

	once           sync.Once
	prefix, number *regexp.Regexp
}

// directory contains all regions, by calling code and by name.
type directory struct {
	codes map[int][]*region
	names map[string]*region
}

var phones = sync.OnceValue(func() *directory {
	z, err := gzip.NewReader(bytes.NewReader(packedPhones))
	if err != nil {
		panic(fmt.Sprintf("phones: %v", err))
	}
	var all struct {
		Regions []*region `json:"regions"`
	}
	if err := json.UnmarshalRead(z, &all); err != nil {
		panic(fmt.Sprintf("phones: %v", err))
	}
	d := &directory{map[int][]*region{}, map[string]*region{}}
	for _, r := range all.Regions {
		d.codes[r.Code] = append(d.codes[r.Code], r)
		d.names[r.ID] = r
	}
	return d
})

func (r *region) compile() {
	r.once.Do(func() {
		r.number = regexp.MustCompile(`\A(?:` + r.Number + `)\z`)
		if r.Prefix != "" {
			r.prefix = regexp.MustCompile(`\A(?:` + r.Prefix + `)`)
		}
	})
}

// valid reports whether a national number is valid in the region. The number must not include the trunk prefix.
func (r *region) valid(national string) bool {
	if !slices.Contains(r.Lengths, len(national)) || r.Number == "" {
		return false
	}
	r.compile()
	return r.number.MatchString(national)
}

// accepts reports whether the digits are a valid phone number, as dialed inside the country. They can include a trunk
// prefix.
func (r *region) accepts(digits string) bool {
	if r.valid(digits) {
		return true
	}
	r.compile()
	if r.prefix == nil {
		return false
	}
	loc := r.prefix.FindStringSubmatchIndex(digits)
	if loc == nil || loc[1] == 0 {
		return false
	}
	if r.Transform != "" && len(loc) > 2 && loc[len(loc)-1] > loc[len(loc)-2] {
		out := r.prefix.ExpandString(nil, braces(r.Transform), digits, loc)
		return r.valid(string(out) + digits[loc[1]:])
	}
	return r.valid(digits[loc[1]:])
}

// braces adds braces to the group numbers in a template: $1 becomes ${1}. Without braces, a digit after $1 would become
// part of the group number.
func braces(template string) string {
	var b []byte
	for i := 0; i < len(template); i++ {
		if template[i] == '$' && i+1 < len(template) && digit(template[i+1]) {
			b = append(b, '$', '{', template[i+1], '}')
			i++
			continue
		}
		b = append(b, template[i])
	}
	return string(b)
}

// international reports whether digits can be an international phone number. They must begin with a country code, and
// the rest must have the length of a number in that country.
func international(digits string) bool {
	d := phones()
	for n := 1; n <= 3 && n < len(digits); n++ {
		code, err := strconv.Atoi(digits[:n])
		if err != nil || digits[0] == '0' {
			return false
		}
		for _, r := range d.codes[code] {
			// The number does not have to be assigned. A trunk prefix can follow the country code, as in +44 (0) 20.
			if slices.Contains(r.Lengths, len(digits)-n) || digits[n] == '0' && slices.Contains(r.Lengths, len(digits)-n-1) {
				return true
			}
		}
	}
	return false
}

var phoneWords = newWords("phone, telephone, telefon, telefono, téléphone, tel, mobile, mobil, cell, " +
	"cellphone, call, fax, sms, whatsapp, handy, contact, reach, dial, text me, ring, " +
	"celular, telefone, ph, voicemail, answering, message, us number, uk number, cn number, israeli number, " +
	"chinese number, international number")

// phoneLabels contains words that indicate a phone number only if they come after the number. For example, "office"
// before a number can belong to a postal address.
var phoneLabels = newWords("office")

// findPhone looks for a phone number whose digits begin at offset a. A plus sign or a parenthesis before the digits is
// part of the number. The result is the end of the number, or 0 if there is none.
func (s *search) findPhone(a int) int {
	text := s.text
	start, hasPlus := a, false
	if start > s.done && text[start-1] == '(' {
		start--
	}
	if start > s.done && text[start-1] == '+' {
		start, hasPlus = start-1, true
	}
	if start > 0 && !hasPlus && (digit(text[start-1]) || 'A' <= text[start-1] && text[start-1] <= 'Z' ||
		text[start-1] == '.' || text[start-1] == '-' || text[start-1] == '/' || text[start-1] == '$' ||
		text[start-1] == '=' || text[start-1] == '%') {
		return 0
	}
	var digits [16]byte
	var ends [16]int // the offset after each digit that ends a group; 0 for all other digits
	n, groups, gaps, hasSlash := 0, 0, 0, false
	at := a
	for at < len(text) && n < len(digits) {
		c := text[at]
		if digit(c) {
			digits[n] = c
			if gaps > 0 || n == 0 {
				groups++
			}
			gaps = 0
			n++
			at++
			if at == len(text) || !digit(text[at]) {
				ends[n-1] = at
			}
			continue
		}
		if c != ' ' && c != '-' && c != '.' && c != '(' && c != ')' && c != '/' && c != 0xa0 || gaps == 3 {
			break
		}
		hasSlash = hasSlash || c == '/'
		gaps++
		at++
	}
	if at < len(text) && letter(text[at]) && gaps == 0 && text[at] != 'x' && text[at] != 'e' {
		return 0
	}
	if n == len(digits) && at < len(text) && digit(text[at]) {
		return 0
	}
	for size := n; size >= 7; size-- {
		end := ends[size-1]
		if end == 0 || end < len(text) && (text[end] == '-' || text[end] == '.') && end+1 < len(text) &&
			digit(text[end+1]) && !hasPlus {
			continue
		}
		if s.isPhone(string(digits[:size]), start, end, hasPlus, hasSlash) {
			return s.found(Phone, start, end)
		}
	}
	return 0
}

// isPhone reports whether text[start:end] is a phone number. The first argument is the number without separators.
// hasPlus is set if a plus sign precedes the digits, and hasSlash if a slash separates them.
func (s *search) isPhone(digits string, start, end int, hasPlus, hasSlash bool) bool {
	if hasPlus {
		return international(digits)
	}
	if allSame([]byte(digits)) {
		return false
	}
	written := s.text[start:end]
	grouped := len(written) > len(digits)
	if grouped && digits[0] == '0' && digits[1] == '0' && international(digits[2:]) {
		return true
	}
	d := phones()
	if grouped && !hasSlash && isAmerican(written) && (d.names["US"].accepts(digits) || d.names["CA"].accepts(digits)) {
		return true
	}
	// In most countries, a phone number begins with a zero and is written in groups.
	typical := grouped && !hasSlash && digits[0] == '0' &&
		(len(digits) >= 10 && bytes.IndexByte(written, '.') < 0 || hasAreaCode(written))
	if !typical && !s.wordNear(start, end, phoneWords) && !s.wordAfter(end, phoneLabels) {
		return false
	}
	if len(digits) > 10 && international(digits) {
		return true
	}
	for _, r := range d.names {
		if r.accepts(digits) {
			return true
		}
	}
	return false
}

// hasAreaCode reports whether a number is written as 0x-xxxxxxx: an area code and a subscriber number.
func hasAreaCode(written []byte) bool { return len(written) == 10 && written[2] == '-' }

// isAmerican reports whether digits are grouped 3-3-4, 1-3-3-4 or 3-7, with any separators.
func isAmerican(written []byte) bool {
	var sizes []int
	n := 0
	for i := 0; i <= len(written); i++ {
		if i < len(written) && digit(written[i]) {
			n++
		} else if n > 0 {
			sizes = append(sizes, n)
			n = 0
		}
	}
	if len(sizes) == 4 && sizes[0] == 1 {
		sizes = sizes[1:]
	}
	return len(sizes) == 3 && sizes[0] == 3 && sizes[1] == 3 && sizes[2] == 4 || len(sizes) == 2 && sizes[0] == 3 &&
		sizes[1] == 7
}
