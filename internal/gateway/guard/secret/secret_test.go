package secret_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// token is concatenated from parts, so that secret scanners do not report this file as a leak.
var token = "gh" + "p_" + "x7Kq2Vd9RmT4wLz8NcB1yHf6GsJ3uPe5aQoZ"

func scan(t testing.TB, text string) []secret.Match {
	t.Helper()
	return secret.Standard().Scan([]byte(text), nil, nil)
}

// A secret is found at every position, even if it crosses the border of a block or lane.
func TestFoundAtEveryOffset(t *testing.T) {
	for _, size := range []int{0, 1, 63, 255, 256, 1000, 1<<14 - 20, 1 << 14, 1<<16 - 45, 1<<16 - 20, 1<<16 - 4, 1 << 16, 1<<16 + 1, 1 << 17} {
		text := strings.Repeat("word and ", size/9) + strings.Repeat(".", size%9) + token + strings.Repeat(" and word", 3000)
		m := scan(t, text)
		if len(m) != 1 || text[m[0].Start:m[0].End] != token {
			t.Errorf("after %d bytes, the matches are %v", size, m)
		}
	}
}

func twice(s string) string { return base64.StdEncoding.EncodeToString([]byte("text " + s)) }

func wrap(s string, width int) string {
	var out strings.Builder
	for i := 0; i < len(s); i += width {
		out.WriteString(s[i:min(len(s), i+width)] + "\n")
	}
	return out.String()
}

func zip(s string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write([]byte(s))
	w.Close()
	return out.Bytes()
}

func TestLayers(t *testing.T) {
	noise := strings.Repeat("\x8f\x03\xfe\x91", 100)
	for name, text := range map[string]string{
		"plain":                token,
		"after an escape":      `x\n` + token,
		"in a path":            `C:\npm_` + "Zk3vT9wQx1Lm7RbN2cYd4Tp6Hs8Kf5Gj0XaE",
		"unicode escape":       `\u0067` + token[1:],
		"hex escape":           `\x67` + token[1:],
		"percent":              "https://example.com/?t=%67" + token[1:],
		"invalid percents":     "50% off, 7 %zz and https://example.com/?t=%67" + token[1:],
		"zero width":           token[:6] + "\u200b" + token[6:],
		"escaped zero width":   token[:6] + `\u200b` + token[6:],
		"tag characters":       token[:6] + "\U000e0041" + token[6:],
		"soft hyphen":          token[:6] + "\u00ad" + token[6:],
		"variation selector":   token[:6] + "\ufe0f" + token[6:],
		"in-band switch":       token + " // gitleaks:allow",
		"another switch":       token + " # nosec pragma: allowlist secret",
		"at the end of a text": "x=" + token,
		"line break":           "see " + token[:20] + "\n    " + token[20:] + "\n",
		"space":                token[:14] + " " + token[14:] + " is it",
		"bold":                 token[:12] + "**" + token[12:20] + "**" + token[20:],
		"color":                token[:12] + "\x1b[31m" + token[12:20] + "\x1b[0m" + token[20:],
		"double percent":       "https://example.com/?t=%2567" + token[1:],
		"entity":               "&#103;" + token[1:],
		"base64":               base64.StdEncoding.EncodeToString([]byte("x " + token)),
		"base64 twice":         twice(twice(token)),
		"base64 three times":   twice(twice(twice(token))),
		"UTF-16 of base64":     base64.StdEncoding.EncodeToString([]byte(strings.Join(strings.Split(token, ""), "\x00") + "\x00")),
		"tag":                  token[:12] + "<em>" + token[12:20] + "</em>" + token[20:],
		"wrapped base64":       wrap(base64.StdEncoding.EncodeToString([]byte("some text before it "+token+" and some after it")), 20),
		"base64 in a line":     "the key\n" + base64.StdEncoding.EncodeToString([]byte("x "+token)) + "\nof the house",
		"gzip":                 base64.StdEncoding.EncodeToString(zip("some text before it " + token)),
		"a binary file":        base64.StdEncoding.EncodeToString([]byte(noise + token + noise)),
		"UTF-16 in base64":     base64.StdEncoding.EncodeToString([]byte(noise + strings.Join(strings.Split(token, ""), "\x00"))),
		"hex":                  hex.EncodeToString([]byte("x " + token)),
		"UTF-16":               strings.Join(strings.Split(token, ""), "\x00"),
		"fullwidth":            "ｇ" + token[1:9] + "Ｎ" + token[10:],
		"look-alike":           token[:10] + "а" + token[11:],
	} {
		if m := scan(t, text); len(m) != 1 {
			t.Errorf("%s: got the matches %v, want one", name, m)
		}
	}
}

