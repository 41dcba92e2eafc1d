package console

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

const schema = `{"type":"object","required":["path","yes"],"properties":{
  "path":{"type":"string","description":"where"},
  "text":{"type":"string"},
  "many":{"type":"integer","default":3},
  "share":{"type":"number"},
  "yes":{"type":"boolean"},
  "no":{"type":"boolean"},
  "kind":{"enum":["a","b"],"title":"The kind"},
  "rest":{"type":"object"}}}`

func TestForm(t *testing.T) {
	fields := formOf(json.RawMessage(schema))
	kinds := ""
	for _, f := range fields {
		kinds += f.Name + ":" + f.Kind + " "
	}
	if kinds != "path:text text:long many:number share:number yes:flag no:flag kind:choice rest:json " {
		t.Errorf("the fields are %s", kinds)
	}
	if !fields[0].Required || fields[1].Required || fields[0].Help != "where" || fields[2].Value != "3" || fields[6].Label != "The kind" {
		t.Errorf("%+v", fields)
	}
	for _, none := range []string{``, `true`, `{}`, `{"type":"object"}`, `{"properties":[]}`, `{"properties":{"a":`, `{"properties":{` + strings.Repeat(`"a":{},`, maxFields) + `"b":{}}}`} {
		if f := formOf(json.RawMessage(none)); f != nil {
			t.Errorf("the schema %.40s has a form with %d fields, want none", none, len(f))
		}
	}
}

func TestFormArguments(t *testing.T) {
	fields := formOf(json.RawMessage(schema))
	for name, tt := range map[string]struct {
		sent    string
		want    string
		problem string
	}{
		"required":  {"arg.path=x", `{"path":"x","yes":false}`, ""},
		"all":       {"arg.path=x&arg.text=a%0Ab&arg.many=12345678901234567890&arg.share=0.10&arg.yes=true&arg.no=true&arg.kind=b&arg.rest=[1]", `{"kind":"b","many":12345678901234567890,"no":true,"path":"x","rest":[1],"share":0.10,"text":"a\nb","yes":true}`, ""},
		"invalid":   {"arg.path=x&arg.many=three&arg.rest={", "", "many is not a number; rest is not valid JSON"},
		"no number": {"arg.path=x&arg.many=true", "", "many is not a number"},
		"injection": {`arg.path=%22,%22evil%22:%22`, `{"path":"\",\"evil\":\"","yes":false}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sent, err := url.ParseQuery(tt.sent)
			if err != nil {
				t.Fatal(err)
			}
			got, filled, err := argumentsOf(fields, sent)
			if tt.problem != "" {
				if err == nil || err.Error() != tt.problem {
					t.Errorf("error %v, want %s", err, tt.problem)
				}
				return
			}
			if err != nil || string(got) != tt.want || filled[0].Value != sent.Get("arg.path") {
				t.Errorf("%s, error %v", got, err)
			}
		})
	}
	for text, ok := range map[string]bool{"": true, `{"a":1}`: true, `[1]`: false, `{"a":1,"a":2}`: false, "x": false} {
		if _, _, err := argumentsOf(nil, url.Values{"json": {text}}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzForm(f *testing.F) {
	f.Add(schema, "arg.path=x&arg.many=1&arg.rest={}")
	f.Fuzz(func(t *testing.T, schema, query string) {
		sent, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		got, _, err := argumentsOf(formOf(json.RawMessage(schema)), sent)
		if err == nil && (!json.Valid(got) || got[0] != '{') {
			t.Errorf("the arguments are %s", got)
		}
	})
}
