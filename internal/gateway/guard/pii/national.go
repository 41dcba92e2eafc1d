package pii

import "bytes"

// This file contains the checks that cannot be expressed as a weighted sum, a date or a combination of both.

func usSSN(s []byte) bool {
	area, group, serial := number(s[:3]), number(s[3:5]), number(s[5:])
	switch string(s) {
	case "123456789", "987654320", "078051120", "219099999":
		return false // numbers known from advertisements and examples
	}
	return area != 0 && area != 666 && area < 900 && group != 0 && serial != 0 && !allSame(s)
}

func usITIN(s []byte) bool {
	g := number(s[3:5])
	return s[0] == '9' && (50 <= g && g <= 65 || 70 <= g && g <= 88 || 90 <= g && g <= 92 || 94 <= g)
}

func usNPI(s []byte) bool {
	return (s[0] == '1' || s[0] == '2') && !allSame(s[:9]) && luhn(append([]byte("80840"), s...))
}

func usMBI(s []byte) bool { return s[0] != '0' && !bytes.ContainsAny(s, "SLOIBZ") }

func ukNINO(s []byte) bool {
	if bytes.IndexByte([]byte("DFIQUV"), s[0]) >= 0 || bytes.IndexByte([]byte("DFIOQUV"), s[1]) >= 0 || s[8] > 'D' {
		return false
	}
	switch string(s[:2]) {
	case "BG", "GB", "NK", "KN", "TN", "NT", "ZZ":
		return false
	}
	return true
}

func ukDriving(s []byte) bool {
	letters := 0
	for i, c := range s[:5] {
		if digit(c) {
			if c != '9' || i == 0 {
				return false
			}
		} else if letters++; letters <= i {
			return false // a letter after the filler 9
		}
	}
	month, day := number(s[6:8]), number(s[8:10])
	if month > 50 {
		month -= 50
	}
	for _, c := range s[11:13] {
		if digit(c) && c != '9' {
			return false
		}
	}
	return isDate(4, month, day)
}

func esNIF(s []byte) bool { return nifChars[number(s[:len(s)-1])%23] == s[len(s)-1] }

func esNIE(s []byte) bool {
	if s[0] < 'X' || s[0] > 'Z' {
		return false
	}
	return nifChars[(int(s[0]-'X')*10_000_000+number(s[1:8]))%23] == s[8]
}

// itCF checks an Italian codice fiscale. Letters can replace some of its digits, so that no two people have the same
// code.
func itCF(s []byte) bool {
	const odd = "\x01\x00\x05\x07\x09\x0d\x0f\x11\x13\x15\x02\x04\x12\x14\x0b\x03\x06\x08\x0c\x0e\x10\x0a\x16\x19\x18\x17"
	if !itForm(s) {
		return false
	}
	sum := 0
	for i, c := range s[:15] {
		v := int(c - 'A')
		if digit(c) {
			v = int(c - '0')
		}
		if i%2 == 0 {
			v = int(odd[v])
		}
		sum += v
	}
	return byte('A'+sum%26) == s[15]
}

// itForm checks the form of a codice fiscale, but not its check letter. It is used only near a label such as "codice
// fiscale", where a mistyped code must be found too.
func itForm(s []byte) bool {
	for _, i := range [...]int{6, 7, 9, 10, 12, 13, 14} {
		if !digit(s[i]) && bytes.IndexByte([]byte("LMNPQRSTUV"), s[i]) < 0 {
			return false
		}
	}
	return bytes.IndexByte([]byte("ABCDEHLMPRST"), s[8]) >= 0
}

// deTax checks a German tax number. The check digit must be correct. In the first ten digits, no digit can occur more
// than three times, and at most two different digits can occur more than once.
func deTax(s []byte) bool {
	var count [10]int
	for _, c := range s[:10] {
		count[c-'0']++
	}
	repeated := 0
	for _, n := range count {
		switch {
		case n > 3:
			return false
		case n > 1:
			repeated++
		}
	}
	return s[0] != '0' && repeated <= 2 && mod11x10(s)
}

