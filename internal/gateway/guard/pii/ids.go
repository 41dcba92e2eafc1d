package pii

import "strings"

// cards contains the groupings of payment cards.
var cards = []id{{
	"", "payment card", "!99999999999999|!999999999999999|!9999999999999999|!9999~9999~9999~9999|!9999.9999.9999.9999|!9999~999999~99999|" +
		"!9999~999999~9999|!9999~9999~9999~9999~999|!9999~9999~9999~99|!9999~9999~99999|!9999~999~999~999|!999999~9999999999999|" +
		"9999~9999~9999",
	isCard, cardLabels,
}, {
	"", "payment card of any issuer", "999999999999|9999999999999|99999999999999|999999999999999|9999999999999999|" +
		"99999999999999999|999999999999999999|9999999999999999999",
	all(oneOf(0, "13456"), luhn), cardLabels,
}}

const cardLabels = "card, credit, debit, visa, mastercard, amex, maestro, pan, cc, karte, tarjeta, carte, carta"

// ibans contains the grouping of international bank account numbers.
var ibans = []id{{"", "IBAN", ibanForms(), isIBAN, "iban, bank account, account, konto, bankverbindung, compte"}}

// ibanForms returns the forms of IBANs of all lengths, in groups of four.
func ibanForms() string {
	var out []string
	for n := 15; n <= 33; n++ {
		text := "AA99" + strings.Repeat("X", n-4)
		out = append(out, "^"+text)
		for i := (n - 1) / 4 * 4; i > 0; i -= 4 {
			text = text[:i] + "~" + text[i:]
		}
		out = append(out, "^"+text)
	}
	return strings.Join(out, "|")
}

// anyID contains labels for the identity number of any country.
var anyID = newLabels("national id, nationalid, identity number, id number, idnumber, personal id, " +
	"personal number, tax number, taxnumber, citizen, passport or id, national identity")

