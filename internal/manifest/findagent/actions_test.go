package findagent

import (
	"strings"
	"testing"
)

func TestActions(t *testing.T) {
	testRules(t, []ruleCase{
		{"no type", tool(`"action":‹{}`, ``), "AM102", `"type" is required`},
		{"unknown type", tool(`"action":{"type":‹"htp"}`, ``), "AM104", `did you mean "http"?`},
		{"not an object", tool(`"action":‹"http"`, ``), "AM101", ""},
		{"http", httpTool(`"method":"GET","url":"https://api.example.com/a?b={q}"`), "", ""},
		{"http action without required fields", tool(`"action":‹‹{"type":"http",‹"x":1}`, ``), "AM102 AM102 AM103", `"url" is required`},
		{"lower-case method", httpTool(`"method":‹"get","url":"https://example.com"`), "AM104", `did you mean "GET"?`},
		{"unsupported method", httpTool(`"method":‹"OPTIONS","url":"https://example.com"`), "AM104", ""},
		{"prompt-template", tool(`"input_schema":{"type":"object","properties":{"q":{}}},"action":{"type":"prompt-template","template":"{\"a\":{}} {q}"}`, ``), "", ""},
		{"empty template", tool(`"action":{"type":"prompt-template","template":‹""}`, ``), "AM105", ""},
		{"no template", tool(`"action":‹{"type":"prompt-template"}`, ``), "AM102", ""},
		{"compose", tool(`"action":{"type":"compose","agent":"other-agent","tool":"t.x"}`, ``), "", ""},
		{"compose action without required fields", tool(`"action":‹‹{"type":"compose"}`, ``), "AM102 AM102", ""},
		{"compose action with invalid names", tool(`"action":{"type":"compose","agent":‹"matrix://agent/x","tool":‹"a b"}`, ``), "FA043 FA020", ""},
		{"fields of other action types", tool(`"action":{"type":"compose","agent":"a","tool":"t",‹"method":"GET",‹"template":"x"}`, ``), "FA042 FA042", ""},
		{"fields of other formats", httpTool(`"method":"POST","url":"https://example.com",‹"body":"x"`), "AM103", `in this dialect, the field is named "body_template"`},
		{
			"read-only tool that sends POST", tool(`"annotations":{‹"readOnlyHint":true},"action":{"type":"http","auth_ref":"key","method":"POST","url":"https://example.com"}`),
			"FA026", "sends a POST request",
		},
		{"read-only tool that sends HEAD", tool(`"annotations":{"readOnlyHint":true},"action":{"type":"http","auth_ref":"key","method":"HEAD","url":"https://example.com"}`), "", ""},
	})
}