// A token behind the backslash of a path is found wherever the path is, and however many other backslashes there are.
func TestPaths(t *testing.T) {
	path := `C:\npm_` + "Zk3vT9wQx1Lm7RbN2cYd4Tp6Hs8Kf5Gj0XaE"
	// The word of this format is not at the beginning of the token.
	far := `C:\n1a2b3c4d5e` + "AAAAAAAAAA" + "zk3vt9wqx1lm7rbn2cyd4tp6hs8kf5gj0xae7h2m9p4"
	for n := range 70 {
		if m := scan(t, `\n`+strings.Repeat(`x`, n)+" "+far); len(m) != 1 || m[0].Rule != "dropbox-long-lived-token" {
			t.Errorf("after %d letters, the matches are %v, want a token of Dropbox", n, m)
		}
	}
	for _, before := range []string{`C:\temp `, `\n`, `\\`, "a word "} {
		for n := range 70 {
			text := strings.Repeat(before, 1_000) + strings.Repeat("x", n) + " " + path
			if m := scan(t, text); len(m) != 1 {
				t.Errorf("after 1000 times %q and %d letters, the matches are %v, want one", before, n, m)
			}
		}
	}
	for at := 1<<16 - 30; at < 1<<16+30; at++ {
		if m := scan(t, strings.Repeat(`\t`, at/2)+path); len(m) != 1 {
			t.Errorf("behind %d bytes of escapes, the matches are %v, want one", at, m)
		}
	}
}

// The columns of a table have names, wherever the table begins.
func TestTables(t *testing.T) {
	table := "host,user,password\nalpha.test,anna,Zk3vT9wQx1\nbeta.test,ben,Lm7RbN2cYd\n"
	for name, before := range map[string]string{
		"at the start": "", "after a line": "the hosts\n",
		"after a long line": strings.Repeat("the password\t", 100) + "\n",
	} {
		if m := scan(t, before+table); len(m) != 2 {
			t.Errorf("%s: got the matches %v, want two", name, m)
		}
	}
}

func TestMatchesDoNotOverlap(t *testing.T) {
	text := "api_key = \"" + token + "\" secret: " + token + token
	last := 0
	for _, m := range scan(t, text) {
		if m.Start < last || m.End <= m.Start {
			t.Errorf("the match %v is empty or overlaps the match that ends at %d", m, last)
		}
		last = m.End
	}
	if last == 0 {
		t.Error("Scan found no secret")
	}
}

// hostile lists texts that make a scan try many candidates.
var hostile = map[string]string{
	"open keys":   strings.Repeat("-----BEGIN RSA PRIVATE KEY-----\n", 5_000),
	"curls":       strings.Repeat("curl -u a ", 20_000),
	"assignments": strings.Repeat("api_key=", 20_000),
	"values":      strings.Repeat("data:glc_SWMKEY-1-secret-\u200b", 5_000),
	"two formats": strings.Repeat("AzFuglffct-", 10_000),
	"colons":      strings.Repeat("token:", 20_000),
	"open quotes": strings.Repeat("password='", 20_000),
	"slashes":     strings.Repeat("://a:", 20_000),
	"base64":      strings.Repeat("QUFBQUFB", 20_000),
	"prefixes":    strings.Repeat("glpat-", 20_000) + strings.Repeat("sk-", 20_000) + strings.Repeat("AKIA", 20_000),
	"tokens":      strings.Repeat("eyJhbGciOiJIUzI1NiJ9.", 5_000),
	"entries":     "kind: Secret\n" + strings.Repeat("data: aGVsbG8gd29ybGQ\n", 5_000),
	"manifests":   strings.Repeat("kind: secret data: ", 10_000),
	"bearers":     strings.Repeat("Bearer "+strings.Repeat("a", 2_000)+"===x ", 50) + ";password=abcdefg;",
	"escapes":     strings.Repeat(`\u0041%41&#65;`, 10_000),
	"invisible":   strings.Repeat("a\u200b", 20_000),
	"tables":      strings.Repeat("a,password\nb,c\n", 10_000),
	"headers":     "a,b\n" + strings.Repeat(strings.Repeat("password,", 50)+"a\n", 500),
	"sentences":   strings.Repeat("password of a ", 10_000),
	"commands":    strings.Repeat("docker login -p mysql -p ", 5_000),
	"cookies":     "Cookie: " + strings.Repeat("a=b; ", 20_000),
	"wide":        strings.Repeat("ghp＿ａ", 20_000),
}