func deSocial(s []byte) bool {
	letter := int(s[8]-'A') + 1
	d := []int{
		int(s[0] - '0'), int(s[1] - '0'), int(s[2] - '0'), int(s[3] - '0'), int(s[4] - '0'), int(s[5] - '0'),
		int(s[6] - '0'), int(s[7] - '0'), letter / 10, letter % 10, int(s[9] - '0'), int(s[10] - '0'),
	}
	sum := 0
	for i, w := range []int{2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1} {
		p := d[i] * w
		sum += p/10 + p%10
	}
	day := number(s[2:4])
	if day > 50 {
		day -= 50
	}
	return sum%10 == int(s[11]-'0') && day >= 1 && day <= 31 && number(s[4:6]) <= 12
}

// deCard checks the number of a German identity card or passport. The check digit at the end is optional.
func deCard(s []byte) bool {
	digits := 0
	sum := 0
	for i, c := range s[:9] {
		v := int(c - '0')
		if digit(c) {
			digits++
		} else {
			if bytes.IndexByte([]byte("ABDEIOQSU"), c) >= 0 {
				return false
			}
			v = int(c-'A') + 10
		}
		if i < len(s)-1 {
			sum += v * [3]int{7, 3, 1}[i%3]
		}
	}
	if digit(s[0]) || digits < 3 {
		return false
	}
	if s[0] == 'T' && digits == 8 && len(s) == 9 {
		return true // provisional cards have no check digit
	}
	last := s[len(s)-1]
	return !digit(last) && len(s) == 9 || digit(last) && sum%10 == int(last-'0')
}

func deHealth(s []byte) bool {
	n := int(s[0]-'A') + 1
	d := append([]byte{byte('0' + n/10), byte('0' + n%10)}, s[1:9]...)
	sum := 0
	for i, c := range d {
		v := int(c-'0') * (1 + i%2)
		sum += v/10 + v%10
	}
	return sum%10 == int(s[9]-'0')
}

// plPESEL accepts people born from 1900 to 2029. If the person was born in 2000 or later, the number contains the month
// plus 20.
func plPESEL(s []byte) bool {
	return (number(s[2:4]) <= 12 || s[0] <= '2') && date("md", 2, 0, 20)(s) && sum(minus10, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3)(s)
}

func frNIR(s []byte) bool {
	body := append([]byte(nil), s[:13]...)
	// Corsican department codes contain a letter. To calculate the check digits, replace the code with a number.
	switch string(body[5:7]) {
	case "2A":
		copy(body[5:7], "19")
	case "2B":
		copy(body[5:7], "18")
	}
	if !allDigits(body) || bytes.IndexByte([]byte("123478"), body[0]) < 0 {
		return false
	}
	month := number(body[3:5])
	return (month >= 1 && month <= 12 || month >= 20 && month <= 42 || month >= 50) && 97-number(body)%97 == number(s[13:])
}

func beNN(s []byte) bool {
	n, check := number(s[:9]), number(s[9:])
	return isDate(4, max(1, number(s[2:4])%20), max(1, number(s[4:6]))) &&
		(97-n%97 == check || 97-(2_000_000_000+n)%97 == check)
}

// brCNPJ checks the number of a Brazilian company. Since 2026 it can contain letters.
func brCNPJ(s []byte) bool {
	return sum(minus110, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)(s) && sum(minus110, 6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)(s)
}

func cnID(s []byte) bool { return (digit(s[17]) || s[17] == 'X') && mod11x2(s) }

func inAadhaar(s []byte) bool {
	palindrome := true
	for i := range s {
		palindrome = palindrome && s[i] == s[len(s)-1-i]
	}
	return s[0] >= '2' && !palindrome && verhoeff(s)
}

func mxCURP(s []byte) bool {
	const letters = "0123456789ABCDEFGHIJKLMN&OPQRSTUVWXYZ"
	sum := 0
	for i, c := range s[:17] {
		sum += bytes.IndexByte([]byte(letters), c) * (18 - i)
	}
	return oneOf(10, "HMX")(s) && date("ymd", 4, 0)(s) && (10-sum%10)%10 == int(s[17]-'0')
}

func clRUT(s []byte) bool {
	sum, w := 0, 2
	for i := len(s) - 2; i >= 0; i-- {
		sum += int(s[i]-'0') * w
		if w++; w > 7 {
			w = 2
		}
	}
	return "0K987654321"[sum%11] == s[len(s)-1]
}

