package pii

import (
	"bytes"
	"crypto/sha256"
	"math/big"
)

// card checks the number of a payment card: an issuer's range, its length, and
// the check digit.
func card(s []byte) bool {
	if len(s) < 12 || len(s) > 19 || same(s) || !luhn(s) {
		return false
	}
	n, two, three, four, six := len(s), number(s[:2]), number(s[:3]), number(s[:4]), number(s[:6])
	switch {
	case s[0] == '4':
		return n == 13 || n == 16 || n == 19
	case 51 <= two && two <= 55, 2221 <= four && four <= 2720:
		return n == 16
	case two == 34 || two == 37:
		return n == 15
	case three >= 300 && three <= 305 || three == 309 || two == 36 || two == 38 || two == 39:
		return n >= 14 && n <= 19
	case four == 6011 || two == 65 || 644 <= three && three <= 649 || 622126 <= six && six <= 622925:
		return n >= 16
	case two == 35:
		return n >= 16
	case s[0] == '1': // UATP, and the oldest of JCB
		return n == 15
	case four == 2131:
		return n == 15
	case two == 62 || two == 81:
		return n >= 16
	case two == 50 || 56 <= two && two <= 58 || two == 60 || two == 63 || two == 67 || two == 68 || two == 69:
		return n >= 12
	case two == 22: // Mir
		return n == 16
	}
	return false
}

// ibans are the lengths of a country's account numbers.
var ibans = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29, "BY": 28, "CH": 21, "CR": 22,
	"CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22,
	"GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30,
	"KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20,
	"MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22,
	"RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26,
	"UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}

func iban(s []byte) bool {
	return len(s) >= 15 && digit(s[2]) && digit(s[3]) && ibans[string(s[:2])] == len(s) && mod97(s[4:], s[:4]) == 1
}

// wallet checks an address of a crypto currency. Unlike all else it depends on
// case.
func wallet(s []byte) bool {
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
	n := new(big.Int)
	base := big.NewInt(58)
	for _, c := range s {
		d := bytes.IndexByte([]byte(letters), c)
		if d < 0 {
			return false
		}
		n.Add(n.Mul(n, base), big.NewInt(int64(d)))
	}
	if n.BitLen() > 25*8 {
		return false
	}
	raw := n.FillBytes(make([]byte, 25))
	first := sha256.Sum256(raw[:21])
	second := sha256.Sum256(first[:])
	return bytes.Equal(second[:4], raw[21:])
}

// bech32 checks a segregated witness address, of either version.
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