func TestURL(t *testing.T) {
	url := func(u string) string { return httpTool(`"method":"GET","url":` + u) }
	testRules(t, []ruleCase{
		{"port and trailing dot", url(`"https://API.Example.com.:8443/a/{q}/b?c={q}"`), "", ""},
		{"plain http", url(`"‹http://example.com/"`), "FA030", ""},
		{"other scheme", url(`"‹ftp://example.com/"`), "FA031", ""},
		{"capitals", url(`"‹HTTPS://example.com/"`), "FA031", "lower case"},
		{"relative", url(`‹"/a/b"`), "FA031", ""},
		{"no host", url(`‹"https:///a"`), "FA060", ""},
		{"userinfo", url(`"https://‹bob:hunter2@example.com/"`), "FA031", "••••••"},
		{"fragment", url(`"https://example.com/a‹#b"`), "FA031", ""},
		{"space", url(`"https://example.com/a‹ b"`), "FA031", "%20"},
		{"backslash", url(`‹"https://example.com\\@evil.test/"`), "FA031", ""},
		{"bad escape", url(`"https://example.com/‹%zz"`), "FA031", "%25"},
		{"bad port", url(`"https://example.com‹:80a/"`), "FA031", ""},
		{"port 0", url(`"https://example.com‹:0/"`), "FA031", ""},
		{"empty port", url(`"https://example.com‹:/"`), "FA031", ""},
		{"signed port", url(`"https://example.com‹:+80/"`), "FA031", ""},
		{"IPv4", url(`"https://‹127.0.0.1/"`), "FA061", ""},
		{"IPv4 as one number", url(`"https://‹2130706433/"`), "FA061", ""},
		{"IPv4 in hex", url(`"https://‹0x7f.0.0.1/"`), "FA061", ""},
		{"IPv4 as one hex number", url(`"https://‹0x7f000001/"`), "FA061", ""},
		{"IPv4 in octal", url(`"https://‹0177.0.0.01/"`), "FA061", ""},
		{"short IPv4", url(`"https://‹127.1/"`), "FA061", ""},
		{"IPv4 with a dot", url(`"https://‹127.0.0.1./"`), "FA061", ""},
		{"IPv6", url(`"https://‹[::1]/"`), "FA061", ""},
		{"IPv6 with a port", url(`"https://‹[::1]:443/"`), "FA061", ""},
		{"IPv4-mapped", url(`"https://‹[::ffff:127.0.0.1]/"`), "FA061", ""},
		{"bare IPv6", url(`"https://‹::1/"`), "FA061", ""},
		{"wildcard", url(`"https://‹*.example.com/"`), "FA065", ""},
		{"localhost", url(`"https://‹localhost:8080/"`), "FA062", ""},
		{"below localhost", url(`"https://‹a.localhost/"`), "FA062", ""},
		{"one label", url(`"https://‹intranet/"`), "FA062", ""},
		{"local", url(`"https://‹printer.local/"`), "FA062", ""},
		{"metadata", url(`"https://‹metadata.google.internal/"`), "FA062", ""},
		{"unicode host", url(`"https://‹bücher.example/"`), "FA060", `write "xn--bcher-kva.example"`},
		{"percent-encoded host", url(`"https://‹ex%61mple.com/"`), "FA060", ""},
		{"underscore", url(`"https://‹a_b.example.com/"`), "FA060", ""},
		{"empty label", url(`"https://‹a..example.com/"`), "FA060", ""},
		{"hyphen", url(`"https://‹-a.example.com/"`), "FA060", ""},
		{"long label", url(`"https://‹` + strings.Repeat("a", 64) + `.example.com/"`), "FA060", ""},
		{"numeric top", url(`"https://‹example.1a/"`), "FA060", ""},
		{"placeholder as host", url(`"https://‹{q}/"`), "FA051", ""},
		{"placeholder in host", url(`"https://‹{q}.example.com/"`), "FA051", ""},
		{"placeholder as port", url(`"https://example.com:‹{q}/"`), "FA051", ""},
		{"placeholder as scheme", url(`"‹{q}://example.com/"`), "FA051", ""},
		{"placeholder as the start of the URL", url(`"‹{q}/a"`), "FA051", ""},
		{"credential in the query", url(`"https://example.com/?a=1&api_key=‹hunter2"`), "FA037", "••••••"},
		{"credential from an argument", url(`"https://example.com/?api_key={q}"`), "", ""},
	})
}

