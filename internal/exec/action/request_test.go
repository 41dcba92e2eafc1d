package action

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// sent returns the request of a call, and the text of the request as it would be sent to the server.
func sent(t testing.TB, h agent.HTTP, schema, arguments string, change ...func(*agent.Tool, *call.Call)) (*http.Request, string, error) {
	t.Helper()
	if h.URL == "" {
		h.URL = "https://api.example.com/v1"
	}
	if h.Method == "" {
		h.Method = "POST"
	}
	h.Host = "api.example.com"
	tool := &agent.Tool{Name: "tool", InputSchema: schema, Binding: h}
	c := &call.Call{ID: "id-1", Arguments: jsontext.Value(arguments)}
	for _, f := range change {
		f(tool, c)
	}
	a := &agent.Agent{Slots: []agent.Slot{{Ref: "token", Env: "ANALYTICS_TOKEN", Type: "json", Hosts: []string{"api.example.com"}}}}
	b := New(a, Options{Credentials: token(`{"id":"i1","key":"` + canary + `"}`)}).(*binding)
	req, err := b.request(t.Context(), tool, h, c)
	if err != nil {
		return nil, "", err
	}
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		t.Fatal(err)
	}
	return req, wire.String(), nil
}

func TestAddress(t *testing.T) {
	for _, tt := range []struct {
		name, url, arguments, want string
		code                       call.Code
	}{
		{"query", "https://api.example.com/v1?a={a}&b=1", `{"a":"x&b=2#y z+/?é"}`, "https://api.example.com/v1?a=x%26b%3D2%23y%20z%2B%2F%3F%C3%A9&b=1", ""},
		{"path", "https://api.example.com/{a}/x", `{"a":"p q?r#s 100%"}`, "https://api.example.com/p%20q%3Fr%23s%20100%25/x", ""},
		{"another path", "https://api.example.com/orders/{a}", `{"a":"42/cancel"}`, "", call.InputInvalid},
		{"an encoded slash", "https://api.example.com/orders/{a}", `{"a":"42%2fcancel"}`, "", call.InputInvalid},
		{"a slash that is encoded twice", "https://api.example.com/orders/{a}", `{"a":"42%252Fcancel"}`, "", call.InputInvalid},
		{"a backslash", "https://api.example.com/orders/{a}", `{"a":"42\\cancel"}`, "", call.InputInvalid},
		{"an encoded backslash", "https://api.example.com/orders/{a}", `{"a":"42%5Ccancel"}`, "", call.InputInvalid},
		{"encoded dots", "https://api.example.com/orders/{a}", `{"a":"%2e%2E"}`, "", call.InputInvalid},
		{"two placeholders in one segment", "https://api.example.com/{a}-{b}", `{"a":"","b":"2"}`, "https://api.example.com/-2", ""},
		{"a query without a path", "https://api.example.com?a={a}", `{"a":"x"}`, "https://api.example.com?a=x", ""},
		{"query name", "https://api.example.com/?{a}=1", `{"a":"x=y&z"}`, "https://api.example.com/?x%3Dy%26z=1", ""},
		{"an empty value in a query", "https://api.example.com/?a={a}", `{"a":""}`, "https://api.example.com/?a=", ""},
		{"number", "https://api.example.com/{a}", `{"a":12345678901234567890}`, "https://api.example.com/12345678901234567890", ""},
		{"boolean", "https://api.example.com/?a={a}", `{"a":true}`, "https://api.example.com/?a=true", ""},
		{"list", "https://api.example.com/?a={a}", `{"a":[1, "b"]}`, "https://api.example.com/?a=%5B1%2C%22b%22%5D", ""},
		{"a placeholder inside a value", "https://api.example.com/?a={a}&b={b}", `{"a":"{b}","b":"x"}`, "https://api.example.com/?a=%7Bb%7D&b=x", ""},
		{"the host in another spelling", "https://API.Example.com.:8443/x", `{}`, "https://api.example.com:8443/x", ""},
		{"the host without the default port", "https://API.Example.com./x", `{}`, "https://api.example.com/x", ""},
		{"line break", "https://api.example.com/?a={a}", `{"a":"x\r\nHost: evil"}`, "https://api.example.com/?a=x%0D%0AHost%3A%20evil", ""},
		{"missing", "https://api.example.com/?a={a}", `{}`, "", call.InputInvalid},
		{"null", "https://api.example.com/?a={a}", `{"a":null}`, "", call.InputInvalid},
		{"no arguments", "https://api.example.com/?a={a}", ``, "", call.InputInvalid},
		{"not an object", "https://api.example.com/", `[1]`, "", call.InputInvalid},
		{"empty segment", "https://api.example.com/users/{a}", `{"a":""}`, "", call.InputInvalid},
		{"dot", "https://api.example.com/users/{a}/x", `{"a":"."}`, "", call.InputInvalid},
		{"dots", "https://api.example.com/users/{a}/x", `{"a":".."}`, "", call.InputInvalid},
		{"dots from two values", "https://api.example.com/users/{a}{b}/x", `{"a":".","b":"."}`, "", call.InputInvalid},
		{"a dot in the template and in the value", "https://api.example.com/users/%2e{a}/x", `{"a":"."}`, "", call.InputInvalid},
		{"dots behind a slash", "https://api.example.com/users/{a}", `{"a":"x/../admin"}`, "", call.InputInvalid},
		{"dots behind a backslash", "https://api.example.com/users/{a}", `{"a":"x\\..\\admin"}`, "", call.InputInvalid},
		{"dots in a name", "https://api.example.com/users/{a}", `{"a":"a..b"}`, "https://api.example.com/users/a..b", ""},
		{"host", "https://{a}/", `{"a":"api.example.com"}`, "", call.HostNotAllowed},
		{"part of the host", "https://{a}.example.com/", `{"a":"api"}`, "", call.HostNotAllowed},
		{"port", "https://api.example.com:{a}/", `{"a":"443"}`, "", call.HostNotAllowed},
		{"scheme", "{a}://api.example.com/", `{"a":"https"}`, "", call.HostNotAllowed},
		{"all", "{a}", `{"a":"https://api.example.com/"}`, "", call.HostNotAllowed},
		{"a host that was not reviewed", "https://evil.test/", `{}`, "", call.HostNotAllowed},
		{"user", "https://x@api.example.com/", `{}`, "", call.HostNotAllowed},
		{"fragment", "https://api.example.com/#x", `{}`, "", call.HostNotAllowed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, _, err := sent(t, agent.HTTP{Method: "GET", URL: tt.url}, "", tt.arguments)
			if tt.code != "" {
				r := wantCode(t, err, tt.code, call.NoEffect)
				if authority, _, _ := strings.Cut(strings.TrimPrefix(tt.url, "https://"), "/"); strings.Contains(authority, "{") && !strings.Contains(authority, "?") &&
					!strings.Contains(r.Message, "must not determine the host in the URL") {
					t.Error(r.Message)
				}
			} else if err != nil || req.URL.String() != tt.want {
				t.Errorf("request = %v, error %v; want %s", req, err, tt.want)
			}
		})
	}
}

