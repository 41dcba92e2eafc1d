package view

import (
	"strings"
	"testing"
)

func TestLookAlikes(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"pay 100 to paypal.com":          "",
		"Café Zürich, naïve façade, ÅÄÖ": "",
		"Привет, мир":                    "",
		"Καλημέρα κόσμε":                 "",
		"東京都 Tシャツ 한국어":                   "",
		"T\u0435st":                      "T\u0435st=Test",
		"pay \u0440\u0430ypal.com":       "\u0440\u0430ypal=paypal",
		"\u0440\u0430\u0443 now":         "\u0440\u0430\u0443=pay",
		"a \u043e b":                     "",
		"\uff50\uff41\uff59":             "\uff50\uff41\uff59=pay",
		"\U0001d429\U0001d41a\U0001d432": "\U0001d429\U0001d41a\U0001d432=pay",
		"DE89 \u041e370":                 "\u041e370=O370",
		"\u0440ay \u0440ay \u0440ay":     "\u0440ay=pay",
	} {
		var got []string
		for _, l := range LookAlikes(text, 5) {
			got = append(got, l.Word+"="+l.Reads)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q has the look-alikes %q, want %q", text, got, want)
		}
	}
	if got := LookAlikes("\u0440ay \u0440ey \u0440iy", 2); len(got) != 2 {
		t.Errorf("%d look-alikes were returned, want 2", len(got))
	}
}
