// Package pii finds personal data in text: numbers that identify a person, and addresses that lead to a person.
//
// A pattern alone is weak evidence and never enough. Most numbers have a check digit, and others have a distinctive
// form. Any other number is accepted only near a label for its category, such as "passport". The finder looks for
// the label in the text around the number and in the name of the JSON member. In the arguments of a tool, the name of
// the member is the best evidence. The tables ids, cards and ibans have a row for each kind of number.
//
// Almost all personal data contains a digit. The rest contains an @ sign, a colon, a dash or a dot. The finder jumps
// from one such byte to the next. At a digit, the finder follows the groups of letters and digits through a tree of all
// forms, and stops when no form fits. Each byte is searched for labels at most twice. No text therefore takes much
// longer than another text of the same size.
//
// Package view first resolves look-alikes and invisible characters. Spans are offsets in the original text.
package pii

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// The categories of personal data.
const (
	CreditCard  = "credit_card"
	Email       = "email"
	Phone       = "phone"
	IBAN        = "iban"
	NationalID  = "national_id"
	IPAddress   = "ip_address"
	MACAddress  = "mac_address"
	Passport    = "passport"
	DateOfBirth = "date_of_birth"
	Wallet      = "crypto_wallet"
)

// Categories lists all categories.
var Categories = []string{
	CreditCard, Email, Phone, IBAN, NationalID, IPAddress, MACAddress, Passport,
	DateOfBirth, Wallet,
}

// Span is the position of personal data in a text.
type Span struct {
	Category   string
	Start, End int
}

// Finder finds personal data of the selected categories.
type Finder struct {
	card, email, phone, iban, national, ip, mac, passport, birth, wallet bool

	numbers numbers
	scratch sync.Pool
}

// New returns a finder for the given categories.
func New(categories []string) (*Finder, error) {
	f := &Finder{}
	for _, c := range categories {
		flag := map[string]*bool{
			CreditCard: &f.card, Email: &f.email, Phone: &f.phone, IBAN: &f.iban, NationalID: &f.national, IPAddress: &f.ip,
			MACAddress: &f.mac, Passport: &f.passport, DateOfBirth: &f.birth, Wallet: &f.wallet,
		}[c]
		if flag == nil {
			return nil, fmt.Errorf("%q is not a category of personal data; the categories are %s", c,
				strings.Join(Categories, ", "))
		}
		*flag = true
	}
	for _, t := range []struct {
		on       bool
		category string
		rows     []id
	}{{f.card, CreditCard, cards}, {f.iban, IBAN, ibans}, {f.national, NationalID, ids}} {
		if t.on {
			f.numbers.add(t.category, t.rows)
		}
	}
	f.scratch.New = func() any { return f.newSearch() }
	return f, nil
}

// search holds the state of a search through one text.
type search struct {
	*Finder
	text []byte
	key  []byte // the end of the name of the JSON member that contains the text
	done int    // the end of the last span that was found
	work int    // the number of bytes that were read so far, for tests
	out  []Span
	view view.View

	compact [maxCompact + 1]byte
	path    [maxGroups]step // used by identify
	failed  [][2]int        // for each form, the ends of the last two numbers whose check digit is wrong
	others  [crowd]token    // the last long numbers that are not personal data
	turn    int             // the number of tokens that were stored in others so far
	colons  int             // no colon before this offset is part of an address

	keyView view.View
	keyRead bool // keyRead is set once keyKind has been determined
	keyKind direct

	labeled   bool     // labeled is set once the fields below are valid
	read      int      // the end of the text that was searched for labels
	paragraph int      // the start of the paragraph that contains read
	last      []int    // for each set, the end of its last label before read
	keyed     []bool   // for each set, whether the key contains a label
	start     int      // the start of the number for which anyNear was called last
	next      int      // the offset for which following was computed
	following []labels // the labels directly after offset s.next
}

func (f *Finder) newSearch() *search {
	return &search{Finder: f, failed: make([][2]int, f.numbers.size), last: make([]int, len(sets)), keyed: make([]bool, len(sets))}
}

