package pii

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// issuers lists the prefixes of payment cards and the lengths of their numbers.
var issuers = []struct{ low, high, digits, shortest, longest int }{
	{4, 4, 1, 13, 13},
	{4, 4, 1, 16, 16},
	{4, 4, 1, 19, 19}, // Visa
	{51, 55, 2, 16, 16},
	{2221, 2720, 4, 16, 16}, // Mastercard
	{34, 34, 2, 15, 15},
	{37, 37, 2, 15, 15}, // American Express
	{300, 305, 3, 14, 19},
	{309, 309, 3, 14, 19},
	{36, 36, 2, 14, 19},
	{38, 39, 2, 14, 19}, // Diners Club
	{6011, 6011, 4, 16, 19},
	{644, 659, 3, 16, 19}, // Discover
	{3528, 3589, 4, 16, 19},
	{2131, 2131, 4, 15, 15},
	{1800, 1800, 4, 15, 15}, // JCB
	{62, 62, 2, 16, 19},
	{8100, 8171, 4, 16, 19}, // UnionPay
	{2200, 2204, 4, 16, 19}, // Mir
	{5018, 5020, 4, 12, 19},
	{5038, 5038, 4, 12, 19},
	{56, 58, 2, 12, 19},
	{6304, 6304, 4, 12, 19}, // Maestro and Dankort
	{6759, 6759, 4, 12, 19},
	{6761, 6763, 4, 12, 19},
	{6799, 6799, 4, 12, 19},
	{1001, 1001, 4, 15, 15},
	{1006, 1006, 4, 15, 15},
	{1014, 1016, 4, 15, 15},
	{1081, 1081, 4, 15, 15}, // UATP
	{1131, 1131, 4, 15, 15},
	{1220, 1220, 4, 15, 15},
	{1235, 1235, 4, 15, 15},
	{1257, 1257, 4, 15, 15},
}

// isCard reports whether s is a payment card number. It checks the issuer's range, the length and the check digit.
func isCard(s []byte) bool {
	for _, r := range issuers {
		if n := number(s[:r.digits]); r.low <= n && n <= r.high && r.shortest <= len(s) && len(s) <= r.longest {
			return luhn(s)
		}
	}
	return false
}

// ibanLengths lists the country codes, each with the length of IBANs in that country.
const ibanLengths = "" +
	" AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20" +
	" EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30" +
	" KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23" +
	" PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26" +
	" UA29 VA22 VG24 XK20 YE30 "

// ibanLength contains the lengths in ibanLengths, indexed by the two letters of the country code.
var ibanLength = func() (out [26][26]int) {
	for c := range strings.FieldsSeq(ibanLengths) {
		out[c[0]-'A'][c[1]-'A'] = number([]byte(c[2:]))
	}
	return out
}()

// lengthOfIBAN returns the length of IBANs that begin like s, or 0 if the first two letters are not a country.
func lengthOfIBAN(s []byte) int {
	if !upper(s[0]) || !upper(s[1]) {
		return 0
	}
	return ibanLength[s[0]-'A'][s[1]-'A']
}

func isIBAN(s []byte) bool { return lengthOfIBAN(s) == len(s) && mod97(s[4:], s[:4]) == 1 }

// isWallet reports whether s is a cryptocurrency address. Unlike all other checks, isWallet is case-sensitive.
func isWallet(s []byte) bool {
	switch n := len(s); {
	case n == 42 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		return hexLetters(s[2:])
	case n >= 26 && n <= 35 && bytes.IndexByte([]byte("13LMDTXmn2A9"), s[0]) >= 0:
		return base58check(s, bitcoinLetters)
	case n >= 25 && n <= 35 && s[0] == 'r':
		return base58check(s, rippleLetters)
	case n >= 14 && n <= 90:
		return bech32(s)
	}
	return false
}

func hexLetters(s []byte) bool {
	digits := 0
	for _, c := range s {
		if digit(c) {
			digits++
		} else if c |= 0x20; c < 'a' || c > 'f' {
			return false
		}
	}
	return digits > 0 && digits < len(s)
}

const (
	bitcoinLetters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	rippleLetters  = "rpshnaf39wBUDNEGHJKLM4PQRST7VWXYZ2bcdeCg65jkm8oFqi1tuvAxyz"
)

func base58check(s []byte, letters string) bool {
	// The 25 bytes of an address are read as one number of seven 32-bit words. The last word is the least significant.
	var words [7]uint32
	for _, c := range s {
		carry := uint64(max(0, strings.IndexByte(letters, c)))
		if carry == 0 && c != letters[0] {
			return false
		}
		for i := len(words) - 1; i >= 0; i-- {
			carry += uint64(words[i]) * 58
			words[i] = uint32(carry)
			carry >>= 32
		}
		if carry != 0 {
			return false
		}
	}
	var raw [28]byte
	for i, w := range words {
		binary.BigEndian.PutUint32(raw[4*i:], w)
	}
	if raw[0] != 0 || raw[1] != 0 || raw[2] != 0 {
		return false
	}
	first := sha256.Sum256(raw[3:24])
	second := sha256.Sum256(first[:])
	return bytes.Equal(second[:4], raw[24:])
}

// bech32 reports whether s is a bech32 or bech32m address with a valid checksum.
func bech32(s []byte) bool {
	low := bytes.ToLower(s)
	if !bytes.Equal(low, s) && !bytes.Equal(bytes.ToUpper(s), s) {
		return false
	}
	sep := bytes.LastIndexByte(low, '1')
	if sep < 1 || sep > 8 || len(low)-sep < 7 {
		return false
	}
	switch string(low[:sep]) {
	case "bc", "tb", "bcrt", "ltc", "tltc", "addr", "cosmos", "osmo", "terra", "bnb":
	default:
		return false
	}
	chk := uint32(1)
	step := func(v byte) {
		top := chk >> 25
		chk = (chk&0x1ffffff)<<5 ^ uint32(v)
		for i, g := range [...]uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
			if top>>i&1 == 1 {
				chk ^= g
			}
		}
	}
	for _, c := range low[:sep] {
		step(c >> 5)
	}
	step(0)
	for _, c := range low[:sep] {
		step(c & 31)
	}
	for _, c := range low[sep+1:] {
		d := bytes.IndexByte([]byte("qpzry9x8gf2tvdw0s3jn54khce6mua7l"), c)
		if d < 0 {
			return false
		}
		step(byte(d))
	}
	return chk == 1 || chk == 0x2bc830a3
}
