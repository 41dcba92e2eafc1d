package program

import (
	"strings"
	"testing"
)

// FuzzAnswer checks that readAnswer accepts only one line that repeats the intent's id. The result
// must be valid JSON.
func FuzzAnswer(f *testing.F) {
	for _, line := range []string{
		`{"intent_id":"i1","status":"ok","text":"done","sources":["a"]}`, `{"intent_id":"i1","status":"error","text":"no"}`, "{}\n{}", "", "null", "[]",
		`{"intent_id":"i2","status":"ok","text":""}`, `{"intent_id":"i1","status":"ok","text":"\ud800"}`, "\ufeff{}", `{"INTENT_ID":"i1","status":"ok","text":"x"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, stdout []byte) {
		a, failure := readAnswer(stdout, "i1")
		if failure != nil {
			if failure.Error() == "" || strings.ContainsAny(failure.Error(), "\n\x1b") {
				t.Errorf("failure = %q, want one printable line", failure.Error())
			}
			return
		}
		if *a.IntentID != "i1" || *a.Status != "ok" && *a.Status != "error" || a.Text == nil || a.Sources == nil {
			t.Errorf("readAnswer accepted %+v", a)
		}
		if strings.Contains(strings.TrimSpace(string(stdout)), "\n") {
			t.Error("readAnswer accepted two lines as one answer")
		}
		if v, err := a.result(); err == nil && !v.IsValid() {
			t.Errorf("the result is not JSON: %s", v)
		}
	})
}
