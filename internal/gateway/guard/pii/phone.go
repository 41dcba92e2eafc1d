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

//go:generate go run -C .. ./gen

//go:embed phones.json.gz
var packedPhones []byte

// region is a country, or part of one, and its numbers.
type region struct {
	ID        string `json:"id"`
	Code      int    `json:"code"`
	Prefix    string `json:"prefix"`
	Transform string `json:"transform"`
	Leading   string `json:"leading"`
	Lengths   []int  `json:"lengths"`
	Number    string `json:"number"`

	once           sync.Once
	prefix, number *regexp.Regexp
}

// directory is every region, by calling code and by name.
type directory struct {
	codes map[int][]*region
	names map[string]*region
}

// phones is read when the first number is looked up.
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

// valid reports whether a national number, without its prefix, is one here.
func (r *region) valid(national string) bool {
	if !slices.Contains(r.Lengths, len(national)) || r.Number == "" {
		return false
	}
	r.compile()
	return r.number.MatchString(national)
}

// dialled reports whether digits, as dialled inside the country, are a number.
func (r *region) dialled(digits string) bool {
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

// braces makes $1 safe to be followed by digits.
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

// international reports whether digits that follow a plus can be a number: a
// country's code, and as many as that country has.
func international(digits string) bool {
	d := phones()
	for n := 1; n <= 3 && n < len(digits); n++ {
		code, err := strconv.Atoi(digits[:n])
		if err != nil || digits[0] == '0' {
			return false
		}
		for _, r := range d.codes[code] {
			// An unassigned number counts too. Some people write the trunk prefix after the
			// country code: +44 (0) 20.
			if slices.Contains(r.Lengths, len(digits)-n) || digits[n] == '0' && slices.Contains(r.Lengths, len(digits)-n-1) {
				return true
			}
		}
	}
	return false
}

var phoneWords = newWords("phone", "telephone", "telefon", "telefono", "téléphone", "tel", "mobile", "mobil", "cell", "cellphone", "call", "fax", "sms", "whatsapp", "handy", "contact", "reach", "dial", "text me", "ring", "celular", "telefone", "ph", "voicemail", "answering", "message", "us number", "uk number", "cn number", "israeli number", "chinese number", "international number")

// phoneLabels count only after a number: before one, an office has an address.
var phoneLabels = newWords("office")

// dial searches for a phone number that begins with the digits at a, including a plus or
// bracket before them.
func (s *search) dial(a int) int {
	text := s.text
	start, plus := a, false
	if start > s.done && text[start-1] == '(' {
		start--
	}
	if start > s.done && text[start-1] == '+' {
		start, plus = start-1, true
	}
	if start > 0 && !plus && (digit(text[start-1]) || 'A' <= text[start-1] && text[start-1] <= 'Z' || text[start-1] == '.' || text[start-1] == '-' || text[start-1] == '/' || text[start-1] == '$' || text[start-1] == '=' || text[start-1] == '%') {
		return 0
	}
	var digits [16]byte
	var ends [16]int // where each digit ends, if a group does there
	n, groups, gaps, sloped := 0, 0, 0, false
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
		sloped = sloped || c == '/'
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
		if end == 0 || end < len(text) && (text[end] == '-' || text[end] == '.') && end+1 < len(text) && digit(text[end+1]) && !plus {
			continue
		}
		if s.rings(string(digits[:size]), start, end, plus, sloped) {
			return s.found(Phone, start, end)
		}
	}
	return 0
}

// rings reports whether the digits at text[start:end] are a phone number.
func (s *search) rings(digits string, start, end int, plus, sloped bool) bool {
	if plus {
		return international(digits)
	}
	if same([]byte(digits)) {
		return false
	}
	written := s.text[start:end]
	grouped := len(written) > len(digits)
	if grouped && digits[0] == '0' && digits[1] == '0' && international(digits[2:]) {
		return true
	}
	d := phones()
	if grouped && !sloped && american(written) && (d.names["US"].dialled(digits) || d.names["CA"].dialled(digits)) {
		return true
	}
	// A zero first, and groups: how most of the world writes them.
	told := grouped && !sloped && digits[0] == '0' && (len(digits) >= 10 && bytes.IndexByte(written, '.') < 0 || trunk(written))
	if !told && !s.near(start, end, phoneWords) && !s.follows(end, phoneLabels) {
		return false
	}
	if len(digits) > 10 && international(digits) {
		return true
	}
	for _, r := range d.names {
		if r.dialled(digits) {
			return true
		}
	}
	return false
}

// trunk reports whether a number is written 0x-xxxxxxx, an area and a subscriber.
func trunk(written []byte) bool { return len(written) == 10 && written[2] == '-' }

// american reports whether a number is written 3-3-4, in whatever way.
func american(written []byte) bool {
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
	return len(sizes) == 3 && sizes[0] == 3 && sizes[1] == 3 && sizes[2] == 4 || len(sizes) == 2 && sizes[0] == 3 && sizes[1] == 7
}
