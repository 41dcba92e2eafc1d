package action

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestRequestIsBounded checks that neither the names in a repeated value nor a template that repeats a value multiply
// the size of a request.
func TestRequestIsBounded(t *testing.T) {
	long := strings.Repeat("k", 40_000)
	list := func(element string) string {
		return `{"a":{"` + long + `":[` + strings.Repeat(element+",", 10_000) + element + `]}}`
	}
	const form, times = "application/x-www-form-urlencoded", 1000
	for _, tt := range []struct{ name, url, kind, body, arguments string }{
		{"the names of a query", "?a={a*}", "", "", list("1")},
		{"the names of empty values", "?a={a*}", "", "", list("[]")},
		{"the names of a form", "", form, "a={a*}", list("1")},
		{"a query", "?a=" + strings.Repeat("{b}", times), "", "", `{"b":"` + long + `"}`},
		{"a path", "/" + strings.Repeat("{b}", times), "", "", `{"b":"` + long + `"}`},
		{"JSON", "", "application/json", `{"a":"` + strings.Repeat("{b}", times) + `"}`, `{"b":"` + long + `"}`},
		{"text", "", "text/plain", strings.Repeat("{b}", times), `{"b":"` + long + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := agent.HTTP{URL: "https://api.example.com/v1" + tt.url, Body: tt.body, Headers: map[string]string{"Content-Type": tt.kind}}
			_, wire, err := sent(t, h, `{"type":"object"}`, tt.arguments)
			if r := call.AsRefusal("act", err); err == nil || r.Code != call.InputTooLong {
				t.Errorf("got %d bytes and %v", len(wire), err)
			}
		})
	}
	header := agent.HTTP{Headers: map[string]string{"X-A": strings.Repeat("{b}", times)}}
	secret := agent.HTTP{AuthRef: "token", Headers: map[string]string{"X-A": "{credential.id}" + strings.Repeat("{b}", times)}}
	for _, h := range []agent.HTTP{header, secret} {
		if _, _, err := sent(t, h, `{"type":"object"}`, `{"b":"`+long+`"}`); err == nil || call.AsRefusal("act", err).Code != call.InputTooLong {
			t.Errorf("%.40q: got %v", h.Headers["X-A"], err)
		}
	}
	tool := &agent.Tool{Name: "tool", InputSchema: `{"properties":{"b":{"default":"` + long + `"}}}`}
	if _, err := prompt(tool, agent.Prompt{Template: strings.Repeat("{b}", times)}, &call.Call{}); err == nil {
		t.Error("a prompt has no limit")
	}
}