// TestSegments checks a value that the manifest allows to consist of several segments of a path.
func TestSegments(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string","x-ambit-segments":true}}}`
	for value, want := range map[string]string{
		"docs/a b.md": "/files/docs/a%20b.md/raw", "a": "/files/a/raw",
		"../x": "", "a/./b": "", "a/%2e%2e/b": "", "/a": "", "a//b": "", "a/": "", `a\b`: "", "": "",
	} {
		arguments, err := json.Marshal(map[string]string{"a": value})
		if err != nil {
			t.Fatal(err)
		}
		req, _, err := sent(t, agent.HTTP{Method: "GET", URL: "https://api.example.com/files/{a}/raw"}, schema, string(arguments))
		switch {
		case want == "":
			wantCode(t, err, call.InputInvalid, call.NoEffect)
		case err != nil || req.URL.EscapedPath() != want:
			t.Errorf("%q: request = %v, error %v; want %s", value, req, err, want)
		}
	}
}

// TestUnknownBodies checks that values are not inserted into a body whose format ambit does not know.
func TestUnknownBodies(t *testing.T) {
	for _, kind := range []string{"application/x-ndjson", "application/graphql", "application/yaml", "text/csv"} {
		h := agent.HTTP{Headers: map[string]string{"Content-Type": kind}, Body: `{"a":"{a}"}`}
		_, _, err := sent(t, h, "", `{"a":"x\"}\n{\"b\":1"}`)
		wantCode(t, err, call.InputInvalid, call.NoEffect)
		h.Body = "constant"
		if _, wire, err := sent(t, h, "", `{}`); err != nil || !strings.HasSuffix(wire, "constant") {
			t.Errorf("%s: %s, error %v; want the constant body", kind, wire, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	schema := `{"type":"object","properties":{"a":{"type":"string","default":"last week"},"b":{"default":{"x":[1]}},"c":{"default":null},"d":true}}`
	req, wire, err := sent(t, agent.HTTP{URL: "https://api.example.com/?a={a}", Body: `{"b":{b},"c":{c}}`}, schema, `{}`)
	if err != nil || req.URL.RawQuery != "a=last%20week" || !strings.HasSuffix(wire, `{"b":{"x":[1]},"c":null}`) {
		t.Errorf("request = %s, error %v; want the defaults", wire, err)
	}
	req, _, err = sent(t, agent.HTTP{URL: "https://api.example.com/?a={a}"}, schema, `{"a":"today"}`)
	if err != nil || req.URL.RawQuery != "a=today" {
		t.Errorf("request = %v, error %v; want a=today", req, err)
	}
	for _, name := range []string{"c", "d", "e"} {
		_, _, err := sent(t, agent.HTTP{URL: "https://api.example.com/?a={" + name + "}"}, schema, `{}`)
		if r := wantCode(t, err, call.InputInvalid, call.NoEffect); !strings.Contains(r.Message, `"`+name+`"`) {
			t.Error(r.Message)
		}
	}
}

func TestBodies(t *testing.T) {
	for _, tt := range []struct {
		name, kind, template, arguments string
		want, wantKind                  string
	}{
		{"value", "", `{"a":{a}}`, `{"a":{"k":[1,"x"]}}`, `{"a":{"k":[1,"x"]}}`, "application/json"},
		{"text as a value", "", `{"a":{a}}`, `{"a":"x\"y"}`, `{"a":"x\"y"}`, "application/json"},
		{"text in quotes", "", `{"a":"<{a}>"}`, `{"a":"x\"y\n\\"}`, `{"a":"<x\"y\n\\>"}`, "application/json"},
		{"number in quotes", "", `{"a":"{a}"}`, `{"a":1.50}`, `{"a":"1.50"}`, "application/json"},
		{"object in quotes", "", `{"a":"{a}"}`, `{"a":{"b":"c"}}`, `{"a":"{\"b\":\"c\"}"}`, "application/json"},
		{"large number", "", `[{a}]`, `{"a":12345678901234567890}`, `[12345678901234567890]`, "application/json"},
		{"null", "", `[{a}]`, `{"a":null}`, `[null]`, "application/json"},
		{"an escaped quote before the placeholder", "", `{"a":"\"{a}"}`, `{"a":"\",\"b\":\""}`, `{"a":"\"\",\"b\":\""}`, "application/json"},
		{"a placeholder inside a value", "", `{"a":{a},"b":{b}}`, `{"a":"{b}","b":1}`, `{"a":"{b}","b":1}`, "application/json"},
		{"other JSON", "application/vnd.api+json; charset=utf-8", `"{a}"`, `{"a":"\""}`, `"\""`, "application/vnd.api+json; charset=utf-8"},
		{"form", "application/x-www-form-urlencoded", `a={a}&b=1`, `{"a":"x&b=2 é"}`, `a=x%26b%3D2%20%C3%A9&b=1`, "application/x-www-form-urlencoded"},
		{"XML", "application/xml", `<a b="{a}">{a}</a>`, `{"a":"<x>&\"'"}`, `<a b="&lt;x&gt;&amp;&#34;&#39;">&lt;x&gt;&amp;&#34;&#39;</a>`, "application/xml"},
		{"text", "text/plain", "{a}\n{b}", `{"a":"<x>\n","b":2}`, "<x>\n\n2", "text/plain"},
		{"text without a content type", "", "{a} and more", `{"a":"x"}`, "x and more", "text/plain; charset=utf-8"},
		{"multipart", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{a}\r\n--b--\r\n", `{"a":"x"}`, "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := agent.HTTP{Body: tt.template}
			if tt.kind != "" {
				h.Headers = map[string]string{"content-type": tt.kind}
			}
			req, wire, err := sent(t, h, "", tt.arguments)
			if err != nil {
				t.Fatal(err)
			}
			_, body, _ := strings.Cut(wire, "\r\n\r\n")
			if body != tt.want || req.Header.Get("Content-Type") != tt.wantKind {
				t.Errorf("got the body %q with the type %s, want %q with %s", body, req.Header.Get("Content-Type"), tt.want, tt.wantKind)
			}
		})
	}
	for name, tt := range map[string]struct{ kind, template, arguments string }{
		"missing":                     {"", `{"a":{a}}`, `{}`},
		"null in quotes":              {"", `{"a":"{a}"}`, `{"a":null}`},
		"a name twice":                {"", `{"{a}":1,"b":2}`, `{"a":"b"}`},
		"a name that is not a string": {"", `{{a}:1}`, `{"a":[]}`},
		"end of a part":               {"multipart/mixed; boundary=b", "{a}", `{"a":"\r\n--b"}`},
	} {
		h := agent.HTTP{Body: tt.template}
		if tt.kind != "" {
			h.Headers = map[string]string{"Content-Type": tt.kind}
		}
		if _, wire, err := sent(t, h, "", tt.arguments); err == nil {
			t.Errorf("%s: the request was accepted: %q", name, wire)
		} else {
			wantCode(t, err, call.InputInvalid, call.NoEffect)
		}
	}
	for _, method := range []string{"GET", "HEAD"} {
		if req, _, err := sent(t, agent.HTTP{Method: method, Body: "x"}, "", `{}`); err != nil || req.Body != http.NoBody {
			t.Errorf("%s has a body, %v", method, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	idempotent := func(tool *agent.Tool, c *call.Call) { tool.Policy.Idempotent = true }
	keyed := func(key string) func(*agent.Tool, *call.Call) {
		return func(tool *agent.Tool, c *call.Call) { tool.Policy.Idempotent, c.IdempotencyKey = true, key }
	}
	for _, tt := range []struct {
		name, arguments string
		in              map[string]string
		ref             string
		change          func(*agent.Tool, *call.Call)
		want            map[string]string
	}{
		{"filled in", `{"a":"x y"}`, map[string]string{"X-A": "<{a}>"}, "", nil, map[string]string{"X-A": "<x y>", "User-Agent": "ambit", "Idempotency-Key": ""}},
		{"in other headers", `{"a":"{credential.key}"}`, map[string]string{"X-Key": "{a}:{credential.key}", "X-Id": "{credential.id}"}, "token", nil, map[string]string{"X-Key": "{credential.key}:" + canary, "X-Id": "i1", "Authorization": ""}},
		{"Accept-Encoding is ignored", `{}`, map[string]string{"accept-encoding": "br", "User-Agent": "mine", "accept": "text/csv"}, "", nil, map[string]string{"Accept-Encoding": "", "User-Agent": "mine", "Accept": "text/csv"}},
		{"repeatable", `{}`, nil, "", idempotent, map[string]string{"Idempotency-Key": "id-1"}},
		{"repeatable with a key", `{}`, nil, "", keyed("key-1"), map[string]string{"Idempotency-Key": "key-1"}},
		{"with a key from the manifest", `{"a":"z"}`, map[string]string{"idempotency-key": "{a}"}, "", keyed("key-1"), map[string]string{"Idempotency-Key": "z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := tt.change
			if change == nil {
				change = func(*agent.Tool, *call.Call) {}
			}
			req, _, err := sent(t, agent.HTTP{Headers: tt.in, AuthRef: tt.ref}, "", tt.arguments, change)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range tt.want {
				if got := req.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
	// A key that is not valid in a header is replaced by its hash.
	for range 2 {
		req, _, err := sent(t, agent.HTTP{}, "", `{}`, keyed("a\nb"))
		if err != nil || req.Header.Get("Idempotency-Key") != fmt.Sprintf("%x", sha256.Sum256([]byte("a\nb"))) {
			t.Errorf("request = %v, error %v; want the hash of the key", req, err)
		}
	}
	for _, value := range []string{"a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b", "\x7f"} {
		arguments, err := json.Marshal(map[string]string{"a": value})
		if err != nil {
			t.Fatal(err)
		}
		for _, template := range []string{"{a}", "{a}{credential.id}"} {
			_, _, err := sent(t, agent.HTTP{Headers: map[string]string{"X-A": template}, AuthRef: "token"}, "", string(arguments))
			wantCode(t, err, call.InputInvalid, call.NoEffect)
		}
	}
	_, _, err := sent(t, agent.HTTP{AuthRef: "absent"}, "", `{}`)
	wantCode(t, err, call.CredentialMissing, call.NoEffect)
}

var templates = []string{
	"https://api.example.com/v1/{a}/x?q={a}&r={b}", "https://api.example.com:8443/{a}{b}", "https://api.example.com?{a}={b}", "https://api.example.com/x/{a}-{b}/?z={b}",
}

// FuzzAddress checks that no value changes the host, the number of path segments or the number of query parameters.
func FuzzAddress(f *testing.F) {
	for i := range templates {
		for _, v := range []string{"", "x", "@evil.test", "://evil.test", "/../..", "?q=1#", "%2f%2e%2e", "\r\n", "\\\\evil.test", "{b}", "é\u2028"} {
			f.Add(uint8(i), v, "y")
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, a, b string) {
		template := templates[int(which)%len(templates)]
		arguments, err := json.Marshal(map[string]string{"a": a, "b": b})
		if err != nil {
			t.Fatal(err)
		}
		req, wire, err := sent(t, agent.HTTP{Method: "GET", URL: template}, "", string(arguments))
		if err != nil {
			return
		}
		want, _, err := sent(t, agent.HTTP{Method: "GET", URL: template}, "", `{"a":"x","b":"y"}`)
		if err != nil {
			t.Fatal(err)
		}
		u, w := req.URL, want.URL
		if !egress.Same(u, w) || u.User != nil || u.Fragment != "" || u.Host != w.Host ||
			strings.Count(u.EscapedPath(), "/") != strings.Count(w.EscapedPath(), "/") ||
			strings.Count(u.RawQuery, "&") != strings.Count(w.RawQuery, "&") || strings.Count(u.RawQuery, "=") != strings.Count(w.RawQuery, "=") {
			t.Errorf("the values %q and %q result in the URL %s", a, b, u)
		}
		if lines := strings.Split(wire, "\r\n"); !strings.HasPrefix(wire, "GET /") || strings.Count(lines[0], " ") != 2 || lines[1] != "Host: "+w.Host {
			t.Errorf("the request has a wrong first or second line: %q", wire)
		}
	})
}

// FuzzHeader checks that no value adds a line to a request.
func FuzzHeader(f *testing.F) {
	for _, v := range []string{"x", "\r\nX-Evil: 1", "\n\n", "a\x00", "é", "{credential}", "\u2028"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		arguments, err := json.Marshal(map[string]string{"a": v})
		if err != nil {
			t.Fatal(err)
		}
		h := agent.HTTP{Headers: map[string]string{"X-A": "<{a}>", "X-B": "{a}{credential.id}"}, AuthRef: "token"}
		req, wire, err := sent(t, h, "", string(arguments))
		if err != nil {
			wantCode(t, err, call.InputInvalid, call.NoEffect)
			return
		}
		head, body, _ := strings.Cut(wire, "\r\n\r\n")
		if n := strings.Count(wire, "\n"); n != 8 || strings.Count(head, "\r") != 6 || body != "" || len(req.Header) != 4 {
			t.Errorf("the request has %d lines, want 8: %q", n, wire)
		}
		if strings.Contains(wire, canary) {
			t.Errorf("the value %q reveals another field of the credential", v)
		}
	})
}

// FuzzJSONBody checks that the filled body is valid JSON. A value must not change the rest of the body.
func FuzzJSONBody(f *testing.F) {
	for _, v := range []string{`"x"`, `"\""`, `"\",\"admin\":true,\"x\":\""`, `null`, `1e400`, `{"a":{}}`, `[]`, `"\ud800"`, `"{b}"`, ` 1 `} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		arguments := jsontext.Value(`{"a":` + v + `}`)
		var given map[string]any
		if !arguments.IsValid() || json.Unmarshal(arguments, &given) != nil || len(given) != 1 {
			return
		}
		_, wire, err := sent(t, agent.HTTP{Body: `{"v":{a},"s":"<{a}>","k":"end"}`}, "", string(arguments))
		if err != nil {
			wantCode(t, err, call.InputInvalid, call.NoEffect)
			return
		}
		_, body, _ := strings.Cut(wire, "\r\n\r\n")
		var got map[string]any
		if !jsontext.Value(body).IsValid() || json.Unmarshal([]byte(body), &got) != nil {
			t.Fatalf("not JSON: %q", body)
		}
		text, isText := got["s"].(string)
		if len(got) != 3 || got["k"] != "end" || !isText || !strings.HasPrefix(text, "<") || !strings.HasSuffix(text, ">") {
			t.Errorf("the value changed the rest of the body: %q", body)
		}
		if s, ok := given["a"].(string); ok && (text != "<"+s+">" || got["v"] != s) {
			t.Errorf("the value %q became the body %q", s, body)
		}
	})
}

// A value cannot change the parts of a multipart body, or the way in which other values are escaped.
func TestValuesKeepTheBody(t *testing.T) {
	const part = "Content-Disposition: form-data; name=\"a\"\r\n\r\n"
	for _, tt := range []struct{ name, kind, template, arguments string }{
		{"the end of a multipart body", "multipart/form-data; boundary=b", "--b\r\n" + part + "{a}\r\n--b--\r\n", `{"a":"--b--"}`},
		{"a quoted boundary", `multipart/form-data; boundary="b c"`, "--b c\r\n" + part + "{a}\r\n--b c--\r\n", `{"a":"--b c"}`},
		{"two values", "multipart/form-data; boundary=b", "--b\r\n" + part + "{a}{c}\r\n--b--\r\n", `{"a":"-","c":"-b--"}`},
		{"no boundary", "multipart/form-data", "--b\r\n" + part + "{a}\r\n--b--\r\n", `{"a":"x"}`},
		{"a chosen boundary", "multipart/form-data; boundary={c}", "--b\r\n" + part + "{a}\r\n--b--\r\n", `{"a":"x","c":"b"}`},
	} {
		h := agent.HTTP{Method: "POST", Headers: map[string]string{"content-type": tt.kind}, Body: tt.template}
		if _, body, err := sent(t, h, `{}`, tt.arguments); err == nil {
			t.Errorf("%s: sent %q", tt.name, body)
		}
	}
	h := agent.HTTP{Method: "POST", Headers: map[string]string{"Content-Type": "{type}+json"}, Body: `{"note":"{note}"}`}
	_, body, err := sent(t, h, `{}`, `{"type":"text/plain;","note":"\",\"admin\":true,\"x\":\""}`)
	if want := `{"note":"\",\"admin\":true,\"x\":\""}`; err != nil || !strings.HasSuffix(body, want) {
		t.Errorf("got the body %q and %v, want %s", body, err, want)
	}
}
