package pii

import "bytes"

// id describes one kind of national identity number.
type id struct {
	name string
	// form has one character for each position: 9 for a digit, A for a letter, and X for either.
	form string
	ok   func(s []byte) bool
	// bareLayouts lists layouts, such as 3-2-4. A number in one of these layouts is accepted without a describing word
	// nearby. The layout * stands for up to five groups of any length.
	bareLayouts string
	words       *words
	// seps contains the allowed separators between groups. If seps is empty, every separator except a colon is
	// allowed.
	seps string
}

var ids = []id{
	{"us_ssn", "999999999", usSSN, "3-2-4", newWords("ssn, social security, socialsecurity, socsec, soc sec"), ""},
	{"us_itin", "999999999", usITIN, "3-2-4", newWords("itin, taxpayer, tax id, taxid"), ""},
	{"us_npi", "9999999999", usNPI, "", newWords("npi, provider"), ""},
	{"us_mbi", "9AX9AX9AA99", usMBI, "*", nil, ""},
	{"uk_nino", "AA999999A", ukNINO, "*", nil, ""},
	{"uk_nhs", "9999999999", ukNHS, "", newWords("nhs, national health, health service, patient"), ""},
	{"uk_driving_licence", "XXXXX999999XX9AA", ukDriving, "*", nil, ""},
	{"es_nif", "99999999A", esNIF, "*", nil, ""},
	{"es_nif", "9999999A", esNIF7, "", newWords("dni, nif"), ""},
	{"es_nie", "A9999999A", esNIE, "*", nil, ""},
	{"it_fiscal_code", "AAAAAAXXAXXAXXXA", itCF, "*", nil, ""},
	{"it_fiscal_code", "AAAAAAXXAXXAXXXA", itForm, "", newWords("codice fiscale, fiscal code, cod fisc"), ""},
	{"de_tax_id", "99999999999", deTax, "2-3-3-3", newWords("steuer, idnr, tax id, taxid, tin, tax identification"), ""},
	{"de_social_security", "99999999A999", deSocial, "*", nil, ""},
	{"de_id_card", "XXXXXXXXX", deCard, "", newWords("ausweis, personalausweis, id card, identity card, idcard"), ""},
	{"de_id_card", "XXXXXXXXX9", deCard, "", newWords("ausweis, personalausweis, id card, identity card, idcard"), ""},
	{
		"de_health_insurance", "A999999999", deHealth, "",
		newWords("kvnr, krankenvers, versichertennummer, health insurance, versicherung"), "",
	},
	{"pl_pesel", "99999999999", plPESEL, "*", nil, ""},
	{"fr_nir", "999999999999999", frNIR, "*", nil, ""},
	{"fr_nir", "99999XX99999999", frNIR, "*", nil, ""},
	{"nl_bsn", "999999999", nlBSN, "", newWords("bsn, burgerservice, sofi, citizen service"), ""},
	{
		"be_nn", "99999999999", beNN, "2.2.2-3.2 2-2-2-3-2",
		newWords("rijksregister, registre national, national number, insz, niss"), "",
	},
	{"br_cpf", "99999999999", brCPF, "3.3.3-2", newWords("cpf, cadastro"), ""},
	{"br_cnpj", "99999999999999", brCNPJ, "2.3.3/4-2", newWords("cnpj"), ""},
	{"cn_id", "99999999999999999X", cnID, "*", nil, ""},
	{"in_aadhaar", "999999999999", inAadhaar, "4-4-4", newWords("aadhaar, aadhar, uidai"), " -:"},
	{"in_pan", "AAAAA9999A", inPAN, "*", nil, ""},
	{"in_pan", "AAAAA9999A", nil, "", newWords("pan, permanent account"), ""},
	{"in_voter", "AAA9999999", nil, "", newWords("voter, epic, elector"), ""},
	{"in_gstin", "99AAAAA9999AXAX", inGSTIN, "*", nil, ""},
	{"mx_curp", "AAAA999999AAAAAAX9", mxCURP, "*", nil, ""},
	{"cl_rut", "99999999X", clRUT, "2.3.3-1", newWords("rut, rol unico"), ""},
	{"cl_rut", "9999999X", clRUT, "1.3.3-1", newWords("rut, rol unico"), ""},
	{"ca_sin", "999999999", caSIN, "", newWords("sin, social insurance, assurance sociale, nas"), ""},
	{"au_tfn", "999999999", auTFN, "", newWords("tfn, tax file"), ""},
	{"au_medicare", "9999999999", auMedicare, "", newWords("medicare"), ""},
	{"au_medicare", "99999999999", auMedicare, "", newWords("medicare"), ""},
	{"au_abn", "99999999999", auABN, "", newWords("abn, business number"), ""},
	{"au_acn", "999999999", auACN, "", newWords("acn, company number"), ""},
	{"sg_fin", "A9999999A", sgFIN, "*", nil, ""},
	{"sg_fin", "A9999999A", sgForm, "", newWords("nric, fin, singapore"), ""},
	{"fi_hetu", "9999999999", fiHETU, "6-4", newWords("hetu, henkil, personal identity"), "-"},
	{"fi_hetu", "999999999A", fiHETU, "6-4", newWords("hetu, henkil, personal identity"), "-"},
	{"fi_hetu", "999999A999X", fiHETU, "*", nil, ""},
	{
		"kr_rrn", "9999999999999", krRRN, "6-7",
		newWords("rrn, resident registration, jumin, 주민, foreigner registration"), "",
	},
	{
		"se_personnummer", "9999999999", sePersonal, "6-4",
		newWords("personnummer, personal identity, samordningsnummer"), "",
	},
	{"se_personnummer", "999999999999", sePersonal12, "*", nil, ""},
	{"tr_tckn", "99999999999", trTCKN, "*", nil, ""},
	{
		"th_tnin", "9999999999999", thTNIN, "1-4-5-2-1",
		newWords("thai, tnin, national id, citizen id, identification number, เลข"), "",
	},
	{"za_id", "9999999999999", zaID, "*", nil, ""},
	{"ng_nin", "99999999999", ngNIN, "", newWords("nin, national identification"), ""},
}