func auABN(s []byte) bool {
	sum := -10
	for i, w := range [...]int{10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19} {
		sum += int(s[i]-'0') * w
	}
	return s[0] != '0' && sum%89 == 0
}

func sgFIN(s []byte) bool {
	sum := 0
	for i, w := range [...]int{2, 7, 6, 5, 4, 3, 2} {
		sum += int(s[i+1]-'0') * w
	}
	switch s[0] {
	case 'S':
		return "JZIHGFEDCBA"[sum%11] == s[8]
	case 'T':
		return "JZIHGFEDCBA"[(sum+4)%11] == s[8]
	case 'F':
		return "XWUTRQPNMLK"[sum%11] == s[8]
	case 'G':
		return "XWUTRQPNMLK"[(sum+4)%11] == s[8]
	case 'M':
		return "XWUTRQPNJLK"[(sum+3)%11] == s[8]
	}
	return false
}

// fiHETU checks a Finnish identity code. The sign for the century is either a letter in the middle, or a dash that was
// already removed as a separator.
func fiHETU(s []byte) bool {
	if len(s) == 11 {
		if bytes.IndexByte([]byte("ABCDEFYXWVU"), s[6]) < 0 {
			return false
		}
		s = append(append([]byte(nil), s[:6]...), s[7:]...)
	}
	return isDate(4, number(s[2:4]), number(s[:2])) && number(s[6:9]) >= 2 &&
		"0123456789ABCDEFHJKLMNPRSTUVWXY"[number(s[:9])%31] == s[9]
}

func sePersonal(s []byte) bool { return date("ymd", 0, 60)(s) && luhn(s) }

func trTCKN(s []byte) bool {
	odd, even, sum := 0, 0, 0
	for i, c := range s[:10] {
		sum += int(c - '0')
		switch {
		case i >= 9:
		case i%2 == 0:
			odd += int(c - '0')
		default:
			even += int(c - '0')
		}
	}
	return s[0] != '0' && !allSame(s[:10]) && ((odd*7-even)%10+10)%10 == int(s[9]-'0') && sum%10 == int(s[10]-'0')
}

func thTNIN(s []byte) bool {
	province := number(s[1:3])
	return s[0] != '0' && s[0] != '9' && province >= 10 && province <= 96 &&
		sum(minus111, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)(s)
}

// atSVNR checks an Austrian social insurance number. Its check digit is the fourth digit, and the date of birth
// follows.
func atSVNR(s []byte) bool {
	sum := 0
	for i, w := range [...]int{3, 7, 9, 0, 5, 8, 4, 2, 1, 6} {
		sum += int(s[i]-'0') * w
	}
	return s[0] != '0' && sum%11 == int(s[3]-'0') && date("dmy", 4, 0, 12)(s)
}

// czRC checks a Czech or Slovak birth number. The whole number is a multiple of 11. In some numbers from before 1985,
// the first nine digits have the remainder 10, and the check digit is 0.
func czRC(s []byte) bool {
	return date("ymd", 0, 0, 50, 20, 70)(s) && !allSame(s) &&
		(number(s)%11 == 0 || number(s[:9])%11 == 10 && s[9] == '0')
}

// eeCode checks an Estonian or Lithuanian personal code. If the first weighted sum has the remainder 10, the second
// weighted sum decides.
func eeCode(s []byte) bool {
	first, second := 0, 0
	for i := range 10 {
		first += int(s[i]-'0') * (i%9 + 1)
		second += int(s[i]-'0') * ((i+2)%9 + 1)
	}
	r := first % 11
	if r == 10 {
		r = second % 11 % 10
	}
	return r == int(s[10]-'0')
}

// iePPS checks an Irish PPS number. A second letter is part of the sum, except for the old letters W, T and X.
func iePPS(s []byte) bool {
	n := 0
	for i := range 7 {
		n += int(s[i]-'0') * (8 - i)
	}
	if len(s) == 9 && !oneOf(8, "WTX")(s) {
		n += int(s[8]-'A'+1) * 9
	}
	return "WABCDEFGHIJKLMNOPQRSTUV"[n%23] == s[7]
}

func ruSNILS(s []byte) bool {
	sum := 0
	for i := range 9 {
		sum += int(s[i]-'0') * (9 - i)
	}
	return number(s[:9]) > 1_001_998 && sum%101%100 == number(s[9:])
}
