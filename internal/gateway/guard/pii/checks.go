package pii

import "bytes"

// check reports whether a number is valid. It expects the compact form of the number: only digits and upper-case
// letters.
type check func(s []byte) bool

func digit(c byte) bool { return '0' <= c && c <= '9' }

func allDigits(s []byte) bool {
	for _, c := range s {
		if !digit(c) {
			return false
		}
	}
	return len(s) > 0
}

func number(s []byte) int {
	n := 0
	for _, c := range s {
		n = n*10 + int(c-'0')
	}
	return n
}

// allSame reports whether all digits are equal. Such numbers are not assigned to any person.
func allSame(s []byte) bool {
	for _, c := range s {
		if c != s[0] {
			return false
		}
	}
	return true
}

// all combines checks.
func all(checks ...check) check {
	return func(s []byte) bool {
		for _, c := range checks {
			if !c(s) {
				return false
			}
		}
		return true
	}
}

// after returns a check that applies the check c to s[from:].
func after(from int, c check) check { return func(s []byte) bool { return c(s[from:]) } }

// between returns a check that the digits s[from:to], read as a number, are between low and high.
func between(from, to, low, high int) check {
	return func(s []byte) bool {
		n := number(s[from:to])
		return low <= n && n <= high
	}
}

// oneOf returns a check that the character at an offset is one of the given characters.
func oneOf(at int, chars string) check {
	return func(s []byte) bool { return bytes.IndexByte([]byte(chars), s[at]) >= 0 }
}

// sum checks the character after the weighted digits. Its expected value is chars[n], where n is the weighted sum
// modulo len(chars). A space in chars matches nothing. The value of a letter is its distance from the character 0.
func sum(chars string, weights ...int) check {
	return func(s []byte) bool {
		n := 0
		for i, w := range weights {
			n += int(s[i]-'0') * w
		}
		return !allSame(s) && chars[n%len(chars)] == s[len(weights)]
	}
}

// These strings map a remainder modulo 11 or 10 to the expected check digit.
const (
	rest11   = "0123456789 " // the remainder; 10 is not assigned
	rest11x0 = "01234567890" // the remainder; 10 becomes 0
	minus11  = "0 987654321" // 11 minus the remainder; 10 is not assigned
	minus110 = "00987654321" // 11 minus the remainder; 10 becomes 0
	minus111 = "10987654321" // 11 minus the remainder, modulo 10
	rest10   = "0123456789"  // the remainder
	minus10  = "0987654321"  // 10 minus the remainder
	nifChars = "TRWAGMYFPDXBNJZSQVHLCKE"
)

// date checks a date that begins at an offset and consists of two-digit parts. The layout lists the parts: y is the
// year, m is the month and d is the day. In the numbers of many countries, one of monthOffsets is added to the month to
// mark the century or the sex, and dayOffset can be added to the day.
func date(layout string, at, dayOffset int, monthOffsets ...int) check {
	return func(s []byte) bool {
		month, day := 1, 1
		for i := range len(layout) {
			switch n := number(s[at+2*i : at+2*i+2]); layout[i] {
			case 'm':
				month = n
			case 'd':
				day = n
			}
		}
		if dayOffset > 0 && day > dayOffset {
			day -= dayOffset
		}
		for _, o := range monthOffsets {
			if month > o && month <= o+12 {
				month -= o
				break
			}
		}
		return isDate(4, month, day)
	}
}

// isDate reports whether year, month and day are a valid date. Every two-digit year is treated as a leap year.
func isDate(year, month, day int) bool {
	if month < 1 || month > 12 || day < 1 {
		return false
	}
	days := [...]int{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
	if month == 2 && day == 29 && year > 99 && (year%4 != 0 || year%100 == 0 && year%400 != 0) {
		return false
	}
	return day <= days[month-1]
}

// luhn checks the Luhn check digit, which payment cards and many other numbers have.
func luhn(s []byte) bool {
	sum, double := 0, false
	for i := len(s) - 1; i >= 0; i-- {
		d := int(s[i] - '0')
		if double {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
		double = !double
	}
	return sum%10 == 0 && !allSame(s)
}

// mod97 returns the remainder of ISO 7064 mod 97-10 over letters and digits. IBANs use this check.
func mod97(parts ...[]byte) int {
	r := 0
	for _, s := range parts {
		for _, c := range s {
			if digit(c) {
				r = (r*10 + int(c-'0')) % 97
			} else {
				r = (r*100 + int(c-'A') + 10) % 97
			}
		}
	}
	return r
}

// mod11x10 checks the check digit of ISO 7064 mod 11,10, which German and Croatian tax numbers have.
func mod11x10(s []byte) bool {
	p := 10
	for _, c := range s[:len(s)-1] {
		p += int(c - '0')
		if p %= 10; p == 0 {
			p = 10
		}
		p = p * 2 % 11
	}
	return (11-p)%10 == int(s[len(s)-1]-'0') && !allSame(s)
}

// mod11x2 checks the check digit of ISO 7064 mod 11-2, which Chinese resident numbers have.
func mod11x2(s []byte) bool {
	p := 0
	for _, c := range s[:len(s)-1] {
		p = (p + int(c-'0')) * 2 % 11
	}
	return "10X98765432"[p] == s[len(s)-1]
}

var (
	verhoeffD = [10]string{
		"0123456789", "1234067895", "2340178956", "3401289567", "4012395678", "5987604321",
		"6598710432", "7659821043", "8765932104", "9876543210",
	}
	verhoeffP = [8]string{
		"0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901",
		"2793806415", "7046913258",
	}
)

func verhoeff(s []byte) bool {
	c := byte('0')
	for i := range s {
		d := s[len(s)-1-i]
		c = verhoeffD[c-'0'][verhoeffP[i%8][d-'0']-'0']
	}
	return c == '0'
}

// isTime reports whether digits look like a point in time: a date with or without a time of day, or the seconds,
// milliseconds, microseconds or nanoseconds since 1970.
func isTime(s []byte) bool {
	switch len(s) {
	case 10, 13, 16, 19: // these times are from 2001 to 2033
		if s[0] == '1' {
			return true
		}
	}
	if len(s) < 8 || len(s) > 17 || number(s[:4]) < 1970 || number(s[:4]) > 2049 ||
		!isDate(number(s[:4]), number(s[4:6]), number(s[6:8])) {
		return false
	}
	rest := s[8:]
	return (len(rest) < 2 || number(rest[:2]) < 24) && (len(rest) < 4 || number(rest[2:4]) < 60) &&
		(len(rest) < 6 || number(rest[4:6]) < 61)
}
