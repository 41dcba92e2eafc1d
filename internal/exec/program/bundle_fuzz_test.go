package program

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// FuzzBundleAnswer checks that only a line with the mark is an answer. The result must be valid
// JSON, and the log must not contain a credential.
func FuzzBundleAnswer(f *testing.F) {
	const mark, lentValue = "mark-1 ", "kn0wn-cr3dential"
	for _, s := range []string{
		mark + `{"value":{"a":1}}`, mark + `{"value":"text"}` + "\r\n", mark + `{"thrown":"no"}`, mark + `{"broken":"\u001b[2J"}`, mark + `{"value":{"content":[{"type":"text"}],"isError":true}}`,
		"noise " + lentValue + "\n" + mark + `{}`, mark + "{", mark + `{"value":{"a":1,"a":2}}`, mark + `{"value":1}` + "\n" + mark + `{"value":2}`, mark,
	} {
		f.Add([]byte(s))
	}
	known, err := secret.NewKnown([]secret.Value{{Name: "SLOT", Secret: lentValue}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, stdout []byte) {
		b := &Bundle{options: BundleOptions{Log: func(line string) {
			if strings.Contains(line, lentValue) || strings.HasPrefix(line, mark) {
				t.Errorf("the log contains a credential or an answer: %q", line)
			}
		}}}
		r := &run{credentials: &runCredentials{known: known}}
		o := b.answer(r, stdout, mark)
		if o != nil && !strings.Contains("\n"+string(stdout), "\n"+mark) {
			t.Errorf("output without the mark is accepted as an answer: %q", stdout)
		}
		raw, isError, failure := o.result(r.credentials)
		if failure != nil {
			if raw != nil || failure.Error() == "" || strings.ContainsAny(failure.Error(), "\n\x1b") || strings.Contains(failure.Error(), lentValue) {
				t.Errorf("result %s with failure %q; want no result, and one printable line without the credential", raw, failure.Error())
			}
			return
		}
		if !raw.IsValid() || o.Thrown != nil && !isError {
			t.Errorf("the result of %q is %s, isError %v", stdout, raw, isError)
		}
	})
}
