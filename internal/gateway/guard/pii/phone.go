package pii

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:generate go test -run TestPhonesAreCurrent|TestGuideListsEveryRow -update

// phonesText has a line for each calling code: the code, and the lengths of the national numbers.
//
//go:embed phones.txt
var phonesText string

// phoneLengths contains the lengths of national numbers by calling code. Bit n is set for the length n.
var phoneLengths = func() (out [1000]uint32) {
	for line := range strings.Lines(phonesText) {
		fields := strings.Fields(line)
		code, err := strconv.Atoi(fields[0])
		for _, f := range fields[1:] {
			n, _ := strconv.Atoi(f)
			out[code] |= 1 << n
		}
		if err != nil {
			panic("phones.txt: " + line)
		}
	}
	return out
}()

// regionNames lists the words that name a country, with the calling code of the country. Within these countries, people
// write phone numbers with a leading zero or in a common form.
var regionNames = []struct {
	code  int
	words string
}{
	{1, "us usa american canadian international"},
	{27, "african"},
	{30, "greece greek"},
	{31, "netherlands dutch nederland"},
	{32, "belgium belgian belgien belgie"},
	{33, "france french frankreich francais"},
	{34, "spain spanish espana"},
	{36, "hungary hungarian"},
	{39, "italy italian italia"},
	{40, "romania romanian"},
	{41, "switzerland swiss schweiz suisse"},
	{43, "austria austrian osterreich"},
	{44, "uk british britain england"},
	{45, "denmark danish danmark"},
	{46, "sweden swedish sverige"},
	{47, "norway norwegian norge"},
	{48, "poland polish polska"},
	{49, "germany german deutschland deutsche"},
	{55, "brazil brazilian brasil"},
	{61, "australia australian"},
	{62, "indonesia indonesian"},
	{63, "philippines philippine filipino"},
	{64, "zealand"},
	{81, "japan japanese jp"},
	{82, "korea korean"},
	{86, "china chinese cn"},
	{90, "turkey turkish turkiye"},
	{91, "india indian"},
	{234, "nigeria nigerian"},
	{351, "portugal portuguese"},
	{353, "ireland irish"},
	{358, "finland finnish suomi"},
	{380, "ukraine ukrainian"},
	{972, "israel israeli"},
}

// regionLabels contains the label sets of the names in regionNames.
var regionLabels = func() (out []labels) {
	for _, r := range regionNames {
		out = append(out, newLabels(strings.ReplaceAll(r.words, " ", ", ")))
	}
	return out
}()

// international reports whether digits can be an international phone number: a country code, followed by as many digits
// as a number in that country has. It does not check that the number is assigned.
func international(digits []byte) bool {
	for n := 1; n <= 3 && n < len(digits) && digits[0] != '0'; n++ {
		lengths := phoneLengths[number(digits[:n])]
		// A trunk prefix can follow the country code, as in +44 (0) 20.
		if lengths>>(len(digits)-n)&1 == 1 || digits[n] == '0' && lengths>>(len(digits)-n-1)&1 == 1 {
			return true
		}
	}
	return false
}

// dialed is a text that can be a phone number.
type dialed struct {
	digits [16]byte
	ends   [16]int // the offset after each digit that ends a group; 0 for all other digits
	n      int
}

// phoneAt looks for a phone number whose digits begin at offset a. A plus sign or a parenthesis before the digits is
// part of the number. The result is the end of the number, or 0 if there is none.
//
// Digits alone are never a phone number. There must also be evidence: a plus sign or 00 with a country code, the form
// of a number in North America, a label directly before or after the number, a request such as "call me at", or a
// leading zero and the name of a country nearby.
func (s *search) phoneAt(a int) int {
	text := s.text
	start := a
	if start > s.done && text[start-1] == '(' {
		start--
	}
	plus := start > s.done && text[start-1] == '+'
	if plus {
		start--
	}
	before := byte(' ')
	if start > 0 {
		before = text[start-1]
	}
	if plus && (wordByte(before) || before == '.' || before == '+' || before == ')' || before == ']') {
		return 0 // a plus sign inside a version such as 1.0.0+20240506, or inside a sum
	}
	if before == '.' && (start < 2 || !letter(text[start-2])) || text[a] == '0' && a+1 < len(text) && text[a+1] == '.' {
		return 0 // a decimal fraction
	}
	if !plus {
		if end := s.american(a, start, before); end > 0 {
			return s.found(Phone, start, end)
		}
		// Only the first group of a number can begin a phone number.
		if start > 1 && digit(text[start-2]) && (separator(before) || before == ',') || digit(before) || before == '_' {
			return 0
		}
	}
	if start > 0 && !plus && before != ' ' && before != '=' && before != '/' && upper(before) {
		return 0
	}
	d := s.dial(a)
	if d.n < 7 {
		return 0
	}
	proof := 0
	for size := d.n; size >= 7; size-- {
		end := d.ends[size-1]
		if end == 0 || !plus && end+1 < len(text) && (text[end] == '-' || text[end] == '.') && digit(text[end+1]) {
			continue
		}
		digits := d.digits[:size]
		if s.beginsWithDate(a, end) || isTime(digits) || allSame(digits) {
			return 0
		}
		if plus {
			if international(digits) {
				return s.found(Phone, start, end)
			}
			continue
		}
		grouped := d.ends[size-1]-a > size
		if proof == 0 {
			proof = s.proofBefore(start)
		}
		switch {
		case proof == 1 && size <= 15, proof == 2 && (grouped || size >= 9) && size <= 15,
			s.phoneLabelAfter(end, grouped), grouped && s.dialedFromAbroad(&d, a, size):
			return s.found(Phone, start, end)
		case grouped && digits[0] == '0' && digits[1] != '0' && size >= 8 && size <= 12 && s.national(start, end, size):
			return s.found(Phone, start, end)
		}
	}
	return 0
}