// ids contains the identity numbers of all countries. A number whose check accepts more than about 1 % of random digits
// needs a label or a distinctive form.
var ids = []id{
	{"Argentina", "CUIT and CUIL", "!99-99999999-9|99999999999", all(oneOf(0, "23"), sum(minus11, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)), "cuit, cuil"},
	{"Argentina", "DNI", "99.999.999|99999999", allow, "dni, documento nacional"},
	{"Australia", "ABN", "99 999 999 999|99999999999", auABN, "abn, business number"},
	{"Australia", "ACN", "999 999 999|999999999", sum(minus10, 8, 7, 6, 5, 4, 3, 2, 1), "acn, company number"},
	{"Australia", "Medicare", "9999~99999~9|9999999999|99999999999", all(oneOf(0, "23456"), sum(rest10, 1, 3, 7, 9, 1, 3, 7, 9)), "medicare"},
	{"Australia", "TFN", "999~999~999|999999999", sum(rest11, 1, 4, 3, 7, 5, 8, 6, 9), "tfn, tax file"},
	{"Austria", "social insurance number", "9999 999999|9999999999", atSVNR, "svnr, sv nummer, sozialversicherung, versicherungsnummer, social insurance"},
	{"Belgium", "national number", "!99.99.99-999.99|99~99~99~999~99|99999999999", beNN, "rijksregister, registre national, national number, insz, niss"},
	{"Brazil", "CNPJ", "!XX.XXX.XXX/XXXX-99|XXXXXXXXXXXX99", brCNPJ, "cnpj"},
	{"Brazil", "CPF", "!999.999.999-99|999999999-99|99999999999", all(sum(minus110, 10, 9, 8, 7, 6, 5, 4, 3, 2), sum(minus110, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)), "cpf, cadastro"},
	{"Bulgaria", "EGN", "9999999999", all(date("ymd", 0, 0, 20, 40), sum(rest11x0, 2, 4, 8, 5, 10, 9, 7, 3, 6)), "egn, егн, bulgarian"},
	{"Canada", "SIN", "999~999~999|999999999", all(oneOf(0, "12345679"), luhn), "sin, social insurance, assurance sociale, nas"},
	{"Chile", "RUT", "!99.999.999-X|!9.999.999-X|99999999-X|9999999-X|99999999X|9999999X", clRUT, "rut, rol unico"},
	{"China", "resident id", "!99999999999999999X", all(between(6, 10, 1900, 2099), date("md", 10, 0), cnID), "身份证, resident"},
	{"Colombia", "NIT", "999.999.999-9|999999999-9|9999999999", sum("01987654321", 41, 37, 29, 23, 19, 17, 13, 7, 3), "nit, rut"},
	{"Colombia", "cédula", "9.999.999.999|99.999.999|9999999999|99999999", allow, "cedula de ciudadania, ciudadania"},
	{"Croatia", "OIB", "99999999999", mod11x10, "oib, osobni identifikacijski"},
	{"Czechia and Slovakia", "birth number", "!999999/9999|9999999999", czRC, "rodne cislo, birth number"},
	{"Czechia and Slovakia", "birth number before 1954", "999999/999|999999999", date("ymd", 0, 0, 50), "rodne cislo, birth number"},
	{"Denmark", "CPR", "999999-9999|999999 9999|9999999999", date("dmy", 0, 0), "cpr, personnummer, cpr nummer"},
	{"Dominican Republic", "cédula", "!999-9999999-9|99999999999", luhn, "cedula, dominican"},
	{"Ecuador", "cédula", "999999999-9|9999999999", all(between(0, 2, 1, 24), oneOf(2, "012345"), luhn), "cedula, ecuador"},
	{"Estonia and Lithuania", "personal code", "99999999999", all(oneOf(0, "123456"), date("ymd", 1, 0), eeCode), "isikukood, asmens kodas, personal code, estonian, lithuanian"},
	{"Finland", "HETU", "!999999-999X|!999999A999X", fiHETU, "hetu, henkil, personal identity"},
	{"France", "NIR", "!999999999999999|!99999XX99999999|!9~99~99~XX~999~999~99", frNIR, "nir, secu, securite sociale, numero de securite"},
	{"Germany", "health insurance number", "A999999999", deHealth, "kvnr, krankenvers, versichertennummer, health insurance, versicherung"},
	{"Germany", "identity card", "XXXXXXXXX|XXXXXXXXX9", deCard, "ausweis, personalausweis, id card, identity card, idcard"},
	{"Germany", "social security number", "!99999999A999|99 999999 A 999", deSocial, "rvnr, sozialversicherung, rentenversicherung"},
	{"Germany", "tax id", "99~999~999~999|99999999999", deTax, "steuer, idnr, tax id, taxid, tin, tax identification"},
	{"Greece", "AFM", "999999999", sum(rest11x0, 256, 128, 64, 32, 16, 8, 4, 2), "afm, αφμ, greek tax"},
	{"Greece", "AMKA", "99999999999", all(date("dmy", 0, 0), luhn), "amka, αμκα"},
	{"India", "Aadhaar", "9999~9999~9999|9999:9999:9999|999999999999", inAadhaar, "aadhaar, aadhar, uidai"},
	{"India", "GSTIN", "!99AAAAA9999AXAX", all(between(0, 2, 1, 37), oneOf(13, "Z")), "gst, gstin"},
	{"India", "PAN", "AAAAA9999A|A9999AAAAA", allow, "pan, permanent account"},
	{"India", "voter id", "AAA9999999", allow, "voter, epic, elector"},
	{"Indonesia", "NIK", "9999999999999999", all(between(0, 2, 11, 99), date("dmy", 6, 40)), "nik, ktp, induk kependudukan"},
	{"Ireland", "PPS", "9999999A|9999999AA", iePPS, "pps, ppsn, personal public service"},
	{"Israel", "identity number", "99999999-9|999999999", luhn, "teudat, zehut, israeli, תעודת זהות, ת.ז"},
	{"Italy", "codice fiscale", "!AAAAAAXXAXXAXXXA", itCF, "codice fiscale, fiscal code, cod fisc"},
	{"Italy", "codice fiscale with a wrong check letter", "AAAAAAXXAXXAXXXA", itForm, "codice fiscale, fiscal code, cod fisc"},
	{"Japan", "My Number", "9999~9999~9999|999999999999", sum(minus110, 6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2), "my number, mynumber, kojin bango, マイナンバー, 個人番号"},
	{"Malaysia", "MyKad", "999999-99-9999|999999999999", all(date("ymd", 0, 0), between(6, 8, 1, 99)), "mykad, kad pengenalan, nric, malaysian, ic number"},
	{"Mexico", "CURP", "!AAAA999999AAAAAAX9", mxCURP, "curp"},
	{"Netherlands", "BSN", "9999.99.999|999999999", sum(rest11, 9, 8, 7, 6, 5, 4, 3, 2), "bsn, burgerservice, sofi, citizen service"},
	{"Nigeria", "NIN", "99999999999", verhoeff, "nin, national identification"},
	{"Norway", "birth number", "!999999 99999|!99999999999", all(date("dmy", 0, 40, 40, 80), sum(minus11, 3, 7, 6, 1, 8, 9, 4, 5, 2), sum(minus11, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)), "fødselsnummer, fodselsnummer, personnummer, d nummer"},
	{"Pakistan", "CNIC", "99999-9999999-9|9999999999999", allow, "cnic, nadra"},
	{"Peru", "DNI", "99999999|99999999-9", allow, "dni, documento nacional"},
	{"Peru", "RUC", "99999999999", all(oneOf(0, "12"), sum(minus111, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)), "ruc, contribuyente"},
	{"Poland", "PESEL", "!99999999999", plPESEL, "pesel"},
	{"Portugal", "NIF", "999 999 999|999999999", all(oneOf(0, "1235689"), sum(minus110, 9, 8, 7, 6, 5, 4, 3, 2)), "nif, contribuinte, numero fiscal"},
	{"Romania", "CNP", "9999999999999", all(oneOf(0, "12345678"), date("ymd", 1, 0), between(7, 9, 1, 52), sum("01234567891", 2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9)), "cnp, cod numeric"},
	{"Russia", "INN", "999999999999", all(sum(rest11x0, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8), sum(rest11x0, 3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8)), "inn, инн"},
	{"Russia", "SNILS", "!999-999-999 99|!999-999-999-99|99999999999", ruSNILS, "snils, снилс"},
	{"Singapore", "NRIC and FIN", "!A9999999A", sgFIN, "nric, fin, singapore"},
	{"Singapore", "NRIC with a wrong check letter", "A9999999A", allow, "nric, singapore"},
	{"South Africa", "identity number", "!9999999999999", all(date("ymd", 0, 0), oneOf(10, "012"), luhn), "south african, rsa id, sa id"},
	{"South Korea", "RRN", "!999999-9999999|9999999999999", all(date("ymd", 0, 0), oneOf(6, "12345678")), "rrn, resident registration, jumin, 주민, foreigner registration"},
	{"Spain", "NIE", "!A9999999A|!A9999999-A", esNIE, "nie, extranjero"},
	{"Spain", "NIF", "!99999999-A|99999999A|99.999.999-A|9999999-A|9999999A", esNIF, "dni, nif"},
	{"Sweden", "personnummer", "!999999-9999|!999999+9999|9999999999", sePersonal, "personnummer, personal identity, samordningsnummer, pnr"},
	{"Sweden", "personnummer with the century", "!99999999-9999|!999999999999", all(between(0, 2, 18, 20), after(2, sePersonal)), "personnummer, personal identity, samordningsnummer, pnr"},
	{"Switzerland", "AHV number", "!999.9999.9999.99|!9999999999999", all(between(0, 3, 756, 756), sum(minus10, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3)), "ahv, avs"},
	{"Thailand", "identity number", "!9-9999-99999-99-9|9 9999 99999 99 9|9999999999999", thTNIN, "thai, tnin, national id, citizen id, identification number, เลข"},
	{"Turkey", "TCKN", "!99999999999", trTCKN, "tckn, kimlik, turkish id, turkish identity"},
	{"Ukraine", "RNOKPP", "9999999999", sum(rest11x0, 10, 5, 7, 9, 4, 6, 10, 5, 7), "rnokpp, рнокпп, ипн, ukrainian tax"},
	{"United Kingdom", "driving licence", "!XXXXX999999XX9AA", ukDriving, "driving licence, driver"},
	{"United Kingdom", "NHS number", "999~999~9999|9999999999", sum(minus11, 10, 9, 8, 7, 6, 5, 4, 3, 2), "nhs, national health, health service, patient"},
	{"United Kingdom", "NINO", "^AA 99 99 99 A|AA 999999A|AA999999A", ukNINO, "nino, national insurance, ni number"},
	{"United States", "ITIN", "!999-99-9999|999 99 9999|999-999999|99999-9999|999999999", usITIN, "itin, taxpayer, tax id, taxid"},
	{"United States", "MBI", "!9AX9-AX9-AA99|!9AX9AX9AA99", usMBI, "medicare, mbi"},
	{"United States", "NPI", "9999~999~999|9999999999", usNPI, "npi, provider"},
	{"United States", "SSN", "!999-99-9999|999 99 9999|999.99.9999|999-999999|99999-9999|999999999", usSSN, "ssn, social security, socialsecurity, socsec, soc sec"},
}

// rowLabels contains the label set of each kind of number.
var rowLabels = func() map[*id]labels {
	out := map[*id]labels{}
	for _, rows := range [][]id{cards, ibans, ids} {
		for i := range rows {
			out[&rows[i]] = newLabels(rows[i].labels)
		}
	}
	return out
}()

// forms splits a list of forms. A form with tildes is returned twice: once with spaces and once with dashes instead.
func forms(list string) (out []string) {
	for text := range strings.SplitSeq(list, "|") {
		if !strings.Contains(text, "~") {
			out = append(out, text)
			continue
		}
		for _, sep := range []string{" ", "-"} {
			out = append(out, strings.ReplaceAll(text, "~", sep))
		}
	}
	return out
}

// allow accepts every number of a form except dates. Such a number has no check digit, so it needs a label.
func allow(s []byte) bool { return len(s) != 8 || !allDigits(s) || !isTime(s) }
