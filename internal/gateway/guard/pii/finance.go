package pii

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/big"
	"strings"
)

// isCard reports whether s is a payment card number. It checks the issuer's range, the length and the check digit.
func isCard(s []byte) bool {
	if len(s) < 12 || len(s) > 19 || allSame(s) || !luhn(s) {
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
	case s[0] == '1': // UATP, and the oldest JCB cards
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

// ibans lists the country codes, each with the length of IBANs in that country.
const ibans = "" +
	" AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20" +
	" EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30" +
	" KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23" +
	" PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26" +
	" UA29 VA22 VG24 XK20 YE30 "

func iban(s []byte) bool {
	return len(s) >= 15 && digit(s[2]) && digit(s[3]) && strings.Contains(ibans, fmt.Sprintf(" %s%d ", s[:2], len(s))) &&
		mod97(s[4:], s[:4]) == 1
}

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
