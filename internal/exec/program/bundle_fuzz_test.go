package program

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// FuzzBundleAnswer: only a line with the mark is an answer, its result is one JSON
// value, and no credential appears in the log.
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
				t.Errorf("the log has %q", line)
			}
		}}}
		r := &run{lent: &lent{known: known}}
		o := b.answer(r, stdout, mark)
		if o != nil && !strings.Contains("\n"+string(stdout), "\n"+mark) {
			t.Errorf("%q is taken for an answer", stdout)
		}
		raw, isError, failure := o.result(r.lent)
		if failure != nil {
			if raw != nil || failure.Error() == "" || strings.ContainsAny(failure.Error(), "\n\x1b") || strings.Contains(failure.Error(), lentValue) {
				t.Errorf("%s, and the failure says %q", raw, failure.Error())
			}
			return
		}
		if !raw.IsValid() || o.Thrown != nil && !isError {
			t.Errorf("%q comes to %s, an error: %v", stdout, raw, isError)
		}
	})
}
