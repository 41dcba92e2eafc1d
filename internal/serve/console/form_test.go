package console

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/journal"
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
			t.Errorf("%.40s has a form of %d fields", none, len(f))
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

func TestActivity(t *testing.T) {
	a := newActivity()
	now := time.Now()
	for i := range 100 {
		a.count(&journal.Entry{Record: journal.Record{Time: now, Decision: journal.Allow, DurationUS: int64(1000 * (i + 1))}})
	}
	a.count(&journal.Entry{Record: journal.Record{Time: now, Decision: journal.Deny}})
	a.count(&journal.Entry{Record: journal.Record{Time: now, Decision: journal.Unknown}})
	a.count(&journal.Entry{Record: journal.Record{Time: now, Kind: "log_born"}})
	a.count(&journal.Entry{Record: journal.Record{Time: now.Add(-points * span)}}) // too old to be shown
	a.recordSpending([]limit.Spent{{Amount: "10.50"}, {Amount: "0.25"}, {Amount: "odd"}}, now)
	start, calls, latency, spent := a.read(now)
	last := points - 1
	if calls[0].Values[last] != 102 || calls[1].Values[last] != 1 || calls[2].Values[last] != 1 || calls[0].Values[0] != 0 {
		t.Errorf("got %v calls, %v refused and %v unknown; want 102, 1 and 1", calls[0].Values[last], calls[1].Values[last], calls[2].Values[last])
	}
	if median := latency[0].Values[last]; median < 32 || median > 66 {
		t.Errorf("the median is %v ms, want about 50", median)
	}
	if spent[0].Values[last] != 10.75 {
		t.Errorf("the amount spent is %v, want 10.75", spent[0].Values[last])
	}
	svg := string(chart("<b>", " ms", start, latency))
	if strings.Contains(svg, "<b>") || !strings.Contains(svg, "polyline") || strings.Contains(svg, "NaN") {
		t.Errorf("the chart is %.300s", svg)
	}
}