// A scan reads at most a small multiple of the size of its text.
func TestLinearWork(t *testing.T) {
	for name, text := range hostile {
		if steps, _ := secret.Standard().Work([]byte(text)); steps > 16*len(text) {
			t.Errorf("%s: the scan of %d bytes read %d bytes of runs", name, len(text), steps)
		}
	}
}

// Repeated words make several rules read the same runs. The work stays linear.
func TestLinearWorkOfRepeatedWords(t *testing.T) {
	words := secret.Standard().Words()
	for _, signs := range []string{"=", ":", ": ", `"`, "'", "`", ">", ",", ";", "&", "|", "\n", " ", "-", "_", ".", "/", "0", "A", "Zk3vT9wQ", "\u200b", "%41", `\n`} {
		words = append(words, signs, signs, signs)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 2_000 {
		unit := ""
		for range 1 + r.IntN(6) {
			unit += words[r.IntN(len(words))]
		}
		text := strings.Repeat(unit, 20_000/len(unit))
		if steps, _ := secret.Standard().Work([]byte(text)); steps > 40*len(text) {
			t.Errorf("%q, repeated: the scan of %d bytes read %d bytes of runs", unit, len(text), steps)
		}
	}
}

// All decoded forms of a text together are at most as large as the text, whatever it contains.
func TestDecodedTextIsBounded(t *testing.T) {
	for name, text := range hostile {
		for range 4 {
			if _, decoded := secret.Standard().Work([]byte(text)); decoded > len(text)+secret.FreeDecode {
				t.Errorf("%s: the scan of %d bytes decoded %d bytes", name, len(text), decoded)
			}
			text = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
}

// Once a value was found, all its copies, parts and encodings are found too.
// A token is found although the letter before its word differs from the word only in case.
func TestLetterBeforeSequence(t *testing.T) {
	text := "we saw 1b2c3d4e5fa" + "AAAAAAAAAA" + "zk3vt9wqx1lm7rbn2cyd4tp6hs8kf5gj0xae7h2m9p4 there"
	if m := scan(t, text); len(m) != 1 || m[0].Rule != "dropbox-long-lived-token" {
		t.Errorf("the matches are %v, want a token of Dropbox", m)
	}
}

// A copy or part is found at every offset.
func TestCopiesAtEveryOffset(t *testing.T) {
	const value = "Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6"
	for shift := range 9 {
		for from := range len(value) - 16 + 1 {
			for to := from + 16; to <= len(value); to++ {
				text := "password: '" + value + "'\n" + strings.Repeat("-", shift) + value[from:to] + " and more"
				if m := scan(t, text); len(m) != 2 || text[m[1].Start:m[1].End] != value[from:to] {
					t.Errorf("%q: the matches are %v", text, m)
				}
			}
		}
	}
}

func TestCopies(t *testing.T) {
	const value = "Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6"
	first := "password: '" + value + "'\n"
	for name, text := range map[string]string{
		"copy":         value,
		"in a word":    "x" + value + "y",
		"part":         value[:18],
		"another part": value[5:23],
		"base64":       base64.StdEncoding.EncodeToString([]byte("user:" + value)),
		"hex":          hex.EncodeToString([]byte(value)),
		"percent":      "https://host.test/?q=%5A" + value[1:],
	} {
		clean, _ := redact(secret.Standard(), first+"and "+text+" again")
		if strings.Contains(clean, text) {
			t.Errorf("%s: the copy was not redacted: %q", name, clean)
		}
	}
	if clean, _ := redact(secret.Standard(), first+"and "+value[:9]+" again"); !strings.Contains(clean, value[:9]) {
		t.Errorf("a short part was removed: %q", clean)
	}
}

// A value is found because of the name before it, in every notation.
func TestNames(t *testing.T) {
	const strong, pass = "Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6", "hunter" + "2x!9"
	const hexKey = "9f8e7d6c5b4a" + "39281706f5e4d3c2b1a0"
	for _, text := range []string{
		`{"password": "` + pass + `"}`, `{"pwd":"` + pass + `"}`, `{"passphrase": "` + pass + `"}`, "mysql --password " + pass,
		"tool --password=" + pass, "Server=db;Password=" + pass, "password=fpemecwjmc3lYP1U" + "BofVedJm;", "api_key=" + strong + "(x)", "Server=db;Pwd=" + pass + ";", "DB_PASS=" + pass,
		"password: " + pass, "<password>" + pass + "</password>", `<add key="Password" value="` + pass + `"/>`,
		`{"name": "DB_PASSWORD", "value": "` + pass + `"}`, "- name: API_TOKEN\n  value: " + strong,
		"<key>ApiToken</key><string>" + strong + "</string>", `System.setProperty("API_TOKEN", "` + strong + `")`,
		"api_key=" + hexKey, "x-api-key: " + hexKey, "API_KEY: " + strong, `var token string = "` + strong + `"`,
		"TOKEN " + strong, "Authorization: Bearer " + strong, "authorization: Basic YWxhZGRpbjpv" + "cGVuc2VzYW1lMTIz",
		"Cookie: theme=dark; session=" + strong, "otpauth://totp/a?secret=JBSWY3DPEH" + "PK3PXP&issuer=x",
		"https://user:" + pass + "@host.test/", "https://" + strong + "@host.test/", "https://host.test/?sig=" + strong + strong,
		"machine host.test login me password " + pass, "curl -u me:" + pass + " https://host.test",
		"curl -u :" + pass + " https://host.test", "curl --user ':" + pass + "' https://host.test",
		"data:\n  a: aHVudGVyMng" + "hOQ==\nkind: Secret\n",
		"PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 1\n" + strong + "\nPrivate-MAC: 12ab\n",
		"-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat(strong, 4) + "\n-----END RSA PRIVATE KEY-----",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----\n" + strings.Repeat(strong, 4) + "\n", "$token .= '" + strong + "'",
		"curl --user \"me:" + pass + "\" x", "curl --user 'me:" + pass + "' x", "Bearer " + strong + ".", "APP_KEY=base64:" + strong,
		"token: `" + strong + "`", "Set-Cookie: sid=" + strong + "; Path=/", "password=" + pass + ":" + strong, "app.token := " + strong,
		"kind: Secret\nmetadata:\n  name: x\ndata:\n  a: aHVudGVyMng" + "hOQ==\n",
		"kind: Secret\ndata: # see below\n  # data: the password\n\n  a: aHVudGVyMng" + "hOQ== # old\n  # and\n  b: aHVudGVyMng" + "hOQ==\n",
		"tool --secret \"" + strong + "\"", "CREATE USER a WITH PASSWORD '" + pass + "';", "ALTER USER a IDENTIFIED BY '" + pass + "'",
		"user.setPassword(\"" + pass + "\")", "SET PASSWORD = PASSWORD('" + pass + "')", "app.secret_key = b\"" + strong + "\"",
		`{"key": "token", "type": "string", "value": "` + strong + `"}`, `{"db_password": {"value": "` + pass + `"}}`,
		"variable \"db_password\" {\n  default = \"" + pass + "\"\n}", "ENV API_SECRET \"" + strong + "\"\n", "requirepass " + pass + "\n",
		"Key         Value\npassword    " + pass + "\n", "**Password:** `" + pass + "`", "the password of the database is " + pass + ", ok?",
		"A password was generated for the user root@host: " + pass, "contraseña: " + pass, "https://host.test/token/" + strong + "/x",
		"name,url,password\na,https://host.test," + pass + "\n", "| User | API Key | Since |\n|---|---|---|\n| a | " + strong + " | 2026 |\n",
		"the API key is " + hexKey + ", ok?", "use secret `" + strong + "` for it", `{"auths":{"host.test":{"auth":"YTpodW50ZX` + `IyeDlhYmM="}}}`,
		"-----BEGIN OpenVPN Static key V1-----\n" + strings.Repeat(hexKey+"\n", 16) + "-----END OpenVPN Static key V1-----",
		"/bot1234567890:AA" + strong + "qX7wE2rT9" + "/sendMessage", "https://mainnet.infura.io/v3/" + hexKey,
		"API key=" + hexKey, "DB_PASSWORD=garden.Sun-99", "db := open(\"root:" + pass + "@tcp(host:3306)/x\")", "mysql -u root -p" + pass + " shop",
		"docker login -u ci -p " + strong + " host.test", "redis-cli -a " + strong, "sshpass -p '" + pass + "' ssh a@host.test",
		"webhook_secret=hkfrp232" + "CF+", "Cookie: sid=jprdd958" + "FD+; path=/", "token: gdppg882" + "GB_",
		"api_key=mOib3PrtUe5I" + "oOoPlbo7YOoI", "https://host.test/?key=NlGVRDogUw0y" + "KopzfT2lIs0g",
		"https://eth-mainnet.g.alchemy.com/v2/" + strong + "aB3dE6gH", "otpauth-migration://offline?data=" + strong + strong + "%3D",
	} {
		clean, n := redact(secret.Standard(), text)
		if n == 0 {
			t.Errorf("nothing is found in %q", text)
		}
		if again, n := redact(secret.Standard(), clean); n > 0 {
			t.Errorf("a second scan changes %q to %q", clean, again)
		}
	}
	for _, text := range []string{
		`"KeySpec": "ECC_NIST_P521"`, "exports.n8nOAuth2Auth = n8nOAuth2Auth;", "--credential-provider-bin-dir=/tmp/node-e2e-12345",
		"--- PASS: TestWrite2/Zk3vT9wQx1 (0.00s)", `"key": "QXDkhSlVht1FKMD49vvU"`, `{"userKey":"b54e7cb9-8f1d-4d3a-a6c1-7e43b1ff3a0d"}`,
		`"hashed_token": "1da0eb8f5517500a144c3c362d702d6c066d612a"`, "except BadPassphraseError:", "'PASSWORD': MissingPassPhrase,",
		"PASSWORD_HASHERS = ['app.contrib.hashers.PBKDF2PasswordHasher']", `{"reset-password": "#5195CE"}`, `token = "rgba(255,231,130,0.4)"`,
		`info{secret="default-token-x7k2p"} 1`, "SSL_KEY_CREDENTIALS: service1_sslkey_creds", `"identitytoken": "9cbaf023786cd7..."`,
		"key: ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDACh1rt2DXfV3hk6fsz", "postgres://postgres:postgres@localhost/x", "credentials: b54e7cb9-8f1d-4d3a-a6c1-7e43b1ff3a0d",
		"the value that is passed to Make is 0xD5828281", "the password of this account is required", "\tIOCTOKEN                 = -0x3f879678\n", "tokensMu    sync.RWMutex\n",
		"import (\n\ta,\n\tpassword,\n\thunter2x9,\n)", "name,password,type\na,0,int32\nb,12,string8\n", "name,key\na,Zk3vT9wQx1Lm7RbN2cYd\n",
		"s3://access_key:secret_access_key@region/bucket", "Cookie: app.token=eyJhbGciOiJIUzI1Ni...", `sdk/credentials="v1.13.26"`,
		"bump(golang.org/x/oauth2): a6bd8cefa1811bd24b86f8902872e4e8225f74c4", "kind: Secret\ndata:\n  token: $plugin.myplugin.token\n",
		"passwordPolicyConfig?: Schema$GoogleCloudIdentityAdminV2PasswordPolicyConfig;", `check("roles.0.head_node.0.password", "roles.0.head_node.0.vm_size")`,
		`gitCredentialCmd "github.com/cli/cli/v2/pkg/cmd/auth/gitcredential"`, "OAuth2Flows:t5.OAuth2Flows,", "int(s.NonVoluntaryCtxtSwitches)",
		"https://vault.host.test/secrets/bird/fdf067c93bbb4b22bff4d8b7a9a56217", "kind: Secret\ndata:\n  one: \"\"\nbinaryData:\n  two: \"\"\n",
		"Address config.Secret   `toml:\"address1\"`", `"AWS::ApiGateway::ApiKey": "48205d4ffd7feba3",`, "pass `v8::Isolate::GetCurrent()` to it",
		`"IAMUserChangePassword": "arn:aws-cn:iam::aws:policy/IAMUserChangePassword"`, `MovedAttribute("HTTPPasswordMgr", "urllib2")`,
		`"LockToken":"447e55ac-2396-4c6d-b9f9-86b67c17f8b5"`, `"clientToken": "` + strong + `"`, "103-xauth_1%3a1.1.2-1_amd64.deb",
		"[x](https://host.test/badge.svg?token=JMVj1pFT2l)", "Next page token: eav1OzQB0OM8rLdGXOEsyQWSG", `"output_token": "Jobs[-1].JobId"`,
		"x=(F.questionToken??F.type?1:0)", "https://host.test/credential-assertions?polyglot=rpcsp-v1-0", `e.password="";e.hash="";`,
		"X-Amz-Credential=ABABABABAB/20201007/eu-west-1/s3/aws4_request", "client_secret='Qh...wwI'", "Cookie: __utma=1.1978842379.1323102373.1323102373",
		`"RuleListKey":{"value":"sdk-Queues-2317"}`, `"PnsCredentials":{"value":"nh-sdk-hub"}`, "BASIC_AUTH = \"dXNlcm5hbWU6cGFzc3dvcmQ=\"",
		"-----BEGIN RSA\n PRIVATE KEY-----  <unencrypted_key_value>   -----END RSA\n PRIVATE KEY-----",
		"from a.b import util as api_util\nfrom googlecloudsdk.core import log\nfrom googlecloudsdk.core import x\n",
		"https://play.host.test/?code=0x01+//+QNaN%0A0x02+//+Positive+Zero%0A0x04+//+Negative%0A", "kind: Secret\ndata:\n  a.json: JSON_FILE_BASE64_ENCODED\n",
		"<name>password-lib</name><version>2.6.0.Final</version>", "password = base64EncodingPrefix + rest",
		"integrity sha512-b7sH/auth==\n\n\"oauth4webapi@^9.1.0\":\n", "PASSWORD=\nUSER1=garden99\n",
		"checksum/secret: " + hexKey + hexKey, "Accepted key SHA256:qi2cAxR+oezwVfpGP8hbnudnVq7ltUvMOhzp6vo0otA", " /etc/pam.d/passwd " + hexKey,
		"image: host.test/password:14.0.11@sha256:" + hexKey + hexKey, `"key":"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE1Olb3zMAFFxXKHiIkQO5cJ3Y"`,
		`<a href="/video.ico-d41d8cd98f00b204e9800998ecf8427e.png">`, `{"key_id":"0123","key":"2Sg8iYjAxxmI2LvUXpJjkYrMxURPc8r+dB7TJyvv1234"}`,
		"mkdir -p build/Zk3vT9wQ", "node_modules/token/index.js",
		"key=3f786850e387550fdab836ed7e6dc881de23001b", "idempotency_key: 123e4567-e89b-12d3-a456-426614174000",
		"golang.org/x/oauth2 v0.35.0 h1:Mv2mzuHuZuY2+bkyWXIHMfhNdJAdwW3FuWeCPYN5GVQ=", "this.password=e.password;",
		`"password": "string"`, "password: ${DB_PASSWORD}", "token_url: https://host.test/oauth2/v2/token",
		`"integrity": "sha512-ivBiE0hcTqk2BzvKDnk4ALSOVCTVXtNGqWTyYdKpxnAeYmVHo2Cc7iXK7AmaIm"`, "PWD=/home/user/work2",
		"-----BEGIN PUBLIC KEY-----\n" + strings.Repeat(strong, 4), "-----BEGIN RSA PRIVATE KEY-----\nshort", "-----BEGIN",
		"PuTTY-User-Key-File-3: " + strings.Repeat("x ", 9_000) + "Private-MAC: 1", "curl -u me", "curl -u me:pass", "bearer of news",
		"https://user:pass@example.com", "https://user@host.test", "?sig=short", "sig=" + strong + strong, "kind: SecretStore",
		"https://9f8e7d6c5b4a39281706f5e4d3c2b1a0@o1.ingest.sentry.io/1", "token(abc123def456)", "token = get1Token2(x)",
		"secretName: my-secret-2", "The password must have 8 characters.", "public_key: " + hexKey, `"pubkey": "` + strong + `"`, "api_key: your_api_key_1",
	} {
		if m := scan(t, text); len(m) > 0 {
			t.Errorf("%v is found in %q", m, text)
		}
	}
}

func TestScansAreIndependent(t *testing.T) {
	e := secret.Standard()
	done := make(chan string)
	for i := range 8 {
		go func() {
			text := fmt.Sprintf("%d %s %s", i, strings.Repeat("filler ", i*1000), token)
			for range 20 {
				m := e.Scan([]byte(text), nil, nil)
				if len(m) != 1 || text[m[0].Start:m[0].End] != token {
					done <- fmt.Sprint(m)
					return
				}
			}
			done <- ""
		}()
	}
	for range 8 {
		if problem := <-done; problem != "" {
			t.Error(problem)
		}
	}
}

func TestCleanTextCostsNothing(t *testing.T) {
	e := secret.Standard()
	text := bytes.Repeat([]byte("The key to the garage is under the mat, says the author of the token story.\n"), 500)
	var m []secret.Match
	if n := testing.AllocsPerRun(50, func() { m = e.Scan(text, nil, m[:0]) }); n > 0 && !race || len(m) > 0 {
		t.Errorf("the scan made %v allocations and found %v, want no allocations and no matches", n, m)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if err := secret.Load(); err != nil {
			b.Fatal(err)
		}
	}
}

// Real text contains values with names like "password" that are not secret, and encoded data that contains the
// beginnings of short formats.
func TestValuesOfOtherKinds(t *testing.T) {
	const strong = "Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6"
	r := rand.New(rand.NewPCG(8, 8))
	font := make([]byte, 3_000)
	for i := range font {
		font[i] = byte(r.IntN(256))
	}
	data := base64.StdEncoding.EncodeToString(font)
	long := strings.ReplaceAll(strings.ReplaceAll(data[2_000:2_400], "+", "x"), "/", "y")
	for _, text := range []string{
		`"NextToken": "` + strong + `"`, `"clientRequestToken": "` + strong + `"`, `type T = "USERNAME"|"PASSWORD"|"AWS_ACCESS_KEY"|"X"`,
		`"PasswordLastUsed": "2016-09-24T16:18:07Z"`, "token_expires_at: 2023-05-16T08:47:09.000-07:00", "Password?: StringMaxLen256;", "with_password|kadm5_modify2_principal", "RESET_PASSWORD = '/v1/accounts:resetPassword'",
		"arn:aws:secretsmanager:us-east-1:012345678901:secret:myuser/TARGET.postgresql-0123456",
		"src: url(data:font/woff;base64," + data[:1_500] + "/AQ" + long + "+" + data[2_400:] + ")",
		"certificate: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t" + data[:400], `the token?"),wz=l.localize(1775,"x"`,
		"@GLIBCXX_3.4.5\nFUNC:_ZNKSbIwSt11char_traitsIwESaIwEE12find_last_ofEPKwmm@GLIBCXX_3.4",
	} {
		if m := scan(t, text); len(m) > 0 {
			t.Errorf("%v is found in %.80q", m, text)
		}
	}
	for _, text := range []string{
		"curl --user kevin:'pRf7vG2h" + "1L8nQkW9' https://host.test", "AQ" + long, "https://host.test/a/AQ" + long + "/b",
		"| password | hunter2x!9 |", "a certificate-authority-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0t" + data[:400],
		"Server=db;Password=StringMaxLen256;",
	} {
		if m := scan(t, text); len(m) == 0 {
			t.Errorf("nothing is found in %.80q", text)
		}
	}
}

// A value that contains encoded text does not make other encodings of the same text secret.
func TestCopiesOfEncodedText(t *testing.T) {
	const host = "eyJpc3MiOiJodHRwczovL2hvc3QudGVzdC9hL2IvYyJ9"
	jwt := "eyJhbGciOiJIUzI1NiJ9." + host + ".Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6"
	text := "Authorization: Bearer " + jwt + "\nissuer " + host + "\nthe signature is Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6"
	m := scan(t, text)
	if len(m) != 2 || text[m[0].Start:m[0].End] != jwt || m[1].Start < strings.Index(text, "signature") {
		t.Errorf("the matches in %q are %v", text, m)
	}
}

// All copies of a token are redacted, for every format. A token of fewer than 16 characters is redacted only where it
// is a word of its own.
func TestCopiesOfEveryFormat(t *testing.T) {
	e := secret.Standard()
	for seed := range uint64(3) {
		for _, x := range e.Examples(rand.New(rand.NewPCG(22, seed))) {
			text := "a " + x.Token + " b\nq(" + x.Token + ")\n"
			if len(x.Token) >= 16 {
				text += "q" + x.Token + "\n"
			}
			if clean, _ := redact(e, text); strings.Contains(clean, x.Token) {
				t.Errorf("%s: a copy is left in %q", x.Rule, clean)
			}
		}
	}
}