// Find appends the personal data in text to dst, in order and without overlaps. The key is the name of the JSON
// member that contains the text, or empty if there is no member.
func (f *Finder) Find(text, key []byte, dst []Span) []Span {
	if first := nextSignal(text, 0); first == len(text) && view.ASCII(text) {
		return dst
	}
	s := f.scratch.Get().(*search)
	defer f.scratch.Put(s)
	return s.find(text, key, dst)
}

func (s *search) find(text, key []byte, dst []Span) []Span {
	mapped := !view.ASCII(text) && s.view.Normal(text)
	from := len(dst)
	s.text, s.key, s.done, s.out = text, key[max(0, len(key)-maxKey):], 0, dst
	s.work, s.colons, s.keyRead, s.labeled, s.next = 0, 0, false, false, -1
	clear(s.failed)
	clear(s.others[:])
	if mapped {
		s.text = s.view.Text
	}
	s.walk()
	dst, s.text, s.out, s.key = s.out, nil, nil, nil
	slices.SortFunc(dst[from:], func(a, b Span) int { return a.Start - b.Start })
	if mapped {
		for i := range dst[from:] {
			d := &dst[from+i]
			d.Start, d.End = s.view.Range(d.Start, d.End)
		}
	}
	return dst
}

// The kinds of bytes at which the finder looks for personal data.
const (
	nothing = iota
	aDigit
	aColon
	anAt
	aDash
	aDot
)

var signs = func() (t [256]uint8) {
	for c := '0'; c <= '9'; c++ {
		t[c] = aDigit
	}
	t[':'], t['@'], t['-'], t['.'] = aColon, anAt, aDash, aDot
	return t
}()

// nextSignal searches text from offset i for a byte that can indicate personal data. It returns the offset of this
// byte, or len(text) if there is none.
func nextSignal(text []byte, i int) int {
	for i+4 <= len(text) {
		if signs[text[i]]|signs[text[i+1]]|signs[text[i+2]]|signs[text[i+3]] != 0 {
			break
		}
		i += 4
	}
	for i < len(text) && signs[text[i]] == nothing {
		i++
	}
	return i
}

func (s *search) walk() {
	for i := nextSignal(s.text, 0); i < len(s.text); i = nextSignal(s.text, i) {
		end := 0
		switch signs[s.text[i]] {
		case aDigit:
			end = s.numberAt(i)
		case aColon:
			end = s.addressAtColon(i)
		case anAt:
			end = s.emailAt(i)
		case aDot:
			// A MAC address can also be written as aabb.ccdd.eeff.
			if s.mac && i-4 >= s.done && i+9 < len(s.text) && s.text[i+5] == '.' && hexDigit(s.text[i+1]) &&
				hexDigit(s.text[i-1]) {
				if start, to := s.macAt(i - 4); to > 0 {
					end = s.found(MACAddress, start, to)
				}
			}
		case aDash:
			// A MAC address with dashes need not contain a digit.
			if s.mac && i-2 >= s.done && i+14 < len(s.text) && s.text[i+3] == '-' && hexDigit(s.text[i+1]) &&
				hexDigit(s.text[i-1]) {
				if start, to := s.macAt(i - 2); to > 0 {
					end = s.found(MACAddress, start, to)
				}
			}
		}
		i = max(i+1, end)
	}
}

// found appends a span to s.out and returns the end of the span.
func (s *search) found(category string, start, end int) int {
	// Drop earlier spans inside the new span, such as a number in the local part of an email address.
	for len(s.out) > 0 && s.done > start && s.out[len(s.out)-1].End > start && s.out[len(s.out)-1].Start >= start {
		s.out = s.out[:len(s.out)-1]
	}
	// If the new span overlaps the previous span, as in a@b.org@c.org, shorten the new span.
	if n := len(s.out); n > 0 && s.done > start {
		start = max(start, s.out[n-1].End)
	}
	s.out = append(s.out, Span{category, start, end})
	s.done = end
	return end
}

func alnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
