package pii

// The checks in this file expect the compact form of a number: only digits and upper-case letters.

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
	return sum%10 == 0
}

func weighted(s []byte, weights ...int) int {
	sum := 0
	for i, w := range weights {
		sum += int(s[i]-'0') * w
	}
	return sum
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

// mod11x10 checks the check digit of ISO 7064 mod 11,10, which German tax numbers have.
func mod11x10(s []byte) bool {
	p := 10
	for _, c := range s[:len(s)-1] {
		p += int(c - '0')
		if p %= 10; p == 0 {
			p = 10
		}
		p = p * 2 % 11
	}
	return (11-p)%10 == int(s[len(s)-1]-'0')
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

// isYYMMDD reports whether six digits are a date in the form YYMMDD.
func isYYMMDD(s []byte) bool { return isDate(number(s[:2]), number(s[2:4]), number(s[4:6])) }