// anyID contains words that describe the identity number of any country.
var anyID = newWords("national id, nationalid, identity number, id number, idnumber, " +
	"personal number, tax number, taxnumber, citizen, passport or id")

func usSSN(s []byte) bool {
	area, group, serial := number(s[:3]), number(s[3:5]), number(s[5:])
	switch string(s) {
	case "123456789", "987654320", "078051120", "219099999":
		return false // numbers known from advertisements and examples
	}
	return area != 0 && area != 666 && area < 900 && group != 0 && serial != 0 && !allSame(s) &&
		!bytes.HasPrefix(s, []byte("98765432"))
}

func usITIN(s []byte) bool {
	g := number(s[3:5])
	return s[0] == '9' && (50 <= g && g <= 65 || 70 <= g && g <= 88 || 90 <= g && g <= 92 || 94 <= g)
}

func usNPI(s []byte) bool {
	return (s[0] == '1' || s[0] == '2') && !allSame(s[:9]) && luhn(append([]byte("80840"), s...))
}

func usMBI(s []byte) bool {
	return s[0] != '0' && !bytes.ContainsAny(s, "SLOIBZ")
}

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

func ukNHS(s []byte) bool { return !allSame(s) && weighted(s, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)%11 == 0 }

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

const nifLetters = "TRWAGMYFPDXBNJZSQVHLCKE"

func esNIF(s []byte) bool { return nifLetters[number(s[:8])%23] == s[8] }

func esNIF7(s []byte) bool { return nifLetters[number(s[:7])%23] == s[7] }