// beginsWithDate reports whether text[a:end] is a date, or begins with a date that has a four-digit year.
func (s *search) beginsWithDate(a, end int) bool {
	b := s.skipDigits(a)
	_, dateEnd := s.findDate(a, b)
	return dateEnd > 0 && (dateEnd == end || b-a == 4 || allDigits(s.text[dateEnd-4:dateEnd]))
}

// proofBefore returns 1 if a label for a phone is directly in front of an offset or in the name of the JSON member, 2 if
// a request such as "call me at" is in front of the offset, and otherwise -1.
func (s *search) proofBefore(start int) int {
	if k := s.labelBefore(s.text, start); k == aPhone || k == aRegion || k == unknown && s.keyLabel() == aPhone {
		return 1
	}
	if s.askedBefore(start) {
		return 2
	}
	return -1
}

// dial reads the digits of a phone number from offset a, with at most three other characters between two digits.
func (s *search) dial(a int) (d dialed) {
	text, at, gaps := s.text, a, 0
	for at < len(text) && d.n < len(d.digits) {
		c := text[at]
		if digit(c) {
			d.digits[d.n] = c
			d.n++
			gaps = 0
			at++
			if at == len(text) || !digit(text[at]) {
				d.ends[d.n-1] = at
			}
			continue
		}
		if !separator(c) && c != '(' && c != ')' || gaps == 3 {
			break
		}
		gaps++
		at++
	}
	s.work += at - a
	if at < len(text) && gaps == 0 && (letter(text[at]) && text[at] != 'x' && text[at] != 'e' ||
		d.n == len(d.digits) && digit(text[at])) {
		d.n = 0 // the last group of digits is part of a word or of a longer number
	}
	return d
}

// american returns the end of a number in a North American form, such as (415) 555-2671, 415-555-2671 or
// 1.415.555.2671. The digits of the number begin at offset a. american returns 0 if there is no such number.
func (s *search) american(a, start int, before byte) int {
	text := s.text
	if wordByte(before) && before != 's' || before == '.' || before == '-' || before == '/' || before == '$' ||
		before == '%' || before == ',' || before == '_' || before == '#' {
		return 0
	}
	if text[a] == '1' && a+2 < len(text) && (text[a+1] == '-' || text[a+1] == '.' || text[a+1] == ' ') {
		a += 2
		if text[a] == '(' {
			a++
		}
	}
	if a+12 > len(text) || !allDigits(text[a:a+3]) || text[a] < '2' {
		return 0
	}
	at := a + 3
	open := a > 0 && text[a-1] == '('
	if open {
		if text[at] != ')' {
			return 0
		}
		if at++; text[at] == ' ' || text[at] == '-' {
			at++
		}
	} else {
		at++
	}
	if at+8 > len(text) || !allDigits(text[at:at+3]) || text[at] < '2' {
		return 0
	}
	between, end := text[at+3], at+8
	if between != '-' && between != '.' && between != ' ' || !open && text[a+3] != between || !allDigits(text[at+4:end]) {
		return 0
	}
	if end < len(text) && (alnum(text[end]) && text[end] != 'x' && text[end] != 'e' || text[end] == '_' ||
		end+1 < len(text) && separator(text[end]) && digit(text[end+1])) {
		return 0
	}
	if !open && between == ' ' && (start > 1 && before == ' ' && digit(text[start-2]) ||
		s.proofBefore(start) < 0 && !s.inRegion(start, end, 1)) {
		return 0 // three numbers
	}
	return end
}

// dialedFromAbroad reports whether a number begins with 00 and a country code, as in 0044 20 7946 0958.
func (s *search) dialedFromAbroad(d *dialed, a, size int) bool {
	first := s.skipDigits(a) - a
	end := d.ends[size-1]
	if end+1 < len(s.text) && separator(s.text[end]) && digit(s.text[end+1]) || s.text[a+first] == '/' {
		return false // a list of numbers, or the number of a document
	}
	return first >= 3 && first <= 5 && d.digits[0] == '0' && d.digits[1] == '0' && d.digits[first] != '0' &&
		phoneLengths[number(d.digits[2:first])]>>(size-first)&1 == 1
}

// national reports whether the name of a country is near a number, and the number has the length of phone numbers in
// that country. The size includes the leading zero.
func (s *search) national(start, end, size int) bool {
	if !s.anyNear(start, end) {
		return false
	}
	for i, r := range regionNames {
		if phoneLengths[r.code]>>(size-1)&1 == 1 && s.has(start, regionLabels[i]) {
			return true
		}
	}
	return false
}

// inRegion reports whether the country with the given calling code is named near a number.
func (s *search) inRegion(start, end, code int) bool {
	if !s.anyNear(start, end) {
		return false
	}
	for i, r := range regionNames {
		if r.code == code {
			return s.has(start, regionLabels[i])
		}
	}
	return false
}

// phoneLabelAfter reports whether a label for a phone is directly after an offset and ends the line or the clause, as in
// 781 1704 office.
func (s *search) phoneLabelAfter(end int, grouped bool) bool {
	rest := s.text[end:min(len(s.text), end+12)]
	if len(rest) < 4 || rest[0] != '-' && (rest[0] != ' ' && rest[0] != '(' || !grouped) {
		return false
	}
	to := 1
	for to < len(rest) && letter(rest[to]) {
		to++
	}
	if to < len(rest) && strings.IndexByte("\n\r\\,;.)", rest[to]) < 0 {
		return false
	}
	switch strings.ToLower(string(rest[1:to])) {
	case "office", "fax", "mobile", "cell", "home", "work", "tel", "phone":
		return true
	}
	return false
}
