package secret_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

func echo(t *testing.T, value string) *secret.Echo {
	t.Helper()
	return secret.NewEcho(known(t, secret.Value{Name: "A", Secret: value}), []secret.Value{{Name: "A", Secret: value}})
}

func hidden(e *secret.Echo, text string) string {
	var out strings.Builder
	at := 0
	for _, f := range e.Find([]byte(text)) {
		out.WriteString(text[at:f[0]] + "*")
		at = f[1]
	}
	return out.String() + text[at:]
}

// A part of six bytes is found in any letter case and encoding, and a shorter part is not.
func TestEchoFindsParts(t *testing.T) {
	const value = `Zq7+ab"cd 0\9xYk`
	e := echo(t, value)
	for text, want := range map[string]string{
		"<Zq7+a>":                     "<Zq7+a>",
		"<Zq7+ab>":                    "<*>",
		"<ZQ7+AB>":                    "<*>",
		`<q7+ab"cd 0>`:                "<*>",
		`{"k":"b\"cd 0\\9x"}`:         `{"k":"*"}`,
		`<\u0062\u0022cd\u0020\x30>`:  "<*>",
		"<b%22cd+0>":                  "<*>",
		"<%62%22%63%64%200>":          "<*>",
		`<\u0025\u0036\u0032%22cd+0>`: "<*>",
		"<5A71372B6162>":              "<*>",
		"<5a51372b4142>":              "<*>",
		"<5a71372b61>":                "<5a71372b61>",
		"<cd 0 9xYk>":                 "<cd 0 9xYk>",
	} {
		if got := hidden(e, text); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
	for before := range 3 {
		for from := range len(value) - 5 {
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				text := enc.EncodeToString([]byte("..."[:before] + value[from:from+6] + "..."))
				if got := hidden(e, text); len(got) > len(text)-6 {
					t.Errorf("%q in base64 after %d bytes became %s", value[from:from+6], before, got)
				}
			}
		}
	}
}

// Text that many secrets of a kind share, such as a prefix, is not masked, because answers need it.
func TestEchoKeepsPublicText(t *testing.T) {
	for value, texts := range map[string][2]string{
		"github_pat_11ABCDEFG0aBcDeF":          {"https://api.github.com/_pat 11ABCDEFG", "https://api.github.com/_pat *"},
		"sk_live_51HabcDEFghi":                 {"cs_live_a1, 51Habc", "cs_live_a1, *"},
		"eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.AbCd": {"eyJhbGciOiJIUzI1NiJ9.eyJ, .eyJhI", "eyJhbGciOiJIUzI1NiJ9.eyJ, *"},
		"secret":                               {"a secret", "a *"},
		`{"type":"service","uri":"https://a.example","private_key":"aBcDeFgHiJ"}`:                                          {`"type":"service", "https://b.example", CDEFGH`, `"type":"service", "https://b.example", *`},
		"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgVcB1Uo\n-----END PRIVATE KEY-----\n": {"-------- BEGIN", "-------- BEGIN"},
	} {
		if got := hidden(echo(t, value), texts[0]); got != texts[1] {
			t.Errorf("%s: %s became %s, want %s", value, texts[0], got, texts[1])
		}
	}
}

// Parts of every string in a JSON credential are found, whatever its name and depth, unless the string is clearly
// public.
func TestEchoOfJSON(t *testing.T) {
	e := echo(t, `{"type": "service_account", "value": "pLain4You", "deep": [{"x": ["qWerty77"]}, "zXcvbn88"], "short": "aBcD5",
"project_id": "my-project-1", "tenantId": "contoso-main", "client_email": "bot@my-project-1.iam.gserviceaccount.com",
"universe_domain": "googleapis.com", "token_uri": "https://oauth2.example.com/token", "hook": "https://u:secret77@h.test/x",
"private_key_id": "0a1b2c3d4e", "enabled": true, "number": 12345678}`)
	for text, want := range map[string]string{
		"<pLain4>": "<*>", "<Werty77>": "<*>", "<zxcvbn>": "<*>", "<secret7>": "<*>", "<0a1b2c>": "<0a1b2c>", "<aBcD5>": "<aBcD5>",
		"a service account of my-project-1 at googleapis.com": "a service account of my-project-1 at googleapis.com",
		"contoso-main bot@my https://oauth2.example.com/":     "contoso-main bot@my https://oauth2.example.com/",
		`{"project_id": 12345678, "enabled": true}`:           `{"project_id": 12345678, "enabled": true}`,
	} {
		if got := hidden(e, text); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}

// A text that consists of parts has few matches, because overlapping parts are joined while the text is read.
func TestEchoIsLinear(t *testing.T) {
	e := echo(t, "aaaaaaaaaaaa")
	for _, unit := range []string{"a", "61", "%61", `\u0061`, "YWFh"} {
		text := []byte(strings.Repeat(unit, 1<<20/len(unit)))
		if got := e.Find(text); len(got) > 2 || got[0][0] > 3 || got[len(got)-1][1] < len(text)-3 {
			t.Errorf("%s: got %d matches, want the whole text", unit, len(got))
		}
	}
}