func esNIE(s []byte) bool {
	if s[0] < 'X' || s[0] > 'Z' {
		return false
	}
	n := int(s[0]-'X')*10_000_000 + number(s[1:8])
	return nifLetters[n%23] == s[8]
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

// itForm checks the form of a codice fiscale, but not its check letter. It is used only near a word such as "codice
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

func plPESEL(s []byte) bool {
	year, month := 1900+number(s[:2]), number(s[2:4])
	switch {
	case month > 80:
		year, month = year-100, month-80
	case month > 20:
		year, month = year+100, month-20
	}
	return isDate(year, month, number(s[4:6])) && weighted(s, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)%10 == 0
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

func nlBSN(s []byte) bool {
	return !allSame(s) && weighted(s, 9, 8, 7, 6, 5, 4, 3, 2, -1)%11 == 0
}

func beNN(s []byte) bool {
	n, check := number(s[:9]), number(s[9:])
	return isDate(4, max(1, number(s[2:4])%20), max(1, number(s[4:6]))) &&
		(97-n%97 == check || 97-(2_000_000_000+n)%97 == check)
}

func brCPF(s []byte) bool {
	return !allSame(s) &&
		weighted(s, 10, 9, 8, 7, 6, 5, 4, 3, 2)*10%11%10 == int(s[9]-'0') &&
		weighted(s, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)*10%11%10 == int(s[10]-'0')
}

func brCNPJ(s []byte) bool {
	check := func(sum int) int {
		if r := sum % 11; r >= 2 {
			return 11 - r
		}
		return 0
	}
	return !allSame(s) &&
		check(weighted(s, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)) == int(s[12]-'0') &&
		check(weighted(s, 6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)) == int(s[13]-'0')
}

func cnID(s []byte) bool {
	year := number(s[6:10])
	return year >= 1850 && year < 2100 && isDate(year, number(s[10:12]), number(s[12:14])) &&
		(digit(s[17]) || s[17] == 'X') && mod11x2(s)
}

func inAadhaar(s []byte) bool {
	palindrome := true
	for i := range s {
		palindrome = palindrome && s[i] == s[len(s)-1-i]
	}
	return s[0] >= '2' && !palindrome && verhoeff(s)
}

func inPAN(s []byte) bool { return bytes.IndexByte([]byte("ABCEFGHJLPT"), s[3]) >= 0 }

func inGSTIN(s []byte) bool {
	state := number(s[:2])
	return state >= 1 && state <= 37 && s[13] == 'Z'
}

func mxCURP(s []byte) bool {
	const letters = "0123456789ABCDEFGHIJKLMN&OPQRSTUVWXYZ"
	sum := 0
	for i, c := range s[:17] {
		sum += bytes.IndexByte([]byte(letters), c) * (18 - i)
	}
	return (s[10] == 'H' || s[10] == 'M' || s[10] == 'X') && isYYMMDD(s[4:10]) && (10-sum%10)%10 == int(s[17]-'0')
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

func caSIN(s []byte) bool { return s[0] != '0' && s[0] != '8' && !allSame(s) && luhn(s) }

func auTFN(s []byte) bool { return weighted(s, 1, 4, 3, 7, 5, 8, 6, 9, 10)%11 == 0 }

func auMedicare(s []byte) bool {
	return s[0] >= '2' && s[0] <= '6' && weighted(s, 1, 3, 7, 9, 1, 3, 7, 9)%10 == int(s[8]-'0')
}

func auABN(s []byte) bool {
	return s[0] != '0' && (weighted(s, 10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19)-10)%89 == 0
}

func auACN(s []byte) bool {
	return (10-weighted(s, 8, 7, 6, 5, 4, 3, 2, 1)%10)%10 == int(s[8]-'0')
}

// sgForm checks the form of a Singapore identity number and accepts any check letter. It is used only near a word such
// as "nric".
func sgForm(s []byte) bool { return bytes.IndexByte([]byte("STFGM"), s[0]) >= 0 }

func sgFIN(s []byte) bool {
	sum := weighted(s[1:], 2, 7, 6, 5, 4, 3, 2)
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

func krRRN(s []byte) bool { return isYYMMDD(s[:6]) && s[6] >= '1' && s[6] <= '8' }

func sePersonal(s []byte) bool {
	day := number(s[4:6])
	if day > 60 {
		day -= 60
	}
	return isDate(4, number(s[2:4]), day) && luhn(s)
}

func sePersonal12(s []byte) bool {
	century := number(s[:2])
	return century >= 18 && century <= 20 && sePersonal(s[2:])
}

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
		(11-weighted(s, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11)%10 == int(s[12]-'0')
}

func zaID(s []byte) bool {
	return isYYMMDD(s[:6]) && (s[10] == '0' || s[10] == '1' || s[10] == '2') && luhn(s)
}

func ngNIN(s []byte) bool { return verhoeff(s) }
