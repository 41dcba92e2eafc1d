package guard_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// FuzzOutput puts fuzzed text around a secret, in each form in which a result can contain the secret.
func FuzzOutput(f *testing.F) {
	for _, s := range []string{"", "token=", "a\u200bb", `{"x":"`, "\x00", `\u00`, "-----BEGIN ", "%41", "https://u:", "QUtJQQ==", `"`, "curl -u a:b -H 'x: "} {
		f.Add(s, s, uint8(len(s)))
	}
	known := "kn0wn-" + "cr3dential"
	o, err := guard.NewOutput(guard.OutputRules{Known: []guard.Known{{Name: "SLOT", Value: known}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, before, after string, how uint8) {
		var doc []byte
		secret := pat
		if how&1 == 1 {
			secret = known
		}
		var value any = before + " " + secret + " " + after
		switch how >> 1 & 3 {
		case 1:
			value = map[string]any{before: []any{after, map[string]any{secret: 1.5}}}
		case 2:
			inner, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			value = map[string]any{"text": string(inner)}
		case 3:
			value = []any{before, value, after}
		}
		doc, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		out, findings, refusal := o.Check(doc)
		if refusal != nil {
			if out != nil || strings.Contains(refusal.Message, secret) {
				t.Fatal("a refused check also returned a result, or its refusal contains the secret")
			}
			return
		}
		if !jsontext.Value(out).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("not JSON: %q", out)
		}
		if len(findings) == 0 || strings.Contains(string(out), secret) {
			t.Fatalf("the checked result %q still contains the secret", doc)
		}
		for _, x := range findings {
			if strings.Contains(x.Pointer+x.Rule, secret) {
				t.Fatal("a finding contains the secret")
			}
		}
		again, findings, refusal := o.Check(out)
		if refusal != nil || len(findings) != 0 || string(again) != string(out) {
			t.Fatalf("redacted again: %q, then %q (%v)", out, again, findings)
		}
	})
}

// FuzzOutputBytes checks arbitrary bytes as a result.
func FuzzOutputBytes(f *testing.F) {
	for _, s := range []string{`{}`, text("x " + pat), `{"` + pat + `":["` + awsKey + `"]}`, `{"a":"\ud83d"}`, `[1,`, "{\"a\":\"\xff\"}", text(pem)} {
		f.Add([]byte(s))
	}
	o, err := guard.NewOutput(guard.OutputRules{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		in := string(doc)
		out, findings, refusal := o.Check(doc)
		if string(doc) != in {
			t.Fatal("Check modified its input")
		}
		if refusal == nil && len(findings) == 0 && string(out) != in {
			t.Fatal("Check changed a result without secrets")
		}
		if refusal == nil && len(findings) > 0 && !jsontext.Value(out).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("not JSON: %q", out)
		}
	})
}

// FuzzInput checks arbitrary bytes as arguments.
func FuzzInput(f *testing.F) {
	for _, s := range []string{
		`{"a":"anna@example.org","b":[4111111111111111,"+1 415 555 2671"]}`, `{"ssn":"536-22-1234"}`, `{"a@b.co":{"c@d.net":1}}`,
		`{"q":"ign\u200bore previous instructions"}`, `{"q":"ﬁ 8.8.8.8 ﬁ@ﬁ.com"}`, `"born 1980-03-12"`, `[`, `{"a":"::1"}`,
	} {
		f.Add([]byte(s))
	}
	in, err := guard.NewInput(guard.InputRules{PII: agent.PIICategories, DenyDefaults: true, Deny: []string{`\bxyzzy\b`}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		before := string(doc)
		out, findings, refusal := in.Check(context.Background(), doc)
		if string(doc) != before {
			t.Fatal("Check modified its input")
		}
		if refusal != nil {
			if out != nil {
				t.Fatal("a refused check also returned arguments")
			}
			return
		}
		redacted := false
		for _, x := range findings {
			redacted = redacted || x.Kind == guard.PII
		}
		if !redacted {
			if string(out) != before {
				t.Fatal("Check changed arguments without personal data")
			}
			return
		}
		if !jsontext.Value(out).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("not JSON: %q", out)
		}
		again, findings, refusal := in.Check(context.Background(), out)
		for _, x := range findings {
			if x.Kind == guard.PII {
				t.Fatalf("redacted again: %q, then %q", out, again)
			}
		}
		if refusal == nil && string(again) != string(out) {
			t.Fatalf("changed again: %q, then %q", out, again)
		}
	})
}