// TestOptionalParts checks that a part of a request is left out if its placeholder is optional and has no value.
func TestOptionalParts(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, tt := range []struct{ name, url, kind, body, arguments, want string }{
		{"a query with all values", "?a={a?}&b={b?}", "", "", `{}`, "/v1"},
		{"a query with one value", "?a={a?}&b={b?}&c=1", "", "", `{"b":"x&a=2"}`, "/v1?b=x%26a%3D2&c=1"},
		{"null", "?a={a?}", "", "", `{"a":null}`, "/v1"},
		{"an empty text", "?a={a?}", "", "", `{"a":""}`, "/v1?a="},
		{"a default", "?d={d?}", "", "", `{}`, "/v1?d=20"},
		{"an empty query", "?", "", "", `{}`, "/v1?"},
		{"a list", "?a={a*}&b=1", "", "", `{"a":["x","y&b=2",3]}`, "/v1?a=x&a=y%26b%3D2&a=3&b=1"},
		{"no list", "?a={a*}", "", "", `{}`, "/v1"},
		{"an empty list", "?a={a*}", "", "", `{"a":[]}`, "/v1"},
		{"one value", "?a={a*}", "", "", `{"a":true}`, "/v1?a=true"},
		{"a name with brackets", "?a%5B%5D={a*}", "", "", `{"a":["x"]}`, "/v1?a%5B%5D=x"},
		{"an object", "?f={a*}", "", "", `{"a":{"y&z":1,"b":null,"x":["p","q"]}}`, "/v1?f%5Bx%5D%5B%5D=p&f%5Bx%5D%5B%5D=q&f%5By%26z%5D=1"},
		{"objects inside a list", "", form, "i={a*}&k={k?}", `{"a":[{"p":"x"},{"p":"y"}]}`, "/v1 i%5B0%5D%5Bp%5D=x&i%5B1%5D%5Bp%5D=y"},
		{"a form", "", form, "a={a?}&b={b?}", `{"b":"x=1&a"}`, "/v1 b=x%3D1%26a"},
		{"JSON, the first", "", "", `{"a": {a?}, "b": {b}}`, `{"b":1}`, `/v1 { "b": 1}`},
		{"JSON, the last", "", "", `{"b": {b}, "a": {a?}}`, `{"b":"x,"}`, `/v1 {"b": "x,"}`},
		{"a missing member in the middle of JSON", "", "", `{"x":"{[,","a":{a?},"b":{b?},"c":{c?}}`, `{"b":[1]}`, `/v1 {"x":"{[,","b":[1]}`},
		{"JSON, all", "", "", `{"o":{"a":{a?},"b":{b?}},"l":[{a?},{b?}]}`, `{}`, `/v1 {"o":{},"l":[]}`},
		{"JSON, elements", "", "", `[{a?},{b?},{c?}]`, `{"a":1,"c":3}`, `/v1 [1,3]`},
		{"a null value in JSON is sent", "", "", `{"a":{a?}}`, `{"a":null}`, `/v1 {"a":null}`},
		{"a whole body", "", "application/json", "{a?}\n", `{}`, "/v1"},
		{"a whole body with a value", "", "application/json", "{a?}", `{"a":{"b":1}}`, `/v1 {"b":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := agent.HTTP{URL: "https://api.example.com/v1" + tt.url, Body: tt.body, Headers: map[string]string{"X-A": "{a?}"}}
			if tt.kind != "" {
				h.Headers["content-type"] = tt.kind
			}
			if strings.Contains(tt.body+tt.url, "*}") {
				delete(h.Headers, "X-A")
			}
			req, wire, err := sent(t, h, `{"type":"object","properties":{"d":{"default":20}}}`, tt.arguments)
			if err != nil {
				t.Fatal(err)
			}
			_, body, _ := strings.Cut(wire, "\r\n\r\n")
			if got := strings.TrimSpace(req.URL.RequestURI() + " " + body); got != tt.want {
				t.Errorf("sent %q, want %q", got, tt.want)
			}
			if _, ok := req.Header["Content-Type"]; ok != (body != "") {
				t.Errorf("Content-Type is %q with the body %q", req.Header.Get("Content-Type"), body)
			}
			if _, ok := req.Header["X-A"]; ok && !strings.Contains(tt.arguments, `"a":`) {
				t.Error("the header X-A was sent without a value")
			}
		})
	}
	for name, tt := range map[string]struct{ url, body, arguments string }{
		"a part of a pair":           {"?a=x{a?}", "", `{}`},
		"a part of a string":         {"", `{"a":"{a?}"}`, `{}`},
		"two placeholders":           {"", `{a?}{b?}`, `{}`},
		"a path":                     {"/{a*}", "", `{}`},
		"a bracket in a name":        {"?f={a*}", "", `{"a":{"x][y":1}}`},
		"a bracket in a nested name": {"?f={a*}", "", `{"a":[{"x":{"[":1}}]}`},
	} {
		h := agent.HTTP{URL: "https://api.example.com/v1" + tt.url, Body: tt.body, Headers: map[string]string{"Content-Type": "application/json"}}
		if _, wire, err := sent(t, h, "", tt.arguments); err == nil {
			t.Errorf("%s: sent %q", name, wire)
		} else {
			wantCode(t, err, call.InputInvalid, call.NoEffect)
		}
	}
}

// FuzzParts checks that a value adds only pairs with its own name to a query and a form, and only its own member to JSON.
func FuzzParts(f *testing.F) {
	for _, v := range []string{`"x"`, `"&end=2"`, `null`, `[]`, `["a&end=2",{"b":["c"]}]`, `{"end":1,"a=b&c":{"d]":2}}`, `{"":[[1],null]}`, `",\"end\":2"`, `"\u0000;end=2"`} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		arguments := `{"a":` + v + `}`
		if !json.Valid([]byte(arguments)) {
			return
		}
		check := func(text string) {
			values, err := url.ParseQuery(text)
			if err != nil || len(values["end"]) != 1 || values.Get("end") != "1" {
				t.Fatalf("%s became %q: %v", v, text, err)
			}
			for name := range values {
				if name != "end" && name != "o" && name != "r" && !strings.HasPrefix(name, "r[") {
					t.Errorf("the value %s added a pair with the name %q", v, name)
				}
			}
		}
		h := agent.HTTP{
			URL: "https://api.example.com/v1?o={a?}&r={a*}&end=1", Body: "o={a?}&r={a*}&end=1",
			Headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		}
		if req, wire, err := sent(t, h, "", arguments); err == nil {
			_, body, _ := strings.Cut(wire, "\r\n\r\n")
			check(req.URL.RawQuery)
			check(body)
		} else {
			wantCode(t, err, call.InputInvalid, call.NoEffect)
		}
		for _, body := range []string{`{"o":{a?},"b":{b?},"end":1}`, `{"b":{b?},"end":1,"o":{a?}}`} {
			_, wire, err := sent(t, agent.HTTP{Body: body}, "", arguments)
			if err != nil {
				wantCode(t, err, call.InputInvalid, call.NoEffect)
				continue
			}
			_, body, _ := strings.Cut(wire, "\r\n\r\n")
			var got map[string]any
			if json.Unmarshal([]byte(body), &got) != nil || len(got) != 2 || got["end"] != 1.0 {
				t.Errorf("%s became %q", v, body)
			}
		}
	})
}