func TestPlaceholders(t *testing.T) {
	url := func(u string) string { return httpTool(`"method":"GET","url":"` + u + `"`) }
	schema := func(schema, u string) string {
		return tool(`"action":{"type":"http","auth_ref":"key","method":"GET","url":"` + u + `"},"input_schema":` + schema)
	}
	jsonTool := func(members string) string {
		return with(`"kind":"mcp-tool","tools":[{"name":"t","description":"d","action":{"type":"http","method":"GET","url":"https://example.com",` + members + `}}],
"credential_slots":[{"ref":"account","label":"A","type":"json","allowed_hosts":["example.com"]}]`)
	}
	testRules(t, []ruleCase{
		{"unbound placeholder", url("https://example.com/‹{r}"), "FA052", "input_schema has no such property"},
		{"misspelled", schema(`{"type":"object","properties":{"range":{}}}`, "https://example.com/‹{rnage}"), "FA052", `did you mean "range"?`},
		{"no schema", tool(`"action":{"type":"http","auth_ref":"key","method":"GET","url":"https://example.com/‹{x}"}`), "FA052", `"{x}" has no value, because the tool has no input_schema`},
		{"open schema", schema(`{"type":"object"}`, "https://example.com/{x}"), "", ""},
		{"closed schema", schema(`{"type":"object","additionalProperties":false}`, "https://example.com/‹{x}"), "FA052", ""},
		{"by reference", schema(`{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"properties":{"x":{}}}}}`, "https://example.com/{x}"), "", ""},
		{"not closed", url("https://example.com/‹{q"), "FA050", "not closed"},
		{"not opened", url("https://example.com/q‹}"), "FA050", "closing brace"},
		{"invalid name", url("https://example.com/‹{a+b}/{q}"), "FA050", `"{a+b}" is not a placeholder`},
		{"empty name", url("https://example.com/‹{}"), "FA050", ""},
		{"digit first", url("https://example.com/‹{1a}"), "FA050", ""},
		{"double braces", url("https://example.com/‹{{q}}"), "FA050", "single braces"},
		{"double braces in a body", httpTool(`"method":"POST","url":"https://example.com","body_template":"x {‹{q}}"`), "FA050", "write {q}"},
		{"unbound placeholder in a body", httpTool(`"method":"POST","url":"https://example.com","body_template":"‹{r}"`), "FA052", ""},
		{"unbound placeholder in a header", httpTool(`"method":"POST","url":"https://example.com","headers":{"X-R":"‹{r}"}`), "FA052", ""},
		{"unbound placeholder in a prompt", tool(`"action":{"type":"prompt-template","template":"Say ‹{r}."}`, ``), "FA052", ""},
		{"braces in a header", httpTool(`"method":"POST","url":"https://example.com","headers":{"X-R":"‹{ }"}`), "FA050", ""},
		{"credential in the url", url("https://example.com/‹{credential}"), "FA053", ""},
		{"credential in the body", httpTool(`"method":"POST","url":"https://example.com","body_template":"‹{credential.a}"`), "FA053", ""},
		{"credential in a header", httpTool(`"method":"POST","url":"https://example.com","headers":{"X-Api-Key":"{credential}"}`), "", ""},
		{"credential without auth_ref", tool(`"action":{"type":"http","method":"GET","url":"https://example.com","headers":{"X-Api-Key":"‹{credential}"}}`, ``), "FA054", ""},
		{"whole JSON", jsonTool(`"auth_ref":‹"account"`), "FA056", "all of its JSON would be sent"},
		{"whole JSON in a header", jsonTool(`"auth_ref":"account","headers":{"X-Id":"{credential.id}","X-Key":"‹{credential}"}`), "FA056", ""},
		{"field of JSON", jsonTool(`"auth_ref":"account","headers":{"X-Id":"{credential.id}"}`), "", ""},
		{"field of a plain credential", httpTool(`"method":"GET","url":"https://example.com","headers":{"X-Api-Key":"‹{credential.id}"}`), "FA055", ""},
		{
			"field of a JSON credential", httpTool(`"method":"GET","url":"https://example.com","headers":{"X-Api-Key":"{credential.id}"}`,
				`{"ref":"key","label":"Key","type":"json","allowed_hosts":["example.com"]}`), "", "",
		},
		{"optional and repeated parts", httpTool(`"method":"POST","url":"https://example.com/{q}?a={q?}&b={q*}","headers":{"X-A":"{q?}"},"body_template":"{\"a\":{q?},\"b\":[{q},{q?}]}"`), "", ""},
		{"an optional body", httpTool(`"method":"POST","url":"https://example.com","body_template":"{q?}"`), "", ""},
		{"an optional part of a form", httpTool(`"method":"POST","url":"https://example.com","headers":{"Content-Type":"application/x-www-form-urlencoded"},"body_template":"a={q?}&b%5B%5D={q*}"`), "", ""},
		{"optional placeholder in the path", url("https://example.com/‹{q?}"), "FA058", "must be the whole value of a query parameter"},
		{"repeated placeholder in the path", url("https://example.com/‹{q*}?a=1"), "FA058", ""},
		{"optional placeholder in a part of a query parameter", url("https://example.com/?a=x‹{q?}&b=‹{q?}x&‹{q?}&‹{q*}={q}"), "FA058 FA058 FA058 FA058", ""},
		{"an unbound optional placeholder", url("https://example.com/?a=‹{r?}"), "FA052", ""},
		{"optional placeholder in a part of a header", httpTool(`"method":"GET","url":"https://example.com","headers":{"X-A":"a ‹{q?}","X-B":"‹{q*}"}`), "FA058 FA058", ""},
		{"an optional credential", httpTool(`"method":"GET","url":"https://example.com","headers":{"X-A":"‹{credential?}"}`), "FA058", ""},
		{"optional placeholder in a JSON string", httpTool(`"method":"POST","url":"https://example.com","body_template":‹‹"{\"a\":\"{q?}\",\"b\":{q*}}"`), "FA058 FA058", ""},
		{"optional placeholder in a plain-text body", httpTool(`"method":"POST","url":"https://example.com","body_template":"a ‹{q?}"`), "FA058", ""},
		{"optional placeholder in a prompt", tool(`"action":{"type":"prompt-template","template":"‹{q?}"},"input_schema":{"type":"object","properties":{"q":{}}}`, ``), "FA058", ""},
		{"an empty header", httpTool(`"method":"GET","url":"https://example.com","headers":{"X-Api-Key":""}`), "", ""},
	})
}

