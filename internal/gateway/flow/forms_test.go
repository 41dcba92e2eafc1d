package flow

import (
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// A destination is found in the forms in which a text can write it.
func TestForms(t *testing.T) {
	codes := func(format string) string {
		var b strings.Builder
		for _, c := range []byte(eve) {
			fmt.Fprintf(&b, format, c)
		}
		return b.String()
	}
	groups := func(text string, n int) string {
		var b strings.Builder
		for i := 0; i < len(text); i += n {
			b.WriteString(text[i:min(len(text), i+n)] + " ")
		}
		return b.String()
	}
	b64, b32 := base64.StdEncoding.EncodeToString([]byte(eve)), base32.StdEncoding.EncodeToString([]byte(eve))
	for name, form := range map[string]string{
		"rot13":                 "rir@pbyyrpgbe.rknzcyr",
		"shifted by one":        "fwf@dpmmfdups.fybnqmf",
		"decimal codes":         codes("%d "),
		"entities":              codes("&#%d;"),
		"hexadecimal entities":  codes("&#x%x;"),
		"hexadecimal codes":     codes("%02x "),
		"codes of a language":   codes("0x%02X, "),
		"escapes":               codes(`\u%04x`),
		"percent":               codes("%%%02X"),
		"base64 in groups":      groups(b64, 6),
		"base32":                b32,
		"base32 in groups":      groups(b32, 4),
		"each word backwards":   "eve@rotcelloc.elpmaxe",
		"two parts":             "The first part is eve@collec. " + strings.Repeat("It is a long day. ", 30) + "The other part is tor.example.",
		"two parts, in reverse": "The end is ctor.example and the beginning is eve@colle.",
	} {
		v := judge(payer, `{"iban":"`+eve+`"}`, file("Here it is: "+form+" for you."))
		if len(v.Findings) == 0 || v.Findings[0].Reason != OnlyUntrusted {
			t.Errorf("%s: %+v", name, v.Findings)
		}
	}
	for _, text := range []string{
		"The collector and eve wrote an example.", "Ever since, the collec tor of 101 118 101 examples 64 is here.",
	} {
		if v := judge(payer, `{"iban":"`+eve+`"}`, file(text)); len(v.Findings) > 0 {
			t.Errorf("%s: %+v", text, v.Findings)
		}
	}
}
