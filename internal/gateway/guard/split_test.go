package guard_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// texts returns a result with several texts.
func texts(parts ...string) string {
	items := make([]string, len(parts))
	for i, p := range parts {
		items[i] = `{"type":"text","text":` + quote(p) + `}`
	}
	return `{"content":[` + strings.Join(items, ",") + `]}`
}

// If a secret is split over several texts, each part is redacted.
func TestSplitSecrets(t *testing.T) {
	o := output(t, guard.OutputRules{Known: []guard.Known{{Name: "SLOT", Value: "correct horse battery"}}})
	long := strings.Repeat("nothing to see in this line of text\n", 400)
	encoded := base64.StdEncoding.EncodeToString([]byte("it is " + pat + " now"))
	letters := make([]string, len(pat))
	for i := range pat {
		letters[i] = pat[i : i+1]
	}
	tests := map[string]struct {
		in    []string
		rule  string
		found int
	}{
		"in two":             {[]string{"token: " + pat[:9], pat[9:] + " bye"}, "github-pat", 2},
		"in three":           {[]string{"it is\n" + pat[:2], pat[2:20], pat[20:] + `"`}, "github-pat", 3},
		"letter by letter":   {letters, "github-pat", len(pat)},
		"behind a long text": {[]string{long + pat[:12], pat[12:] + "\n" + long}, "github-pat", 2},
		"a credential":       {[]string{"the correct ho", "rse battery staple"}, "SLOT", 2},
		"encoded":            {[]string{encoded[:20], encoded[20:]}, "github-pat", 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, found, refusal := o.Check(jsontext.Value(texts(tt.in...)))
			if refusal != nil || len(found) != tt.found {
				t.Fatalf("got the findings %v, want %d: %v", found, tt.found, refusal)
			}
			for i, f := range found {
				if f.Rule != tt.rule || f.Pointer != fmt.Sprintf("/content/%d/text", i) {
					t.Errorf("got the finding %+v", f)
				}
			}
			if !out.IsValid() || strings.Contains(string(out), pat[9:20]) || strings.Contains(string(out), "rse battery") || strings.Count(string(out), `"type":"text"`) != len(tt.in) {
				t.Errorf("got %.300s", out)
			}
		})
	}
	if _, _, refusal := output(t, guard.OutputRules{OnLeak: agent.LeakBlock}).Check(jsontext.Value(texts(pat[:9], pat[9:]))); refusal == nil || refusal.Code != call.SecretLeak {
		t.Errorf("a split secret passed although OnLeak is block: %v", refusal)
	}
	// All values of a result are joined if one of them ends with the beginning of a token.
	fields := `{"structuredContent":{"a":"it is ` + pat[:12] + `","b":"` + pat[12:] + `"}}`
	if out, found, _ := o.Check(jsontext.Value(fields)); len(found) != 2 || strings.Contains(string(out), pat[12:]) {
		t.Errorf("found %v in %s", found, out)
	}
	// The member name "text" can be written with escapes.
	hidden := strings.ReplaceAll(texts(pat[:9], pat[9:]), `"text":`, `"\u0074ext":`)
	if out, found, _ := o.Check(jsontext.Value(hidden)); len(found) != 2 || strings.Contains(string(out), pat[9:]) {
		t.Errorf("found %v in %s", found, out)
	}
}

// A secret can be split over a text and a field, or over two fields, behind other values.
func TestSplitOverTextAndFields(t *testing.T) {
	o := output(t, guard.OutputRules{})
	for _, doc := range []string{
		`{"content":[{"type":"text","text":"` + pat[:20] + `"}],"structuredContent":{"a":"` + pat[20:] + `"}}`,
		`{"structuredContent":{"id":"a7","a":"` + pat[:20] + `","b":"` + pat[20:] + `"}}`,
	} {
		out, found, refusal := o.Check(jsontext.Value(doc))
		if refusal != nil || len(found) != 2 || strings.Contains(string(out), pat[:20]) || strings.Contains(string(out), pat[20:]) {
			t.Errorf("the result is %s: %v", out, refusal)
		}
	}
}

// Adjacent texts without a secret are not changed.
func TestTextsWithoutSeamsStay(t *testing.T) {
	o := output(t, guard.OutputRules{})
	for _, in := range []string{
		texts("The token is", "refreshed every hour."), texts("a", "b", ""), texts(strings.Repeat("x ", 9000), strings.Repeat("y ", 9000)),
		`{"content":[{"type":"text","text":"one"},{"type":"image","data":"` + pat[:9] + `"}],"structuredContent":{"text":[1,null,"two"]}}`,
	} {
		out, found, refusal := o.Check(jsontext.Value(in))
		if string(out) != in || len(found) > 0 || refusal != nil {
			t.Errorf("%.80s became %.200s, %v, %v", in, out, found, refusal)
		}
	}
	// A result that is not valid JSON is withheld, because it cannot be searched for split secrets.
	if _, _, refusal := o.Check(jsontext.Value(`{"text":"a","text":"b`)); refusal == nil || refusal.Code != call.SecretLeak {
		t.Errorf("got %v", refusal)
	}
}
