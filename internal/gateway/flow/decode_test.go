package flow

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

// decode looks at a sample of a long run first. A sample can end within a character, and text after the sample counts.
func TestDecodeLongRuns(t *testing.T) {
	for offset := range 4 {
		plain := strings.Repeat("x", offset) + strings.Repeat("€ü𝄞 ", 40)
		for name, encoded := range map[string]string{
			"hex":    hex.EncodeToString([]byte(plain)),
			"base64": base64.RawStdEncoding.EncodeToString([]byte(plain)),
			"url":    base64.RawURLEncoding.EncodeToString([]byte(plain)),
			"base32": base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(plain)),
		} {
			if got := string(decode([]byte(encoded))); got != plain {
				t.Errorf("%s at offset %d was decoded to %q", name, offset, got)
			}
			if got := decode([]byte(encoded + hex.EncodeToString([]byte{0, 0, 0, 0}))); name == "hex" && got != nil {
				t.Errorf("%s with zero bytes at the end was decoded to %q", name, got)
			}
		}
	}
}