func TestHeadersAndBodies(t *testing.T) {
	post := func(members string) string {
		return httpTool(`"method":"POST","url":"https://example.com",` + members)
	}
	testRules(t, []ruleCase{
		{
			"header names", post(`"headers":{‹"a b":"x",‹"Host":"x","X-A":"1",‹"x-a":"2",‹"content-length":"3"}`),
			"FA034 FA034 FA035 FA034", "is reserved for the HTTP connection",
		},
		{"header values", post(`"headers":{"X-A":‹"a\nb","X-B":‹3}`), "FA036 AM101", ""},
		{"content type", post(`"headers":{"content-type":‹"{q}+json","X-A":"{q}"}`), "FA057", ""},
		{"literal credential", post(`"headers":{"Authorization":‹"Bearer hunter2"}`), "FA037", "••••••"},
		{"literal cookie", post(`"headers":{"cookie":‹"hunter2"}`), "FA037", "••••••"},
		{"headers as a list", post(`"headers":‹["x"]`), "AM101", ""},
		{"JSON body", post(`"body_template":"{\"a\":\"{q}\",\"b\":{q},\"c\":[{q},1]}"`), "", ""},
		{"broken JSON body", post(`"body_template":‹"{\"a\":{q}"`), "FA039", ""},
		{"two values", post(`"body_template":‹"[{q}{q}]"`), "FA039", ""},
		{"escaped quote", post(`"body_template":"{\"a\":\"\\\"{q}\\\"\"}"`), "", ""},
		{"a JSON content type for a form body", post(`"headers":{"content-TYPE":"application/vnd.api+json; charset=utf-8"},"body_template":‹"a={q}"`), "FA039", ""},
		{"form", post(`"headers":{"Content-Type":"application/x-www-form-urlencoded"},"body_template":"{q}=1"`), "", ""},
		{"lines of JSON", post(`"headers":{"Content-Type":"application/x-ndjson"},"body_template":‹"{\"a\":\"{q}\"}"`), "FA119", ""},
		{"a query language", post(`"headers":{"Content-Type":"application/graphql"},"body_template":‹"{q}"`), "FA119", ""},
		{"a query language without placeholders", post(`"headers":{"Content-Type":"application/graphql"},"body_template":"{ me { id } }"`), "", ""},
		{"plain text", post(`"headers":{"Content-Type":"text/plain; charset=utf-8"},"body_template":"{q}"`), "", ""},
		{"body that starts with a placeholder", post(`"body_template":"{q} and more"`), "", ""},
		{"body of a GET", httpTool(`"method":"GET","url":"https://example.com",‹"body_template":"x"`), "FA038", ""},
		{"body as an object", post(`"body_template":‹{"a":1}`), "AM101", ""},
	})
}
