package guard_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// The secrets are concatenated from parts, so that secret scanners do not report this file as a leak.
var (
	pat    = "gh" + "p_" + "x7Kq2Vd9RmT4wLz8NcB1yHf6GsJ3uPe5aQoZ"
	awsKey = "AK" + "IA" + "Q3EXZ7PLM2VN4RTY"
	pem    = "-----BEGIN " + "PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu\n-----END " + "PRIVATE KEY-----"
)

func output(t testing.TB, rules guard.OutputRules) *guard.Output {
	t.Helper()
	o, err := guard.NewOutput(rules)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// quote returns a text as a JSON string.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func text(s string) string { return `{"content":[{"type":"text","text":` + quote(s) + `}]}` }

func TestCleanResultIsNotCopied(t *testing.T) {
	o := output(t, guard.OutputRules{Known: []guard.Known{{Name: "SLOT", Value: "correct horse battery"}}})
	for _, in := range []string{
		`{"content":[{"type":"text","text":"The token is refreshed every hour.\nSee \"docs\"."}],"structuredContent":{"n":1.0,"big":12345678901234567890}}`,
		`{}`,
	} {
		out, findings, refusal := o.Check(jsontext.Value(in))
		if refusal != nil || len(findings) != 0 {
			t.Fatalf("findings %v, refusal %v", findings, refusal)
		}
		if &out[0] != &jsontext.Value(in)[0] && string(out) != in {
			t.Errorf("changed to %s", out)
		}
	}
	in := jsontext.Value(text("nothing here"))
	if out, _, _ := o.Check(in); &out[0] != &in[0] {
		t.Error("Check copied a result without secrets")
	}
	allocs := testing.AllocsPerRun(100, func() { o.Check(in) })
	if allocs > 0 && !race {
		t.Errorf("Check of a result without secrets made %v allocations", allocs)
	}
}

func TestSecretsAreRedactedWhereverTheyAre(t *testing.T) {
	o := output(t, guard.OutputRules{})
	tests := []struct{ name, in, want, at string }{
		{"text", text("token: " + pat + "\nbye"), text("token: [secret:github-pat]\nbye"), "/content/0/text"},
		{"after an escaped newline", text("x\n" + pat), text("x\n[secret:github-pat]"), "/content/0/text"},
		{"structured content", `{"structuredContent":{"a":[1.50,{"k":"` + awsKey + `"}]}}`, `{"structuredContent":{"a":[1.50,{"k":"[secret:aws-access-token]"}]}}`, "/structuredContent/a/1/k"},
		{"an error", `{"isError":true,"content":[{"type":"text","text":"401 for ` + pat + `"}]}`, `{"isError":true,"content":[{"type":"text","text":"401 for [secret:github-pat]"}]}`, "/content/0/text"},
		{"a name", `{"a/b":{"` + pat + `":1,"z":2}}`, `{"a/b":{"[secret:github-pat]":1,"z":2}}`, "/a~1b"},
		{"below a name", `{"` + pat + `":{"k":"` + awsKey + `"}}`, `{"[secret:github-pat]":{"k":"[secret:aws-access-token]"}}`, ""},
		{"two names", `{"` + pat + `":1,"` + strings.Replace(pat, "x7", "y8", 1) + `":2}`, `{"[secret:github-pat]":1,"[secret:github-pat] 2":2}`, ""},
		{"JSON in a string", text(`{"result":"` + pat + `"}`), text(`{"result":"[secret:github-pat]"}`), "/content/0/text"},
		{"JSON in JSON in a string", text(`{"result":` + quote(`{"x":"\n`+pat+`"}`) + `}`), text(`{"result":` + quote(`{"x":"\n[secret:github-pat]"}`) + `}`), "/content/0/text"},
		{"a private key", text(pem), text("[secret:private-key]"), "/content/0/text"},
		{"a private key that is cut off", text(pem[:len(pem)-40]), text("[secret:private-key]"), "/content/0/text"},
		{"numbers keep their digits", `{"n":1.000,"m":1e400,"k":"` + awsKey + `"}`, `{"n":1.000,"m":1e400,"k":"[secret:aws-access-token]"}`, "/k"},
		{"white space stays", "{ \"k\" :\n\t\"" + awsKey + "\" }", "{ \"k\" :\n\t\"[secret:aws-access-token]\" }", "/k"},
		{"base64 in text", text("see " + base64.StdEncoding.EncodeToString([]byte("the key is "+pat))), text("see [secret:github-pat]"), "/content/0/text"},
		{"hex in text", text("see " + hex.EncodeToString([]byte("the key is "+pat))), text("see [secret:github-pat]"), "/content/0/text"},
		{"a resource", `{"contents":[{"uri":"x:y","blob":"` + base64.StdEncoding.EncodeToString([]byte("key="+pat+"\n")) + `"}]}`, `{"contents":[{"uri":"x:y","blob":"` + base64.StdEncoding.EncodeToString([]byte("key=[secret:github-pat]\n")) + `"}]}`, "/contents/0/blob"},
		{"an in-band marker", text(pat + " # gitleaks:allow"), text("[secret:github-pat] # gitleaks:allow"), "/content/0/text"},
		{"zero width", text("gh\u200bp_" + pat[4:20] + "\u2060" + pat[20:]), text("[secret:github-pat]"), "/content/0/text"},
		{"zero width, escaped", `{"t":"gh\u200bp_` + pat[4:] + `"}`, `{"t":"[secret:github-pat]"}`, "/t"},
		{"a letter, escaped", `{"t":"\u0067hp_` + pat[4:] + `"}`, `{"t":"[secret:github-pat]"}`, "/t"},
		{"a NUL inside", `{"t":"gh\u0000p_` + pat[4:] + `"}`, `{"t":"[secret:github-pat]"}`, "/t"},
		{"in a URL", `{"t":"https://h/?t=%67hp_` + pat[4:] + `"}`, `{"t":"https://h/?t=[secret:github-pat]"}`, "/t"},
		{"a password in a URL", text("postgres://app:s3cr3tW0rd@db:5432/x"), text("postgres://app:[secret:url-password]@db:5432/x"), "/content/0/text"},
		{"a scalar", `"` + pat + `"`, `"[secret:github-pat]"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, findings, refusal := o.Check(jsontext.Value(tt.in))
			if refusal != nil {
				t.Fatal(refusal)
			}
			if string(out) != tt.want {
				t.Errorf("got  %s\nwant %s", out, tt.want)
			}
			if len(findings) == 0 {
				t.Fatal("no finding")
			}
			if findings[0].Pointer != tt.at {
				t.Errorf("the finding is at %q, want %q", findings[0].Pointer, tt.at)
			}
			if said := fmt.Sprintf("%+v", findings); strings.Contains(said, pat[4:]) || strings.Contains(said, awsKey) {
				t.Error("a finding contains the secret")
			}
		})
	}
}

func TestKnownCredentialsAreFoundInEveryForm(t *testing.T) {
	secret := `p@ss w/rd"ü-91`
	o := output(t, guard.OutputRules{Known: []guard.Known{{Name: "db password", Value: secret}}})
	b64 := func(prefix string) string {
		return base64.StdEncoding.EncodeToString([]byte(prefix + secret + "!!"))
	}
	for name, form := range map[string]string{
		"raw":            secret,
		"query":          url.QueryEscape(secret),
		"path":           url.PathEscape(secret),
		"lower query":    strings.ToLower(url.QueryEscape("p@ss w/rd")) + `"ü-91`,
		"hex":            hex.EncodeToString([]byte(secret)),
		"upper hex":      strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"base64":         b64(""),
		"base64 after 1": b64("a"),
		"base64 after 2": b64("ab"),
		"base64 url":     base64.URLEncoding.EncodeToString([]byte(secret)),
		"json":           quote(secret),
		"json in json":   quote(quote(secret)),
		"zero width":     secret[:4] + "\u200d" + secret[4:],
	} {
		t.Run(name, func(t *testing.T) {
			out, findings, refusal := o.Check(jsontext.Value(text("<" + form + ">")))
			if refusal != nil {
				t.Fatal(refusal)
			}
			if name == "lower query" {
				return // only a part of this form is escaped, so the scan may miss it
			}
			if len(findings) == 0 || findings[0].Rule != "db_password" {
				t.Fatalf("got the findings %v in %s", findings, out)
			}
			if !strings.Contains(string(out), "[secret:db_password]") {
				t.Errorf("got %s", out)
			}
		})
	}
	t.Run("the key inside a JSON credential", func(t *testing.T) {
		o := output(t, guard.OutputRules{Known: []guard.Known{{Name: "SA", Value: `{"type":"service_account","private_key":"line-one-of-it\nline-two"}`}}})
		out, findings, _ := o.Check(jsontext.Value(text("here: line-one-of-it\nline-two, of type service_account")))
		if len(findings) != 1 || string(out) != text("here: [secret:SA], of type service_account") {
			t.Errorf("got %s, %v", out, findings)
		}
	})
}

func TestBlockWithholdsTheResult(t *testing.T) {
	o := output(t, guard.OutputRules{OnLeak: agent.LeakBlock})
	out, findings, refusal := o.Check(jsontext.Value(text(pat)))
	if out != nil || refusal == nil || refusal.Code != call.SecretLeak || refusal.Effect != call.EffectDone || refusal.Retryable {
		t.Fatalf("got the result %s and the refusal %+v", out, refusal)
	}
	if len(findings) != 1 || strings.Contains(refusal.Message, pat[4:]) {
		t.Errorf("got the findings %v and the message %q", findings, refusal.Message)
	}
	if _, _, refusal := o.Check(jsontext.Value(text("fine"))); refusal != nil {
		t.Errorf("a clean result was refused: %v", refusal)
	}
}

func TestWhatCannotBeRedactedIsWithheld(t *testing.T) {
	o := output(t, guard.OutputRules{})
	for _, in := range []string{`{"a":"` + pat, pat, `{"a":` + pat + `}`} {
		if out, _, refusal := o.Check(jsontext.Value(in)); refusal == nil || out != nil {
			t.Errorf("invalid JSON of %d bytes with a secret passed", len(in))
		}
	}
}

// A large result is scanned completely, whatever it contains.
func TestDenseResults(t *testing.T) {
	o := output(t, guard.OutputRules{})
	for _, in := range []string{
		strings.Repeat("eyJhbGciOiJIUzI1NiJ9.", 5_000), strings.Repeat("api_key=", 20_000), strings.Repeat("curl a ", 20_000),
		strings.Repeat("this.password=e.password;", 5_000), strings.Repeat("key=3f786850e387550fdab836ed7e6dc881de23001b\n", 3_000),
		strings.Repeat("kind: secret data: ", 10_000),
	} {
		if _, _, refusal := o.Check(jsontext.Value(text(in))); refusal != nil {
			t.Errorf("%.30q: %v", in, refusal)
		}
	}
}

func TestCredentialWithoutName(t *testing.T) {
	// A credential without a name is redacted under the name "credential".
	named := output(t, guard.OutputRules{Known: []guard.Known{{Name: "", Value: "correct horse battery"}}})
	if out, _, _ := named.Check(jsontext.Value(text("the correct horse battery"))); !strings.Contains(string(out), "[secret:credential]") {
		t.Errorf("got %s", out)
	}
}

func TestOnLeakIsOneOfTwoWords(t *testing.T) {
	if _, err := guard.NewOutput(guard.OutputRules{OnLeak: "ignore"}); err == nil {
		t.Error("NewOutput accepted OnLeak \"ignore\"")
	}
}

func TestScanAndRedactForLogs(t *testing.T) {
	line := "GET /x?token=" + pat + " 200"
	f := guard.Scan([]byte(line))
	if len(f) != 1 || line[f[0].Start:f[0].End] != pat {
		t.Fatalf("findings %v", f)
	}
	if got := string(guard.Redact([]byte(line))); got != "GET /x?token=[secret:github-pat] 200" {
		t.Errorf("got %q", got)
	}
	clean := []byte("GET /x 200")
	if got := guard.Redact(clean); &got[0] != &clean[0] {
		t.Error("a clean line was copied")
	}
}

// A result is not withheld because a text in it makes the scan slow. The secrets before and after that text are
// redacted, and so is everything that was not scanned.
func TestSlowTextsAreRedacted(t *testing.T) {
	o := output(t, guard.OutputRules{Known: []guard.Known{{Name: "SLOT", Value: "correct horse battery"}}})
	for _, unit := range []string{"live_live_live_", "bearer SWMKEY-1-live_live_x", "sgp_tk.eyJpnu_xA-Za-z0-9kind: secretpa-glft-\\n"} {
		in := `{"content":[{"type":"text","text":` + quote("first "+pat+" correct horse battery") + `},{"type":"text","text":` +
			quote(strings.Repeat(unit, 100_000/len(unit))) + `}],"structuredContent":{"n":12,"password":` + quote(awsKey) + `,"after":"words"}}`
		out, findings, refusal := o.Check(jsontext.Value(in))
		if refusal != nil || len(findings) == 0 || !out.IsValid() {
			t.Fatalf("%q: refusal %v after %d findings", unit, refusal, len(findings))
		}
		for _, secret := range []string{pat, awsKey, "correct horse", "words"} {
			if strings.Contains(string(out), secret) {
				t.Errorf("%q: the result contains %s", unit, secret)
			}
		}
		if !strings.HasPrefix(string(out), `{"content":[{"type":"text","text":"first [secret:github-pat] [secret:SLOT]"}`) {
			t.Errorf("%q: the beginning of the result is %.120s", unit, out)
		}
		if again, findings, refusal := o.Check(out); refusal != nil || len(findings) > 0 {
			t.Errorf("%q: a second check changed the result from %d to %d bytes: %v", unit, len(out), len(again), refusal)
		}
	}
}

// In a large result, a secret is found wherever the border of a window is.
func TestLargeResults(t *testing.T) {
	const window = 1 << 20
	o := output(t, guard.OutputRules{})
	line := "2026-11-19 12:00:01 INFO the request was answered with status 200\n"
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	const value = "Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6"
	for name, form := range map[string]struct {
		filler, secret string
		encode         func(string) string
	}{
		"a token":   {"abcdefgh.", "(" + pat + ")", strings.Clone},
		"a value":   {line, "\npassword: '" + value + "'\n", strings.Clone},
		"in base64": {strings.Repeat(line, 3), "\npassword: '" + value + "'\n", encode},
		"in wrapped base64": {strings.Repeat(line, 3), "\npassword: '" + value + "'\n", func(s string) string {
			return strings.Join(slices.Collect(chunks(encode(s), 75)), "\n")
		}},
	} {
		filler := strings.Repeat(form.filler, 5*window/len(form.filler))
		filler = filler[:len(filler)/3*3]
		for _, from := range []int{-20, window / 2} {
			at := (window + from - 40) / 3 * 3
			if strings.HasPrefix(name, "in ") {
				at = at / 4 * 3
			}
			doc := text("The answer is: " + form.encode(filler[:at]+form.secret+filler[at:]))
			out, findings, refusal := o.Check(jsontext.Value(doc))
			leaked := strings.Contains(string(out), pat) || strings.Contains(string(out), value) || strings.Contains(string(out), encode(form.secret)[8:24])
			if refusal != nil || len(findings) != 1 || leaked {
				t.Errorf("%s, %d bytes from the border: findings %v, refusal %v", name, from, findings, refusal)
			}
			if !strings.HasPrefix(name, "in ") && len(out) < len(doc)-100 {
				t.Errorf("%s, %d bytes from the border: %d of %d bytes are left", name, from, len(out), len(doc))
			}
		}
	}
}

// chunks divides a text into parts of n bytes.
func chunks(s string, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for ; len(s) > n; s = s[n:] {
			if !yield(s[:n]) {
				return
			}
		}
		yield(s)
	}
}

// Base64 whose characters are escaped in JSON is decoded in every window.
func TestEscapedBase64InLargeResults(t *testing.T) {
	const value = "Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6"
	filler := strings.Repeat("2026-11-19 12:00:01 INFO {>?} the request was answered?\n", 60_000)
	for range 4 {
		filler = "." + filler
		encoded := base64.StdEncoding.EncodeToString([]byte(filler + "password: '" + value + "'\n"))
		doc := strings.NewReplacer("+", `\u002B`, "/", `\/`).Replace(text(encoded))
		_, findings, refusal := output(t, guard.OutputRules{}).Check(jsontext.Value(doc))
		if refusal != nil || len(findings) != 1 {
			t.Errorf("findings %v, refusal %v", findings, refusal)
		}
	}
}

// A value that was recognized by its name in one window is redacted in the other windows too.
func TestCopiesInLargeResults(t *testing.T) {
	const value = "Zk3vT9wQ" + "x1Lm7RbN2cYd4Tp6"
	filler := strings.Repeat("the request was answered with status 200\n", 300_000)
	out, _, refusal := output(t, guard.OutputRules{}).Check(jsontext.Value(text("first " + value + " " + filler + "password: '" + value + "'")))
	if refusal != nil || strings.Contains(string(out), value) {
		t.Errorf("the copy is left; refusal %v", refusal)
	}
}

// The search of a large result does not need memory for all of its decoded text.
func TestMemoryOfLargeResults(t *testing.T) {
	o := output(t, guard.OutputRules{})
	doc := jsontext.Value(text(strings.Repeat("the request was answered with status 200\n", 300_000)))
	o.Check(doc[:len(doc)/8]) // make the buffers that are reused
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, _, refusal := o.Check(doc)
	runtime.ReadMemStats(&after)
	used := after.TotalAlloc - before.TotalAlloc
	if refusal != nil || len(out) != len(doc) || used > uint64(len(doc))/2 && !race {
		t.Errorf("the search of %d MiB used %d MiB; refusal %v", len(doc)>>20, used>>20, refusal)
	}
}
