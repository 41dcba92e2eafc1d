package findagent

import (
	"strings"
	"testing"
)

func TestCore(t *testing.T) {
	whole := func(name, prompt, examples string) string {
		return `{"name":` + name + ",\n" + `"system_prompt":` + prompt + ",\n" + `"example_prompts":` + examples + `}`
	}
	ok := `"` + prompt + `"`
	testRules(t, []ruleCase{
		{"valid", with(`"version":"1.0","category":"x","$schema":"https://ambit.run/schema/findagent.json"`), "", ""},
		{"not an object", `[]`, "top/AM101", ""},
		{"everything missing", `{}`, "top/AM102 top/AM102 top/AM102", `add "system_prompt"`},
		{"short name", whole(`‹"ab"`, ok, `["x"]`), "FA001", `"name" has 2 characters, but it must have at least 3`},
		{"name of one multi-byte character", whole(`‹"𝄞"`, ok, `["x"]`), "FA001", "has 1 character,"},
		{"shortest name", whole(`"äöü"`, ok, `["x"]`), "", ""},
		{"longest name", whole(`"`+strings.Repeat("ä", 80)+`"`, ok, `["x"]`), "", ""},
		{"long name", whole(`‹"`+strings.Repeat("a", 81)+`"`, ok, `["x"]`), "FA001", "at most 80"},
		{"name is not a string", whole(`‹7`, ok, `["x"]`), "AM101", ""},
		{"longest description", with(`"description":"` + strings.Repeat("é", 4000) + `"`), "", ""},
		{"long description", with(`"description":‹"` + strings.Repeat("é", 4001) + `"`), "FA002", "at most 4000"},
		{"short prompt", whole(`"abc"`, `‹"`+strings.Repeat("p", 49)+`"`, `["x"]`), "FA003", "has 49 characters"},
		{"shortest prompt", whole(`"abc"`, `"`+strings.Repeat("p", 50)+`"`, `["x"]`), "", ""},
		{"longest prompt", whole(`"abc"`, `"`+strings.Repeat("ü", 20000)+`"`, `["x"]`), "", ""},
		{"long prompt", whole(`"abc"`, `‹"`+strings.Repeat("p", 20001)+`"`, `["x"]`), "FA003", "at most 20000"},
		{"no examples", whole(`"abc"`, ok, `‹[]`), "FA005", "lists 0 prompts"},
		{"five examples", whole(`"abc"`, ok, `["1","2","3","4","5"]`), "", ""},
		{"six examples", whole(`"abc"`, ok, `‹["1","2","3","4","5","6"]`), "FA005", "lists 6 prompts"},
		{"empty example", whole(`"abc"`, ok, `[‹"",‹2]`), "AM105 AM101", ""},
		{"examples as a string", whole(`"abc"`, ok, `‹"x"`), "AM101", ""},
		{"compatibility", with(`"compatibility":{"claude":">=3","chatgpt":‹"","gemini":‹2,‹"clade":"x"}`), "AM105 AM101 AM103", `did you mean "claude"?`},
		{"unknown field", with(`‹"sytem_promt":"x"`), "AM103", `did you mean "system_prompt"?`},
		{"a field of another format", with(`‹"instructions":"x"`), "AM103", `in this dialect, the field is named "system_prompt"`},
		{"category is not a string", with(`"category":‹["x"]`), "AM101", ""},
	})
}

func TestKinds(t *testing.T) {
	const (
		tool  = `"tools":[{"name":"t","description":"d","action":{"type":"prompt-template","template":"x"}}]`
		plain = `"tools":[{"name":"t","description":"d"}]`
		src   = `"skills_source":{"kind":"r2","key":"k"}`
		list  = `"skills":[{"id":"a","name":"A"}]`
		code  = `"entrypoint":{"path":"a.ts"},"runtime":{"kind":"node"},"mcp":{"mode":"wrap"}`
	)
	marked := strings.Replace(tool, `"action"`, `‹"action"`, 1)
	testRules(t, []ruleCase{
		{"unknown kind", with(`"kind":‹"mcp-tol",` + tool), "AM104", `did you mean "mcp-tool"?`},
		{"kind is not a string", with(`"kind":‹1`), "AM101", ""},
		{"mcp-tool", with(`"kind":"mcp-tool",` + tool), "", ""},
		{"mcp-tool without tools", with(`"kind":"mcp-tool"`), "top/FA010", ""},
		{"hosted mcp-tool without tools", with(`"kind":"mcp-tool","delivery":{"mcp":{"remote":{"url":"https://example.com/mcp"}}}`), "top/FA010", ""},
		{"hosted mcp-tool without actions", with(`"kind":"mcp-tool","tools":[{"name":"t","description":"d"}],"delivery":{"mcp":{"remote":{"url":"https://example.com/mcp"}}}`), "", ""},
		{"local mcp-tool without actions", with(`"kind":"mcp-tool","tools":‹[{"name":"t","description":"d"}],"delivery":{"mcp":{"remote":{"url":"https://example.com/mcp"}}},"exec":"user-local"`), "FA010", ""},
		{"mcp-tool without actions", with(`"kind":"mcp-tool","tools":‹[{"name":"t","description":"d"}]`), "FA010", ""},
		{"recipe with described tools", with(plain), "", ""},
		{"recipe with actions", with(marked), "FA014", `set "kind": "mcp-tool"`},
		{"autonomous-agent", with(`"kind":"autonomous-agent",` + tool), "", ""},
		{"skills-bundle", with(`"kind":"skills-bundle",` + src + "," + list), "", ""},
		{"empty skills-bundle", with(`"kind":"skills-bundle"`), "top/FA011 top/FA011", `needs "skills_source"`},
		{"skills-bundle with an empty list", with(`"kind":"skills-bundle","skills":‹[],` + src), "FA011", ""},
		{"code-bundle", with(`"kind":"code-bundle",` + code + "," + list), "", ""},
		{"empty code-bundle", with(`"kind":"code-bundle"`), "top/FA012 top/FA012 top/FA012", `needs "entrypoint"`},
		{"code-bundle with actions", with(`"kind":"code-bundle",` + code + "," + marked), "FA015", ""},
		{
			"bundle fields in another kind of agent", with(`‹"entrypoint":{"path":"a.ts"},‹"runtime":{"kind":"node"},‹"mcp":{"mode":"wrap"},‹"ui":"u",‹"env":[],‹"allowed_hosts":[]`),
			"FA013 FA013 FA013 FA013 FA013 FA013", `set "kind": "code-bundle", or remove the field`,
		},
		{"skill fields in another kind of agent", with(`‹` + src + `,‹` + list + `,‹"router_skill_id":"a"`), "FA013 FA013 FA013", `"skills_source" has no effect`},
		{"skills source of a code-bundle", with(`"kind":"code-bundle",` + code + `,‹` + src), "FA013", ""},
	})
}

func TestTools(t *testing.T) {
	names := make([]string, 41)
	for i := range names {
		names[i] = `{"name":"t` + string(rune('a'+i/26)) + string(rune('a'+i%26)) + `","description":"d"}`
	}
	recipe := func(members string) string { return with(`"tools":[{"name":"t","description":"d",` + members + `}]`) }
	testRules(t, []ruleCase{
		{"no tools at all", with(`"tools":[]`), "", ""},
		{"41 tools", with(`"tools":‹[` + strings.Join(names, ",") + `]`), "FA004", "has 41 tools"},
		{"40 tools", with(`"tools":[` + strings.Join(names[1:], ",") + `]`), "", ""},
		{
			"names", with(`"tools":[{"name":‹"a b","description":"d"},{"name":"x","description":"d"},{"name":‹"x","description":‹""}]`),
			"FA020 FA021 AM105", "",
		},
		{"tools with invalid entries", with(`"tools":[‹"x",‹‹{}]`), "AM101 AM102 AM102", ""},
		{"tools is an object", with(`"tools":‹{"t":{}}`), "AM101", ""},
		{"camel case", recipe(`‹"inputSchema":{}`), "AM103", `did you mean "input_schema"?`},
		{
			"schemas", recipe(`"input_schema":{"type":"object","properties":{"a":{"type":‹"int"}}},"output_schema":{"required":‹"a"}`),
			"FA022 FA022", `JSON Schema calls it "integer"`,
		},
		{"remote reference", recipe(`"output_schema":{"$ref":‹"https://example.com/s.json"}`), "FA022", "which ambit never fetches"},
		{"input of type array", recipe(`"input_schema":{"type":‹"array"}`), "FA023", ""},
		{"input with several types", recipe(`"input_schema":{"type":‹["object","null"]}`), "FA023", ""},
		{"input of a wrong type", recipe(`"input_schema":{"type":‹"objct"}`), "FA022", ""},
		{"input without a type", recipe(`"input_schema":‹{}`), "FA024", ""},
		{"input schema is true", recipe(`"input_schema":‹true`), "AM101", ""},
		{"output schema is true", recipe(`"output_schema":true`), "", ""},
		{"annotations", recipe(`"annotations":{"readOnlyHint":‹"yes","title":‹1,‹"readonlyHint":true}`), "AM101 AM101 AM103", `did you mean "readOnlyHint"?`},
		{"contradiction", recipe(`"annotations":{"readOnlyHint":true,‹"destructiveHint":true}`), "FA025", ""},
		{"no contradiction", recipe(`"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":true}`), "", ""},
		{"annotations as a list", recipe(`"annotations":‹[]`), "AM101", ""},
	})
}

func TestSlots(t *testing.T) {
	slots := func(slots ...string) string {
		return with(`"kind":"autonomous-agent","credential_slots":[` + strings.Join(slots, ",") + `],
"tools":[{"name":"t","description":"d","action":{"type":"http","method":"GET","url":"https://example.com","auth_ref":"a"}}]`)
	}
	slot := func(members string) string {
		return slots(`{"ref":"a","label":"A","allowed_hosts":["example.com"],` + members + `}`)
	}
	hosts := func(hosts string) string { return slots(`{"ref":"a","label":"A","allowed_hosts":` + hosts + `}`) }
	testRules(t, []ruleCase{
		{"all fields", slot(`"env":"A_1","type":"json","scopes":["s"],"description":"d","required":false`), "", ""},
		{"scopes of a slot that is not JSON", slot(`‹"scopes":["s"]`), "FA077", ""},
		{"empty scope", slot(`"type":"json","scopes":["s",‹""]`), "AM105", ""},
		{"nothing", slots(`{"ref":"a","label":"A","allowed_hosts":["example.com"]}`, `‹‹‹{}`), "AM102 AM102 FA074", ""},
		{"not an object", slots(`{"ref":"a","label":"A","allowed_hosts":["example.com"]}`, `‹"x"`), "AM101", ""},
		{"ref", slots(`{"ref":"a","label":"A","allowed_hosts":["example.com"]}`, `{"ref":‹"1 x","label":"A","allowed_hosts":["example.com"]}`), "FA070", ""},
		{"empty label", slots(`{"ref":"a","label":‹"","allowed_hosts":["example.com"]}`), "AM105", ""},
		{
			"duplicate ref", slots(`{"ref":"a","label":"A","allowed_hosts":["example.com"]}`, `{"ref":‹"a","label":"A","allowed_hosts":["example.com"]}`),
			"FA071", "",
		},
		{"lower-case env", slot(`"env":‹"my-token"`), "FA072", `write "MY_TOKEN"`},
		{"empty env", slot(`"env":‹""`), "FA072", ""},
		{
			"two slots with one env", slots(`{"ref":"a","label":"A","env":"B_C","allowed_hosts":["example.com"]}`, `{"ref":‹‹"b.c","label":"A","allowed_hosts":["example.com"]}`),
			"FA073 FA076", `already uses the environment variable "B_C"`,
		},
		{"no hosts", slots(`‹{"ref":"a","label":"A"}`), "FA074", "could be sent anywhere"},
		{"empty hosts", hosts(`‹[]`), "FA074", ""},
		{"hosts are a list", hosts(`‹"example.com"`), "AM101", ""},
		{"unknown type", slot(`"type":‹"text"`), "AM104", ""},
		{"required", slot(`"required":‹"no"`), "AM101", ""},
		{"values", slot(`‹"value":"hunter2",‹"secret":"hunter2",‹"default":"hunter2",‹"token":["hunter2"],‹"password":"hunter2"`), "FA075 FA075 FA075 FA075 FA075", ""},
		{
			"unused", slots(`{"ref":"a","label":"A","allowed_hosts":["example.com"]}`, `{"ref":‹"b","label":"A","allowed_hosts":["example.com"]}`),
			"FA076", "",
		},
		{"subdomain", hosts(`["COM.example","Example.Com"]`), "", ""},
		{"scheme", hosts(`["example.com",‹"https://example.com"]`), "FA060", "without https://"},
		{"port", hosts(`["example.com",‹"example.com:443"]`), "FA060", "every port"},
		{"path", hosts(`["example.com",‹"example.com/a"]`), "FA060", "without a path"},
		{"user", hosts(`["example.com",‹"bob:hunter2@example.com"]`), "FA060", "••••••"},
		{"wildcard", hosts(`["example.com",‹"*.example.com"]`), "FA065", ""},
		{"address", hosts(`["example.com",‹"10.0.0.1",‹"::1",‹"0xa.1"]`), "FA061 FA061 FA061", ""},
		{"IDN", hosts(`["example.com",‹"bücher.example"]`), "FA060", `write "xn--bcher-kva.example"`},
		{"punycode", hosts(`["example.com","xn--bcher-kva.example",‹"xn--a-ecp.ru"]`), "FA060", "an invalid xn-- part"},
		{"trailing dot", hosts(`["example.com",‹"example.com."]`), "FA060", "extra dot"},
		{"empty", hosts(`["example.com",‹""]`), "FA060", ""},
		{"space", hosts(`["example.com",‹"exa mple.com"]`), "FA060", ""},
		{"local", hosts(`["example.com",‹"localhost",‹"db",‹"a.internal"]`), "FA062 FA062 FA062", ""},
		{"public suffix", hosts(`["example.com",‹"com",‹"co.uk",‹"CO.UK"]`), "FA063 FA063 FA063", ""},
		{"private suffix", hosts(`["example.com",‹"github.io","x.github.io"]`), "FA064", ""},
		{"repeated", hosts(`["example.com",‹"Example.com"]`), "AM107", ""},
		{"host is not a string", hosts(`["example.com",‹1]`), "AM101", ""},
	})
}

func TestAuthRef(t *testing.T) {
	to := func(url, hosts string) string {
		return tool(`"action":{"type":"http","method":"GET","url":"`+url+`","auth_ref":"key"}`, `{"ref":"key","label":"K","allowed_hosts":`+hosts+`}`)
	}
	marked := func(url, hosts string) string {
		return strings.Replace(to(url, hosts), `"auth_ref":`, `"auth_ref":‹`, 1)
	}
	testRules(t, []ruleCase{
		{"exact", to("https://api.example.com/x", `["api.example.com"]`), "", ""},
		{"subdomain", to("https://a.b.example.com:99/x", `["example.com"]`), "", ""},
		{"host with upper-case letters and a trailing dot", to("https://API.example.COM./x", `["Example.com"]`), "", ""},
		{
			"other host", marked("https://api.evil.test/x", `["example.com","example.org","example.net","example.edu"]`), "FA041",
			`is allowed only for "example.com", "example.org", "example.net" or 1 other, not for "api.evil.test"`,
		},
		{"parent", marked("https://example.com/x", `["api.example.com"]`), "FA041", ""},
		{"host that only ends like an allowed host", marked("https://evilexample.com/x", `["example.com"]`), "FA041", ""},
		{"look-alike", marked("https://example.com.evil.test/x", `["example.com"]`), "FA041", ""},
		{
			"unknown slot", tool(`"action":{"type":"http","method":"GET","url":"https://example.com","auth_ref":‹"kye"}`),
			"FA040", `did you mean "key"?`,
		},
		{"empty", tool(`"action":{"type":"http","method":"GET","url":"https://example.com","auth_ref":‹""}`, ``), "AM105", ""},
		{"no slots", tool(`"action":{"type":"http","method":"GET","url":"https://example.com","auth_ref":‹"x"}`, ``), "FA040", ""},
	})
}

func TestGuardrails(t *testing.T) {
	rails := func(members string) string { return with(`"guardrails":{` + members + `}`) }
	input := func(members string) string { return rails(`"input":{` + members + `}`) }
	output := func(members string) string { return rails(`"output":{` + members + `}`) }
	policy := func(members string) string {
		return with(`"tools":[{"name":"pay","description":"d","input_schema":{"type":"object","properties":{"amount":{"type":"string"}}}},{"name":"look","description":"d"}],
"guardrails":{"actions":{` + members + `}}`)
	}
	hundred := strings.Repeat(`"abc",`, 100)
	testRules(t, []ruleCase{
		{"empty", rails(``), "", ""},
		{"not an object", with(`"guardrails":‹[]`), "AM101", ""},
		{"guardrails with numbers instead of objects", rails(`"input":‹1,"output":‹2,"actions":‹3`), "AM101 AM101 AM101", ""},
		{"unknown", rails(`‹"imput":{}`), "AM103", `did you mean "input"?`},
		{"max_length", input(`"max_length":‹0`), "AM106", ""},
		{"fractional max_length", input(`"max_length":‹1.5`), "AM106", ""},
		{"max_length in quotes", input(`"max_length":‹"10"`), "AM101", ""},
		{"patterns", input(`"deny_patterns":["ignore (all )?previous","(?-i)ABC","\\bjailbreak\\b"]`), "", ""},
		{"not a list", input(`"deny_patterns":‹"x"`), "AM101", ""},
		{"not texts", input(`"deny_patterns":[‹1]`), "AM101", ""},
		{"broken pattern", input(`"deny_patterns":["ok",‹"a("]`), "FA080", "parenthesis that is not closed"},
		{"look-ahead", input(`"deny_patterns":[‹"a(?=b)"]`), "FA080", "linear time"},
		{"backreference", input(`"deny_patterns":[‹"(a)\\1"]`), "FA080", "backreferences"},
		{"large pattern", input(`"deny_patterns":[‹"(abcdefghijklm){1000}"]`), "FA080", "too many steps"},
		{"empty pattern", input(`"deny_patterns":[‹""]`), "FA081", ""},
		{"matches all", input(`"deny_patterns":[‹"a*",‹"(x|)",‹"^"]`), "FA081 FA081 FA081", "deny every call"},
		{"long pattern", input(`"deny_patterns":[‹"` + strings.Repeat("a", 1001) + `"]`), "FA082", "1001 bytes"},
		{"100 patterns", input(`"deny_patterns":[` + strings.TrimSuffix(hundred, ",") + `]`), "", ""},
		{"101 patterns", input(`"deny_patterns":‹[` + hundred + `"x"]`), "FA082", "101 patterns"},
		{"pii", input(`"pii_redaction":["email","iban",‹"emial",‹"email"]`), "AM104 AM107", `did you mean "email"?`},
		{"scan on", output(`"secret_leak_scan":true,"on_leak":"block","schema":{"type":"object"}`), "", ""},
		{"scan off", output(`"secret_leak_scan":‹false`), "FA083", ""},
		{"secret_leak_scan in quotes", output(`"secret_leak_scan":‹"false"`), "AM101", ""},
		{"on_leak", output(`"on_leak":‹"drop"`), "AM104", ""},
		{"on_result", output(`"on_result":‹"block"`), "AM104", ""},
		{"on_injection", output(`"on_injection":"redact"`), "", ""},
		{"unknown on_injection", output(`"on_injection":‹"block"`), "AM104", ""},
		{"output schema", output(`"schema":{"type":‹"nope"}`), "FA022", ""},
		{"output schema is null", output(`"schema":‹null`), "FA022", ""},
		{"rails", policy(`"pay":{"approval":"human","max_amount":100.50,"rate_limit":"10/hour","idempotent":true}`), "", ""},
		{"unknown tool", policy(`‹"pya":{}`), "FA084", `did you mean "pay"?`},
		{"guardrails of a tool as a number", policy(`"pay":‹1`), "AM101", ""},
		{"unknown rail", policy(`"pay":{‹"aproval":"human"}`), "AM103", `did you mean "approval"?`},
		{"approval", policy(`"pay":{"approval":‹"yes"}`), "AM104", ""},
		{"idempotent", policy(`"pay":{"idempotent":‹1}`), "AM101", ""},
		{"zero amount", policy(`"pay":{"max_amount":0}`), "", ""},
		{"negative amount", policy(`"pay":{"max_amount":‹-1}`), "FA085", "negative"},
		{"exponent", policy(`"pay":{"max_amount":‹1e3}`), "FA085", "exponent"},
		{"amount in quotes", policy(`"pay":{"max_amount":‹"100"}`), "FA085", "without quotes"},
		{"amount object", policy(`"pay":{"max_amount":{"per_call":"10.00","per_day":50,"currency":"EUR"}}`), "", ""},
		{"no cap", policy(`"pay":{"max_amount":‹{"currency":"EUR"}}`), "FA085", "max_amount has no limit"},
		{"invalid amounts", policy(`"pay":{"max_amount":{"per_call":‹"1,000","per_day":‹true,"currency":‹"eur"}}`), "FA085 FA085 FA085", "three capital letters"},
		{"leading zero", policy(`"pay":{"max_amount":{"per_call":‹"010"}}`), "FA085", ""},
		{"unknown field in max_amount", policy(`"pay":{"max_amount":{"per_call":"1",‹"perday":"3"}}`), "AM103", `did you mean "per_day"?`},
		{"max_amount for a tool without an amount", policy(`"look":{‹"max_amount":5}`), "FA086", "ambit will refuse every call"},
		{"rates", policy(`"pay":{"rate_limit":"999999999/day"}`), "", ""},
		{"rate 0", policy(`"pay":{"rate_limit":‹"0/hour"}`), "FA087", ""},
		{"rate without unit", policy(`"pay":{"rate_limit":‹"10"}`), "FA087", ""},
		{"short unit", policy(`"pay":{"rate_limit":‹"10/min"}`), "FA087", `write "10/minute"`},
		{"plural unit", policy(`"pay":{"rate_limit":‹"10 per hours"}`), "FA087", `write "10/hour"`},
		{"other unit", policy(`"pay":{"rate_limit":‹"10/week"}`), "FA087", ""},
		{"rate is not a string", policy(`"pay":{"rate_limit":‹10}`), "AM101", ""},
	})
}

func TestDelivery(t *testing.T) {
	testRules(t, []ruleCase{
		{"words", with(`"delivery":"mcp.remote","exec":"findagent-hosted","auth":"oauth-device","targets":["cli","web"]`), "", ""},
		{"unknown words", with(`"delivery":‹"mcp","exec":‹"local","auth":‹"oauth","targets":[‹"vs-code",‹1]`), "AM104 AM104 AM104 AM104 AM101", `did you mean "vscode"?`},
		{"repeated target", with(`"targets":["cli",‹"cli"]`), "AM107", ""},
		{"object", with(`"delivery":{"prompt":{},"mcp":{"stdio":{"command":"ambit","args":["run",""]},"remote":{"url":"https://x.example/mcp"}}}`), "", ""},
		{"prompt alone", with(`"delivery":{"prompt":true}`), "", ""},
		{"prompt false", with(`"delivery":{"prompt":‹false}`), "FA090", ""},
		{"nothing", with(`"delivery":‹{}`), "FA090", ""},
		{"empty mcp", with(`"delivery":{"mcp":‹{}}`), "FA090", ""},
		{"a list", with(`"delivery":‹["prompt"]`), "FA090", ""},
		{"unknown", with(`"delivery":{"prompt":true,‹"htp":1,"mcp":{"stdio":{‹"cmd":"x"},‹"sse":{}}}`), "AM103 AM103 AM103", ""},
		{"stdio", with(`"delivery":{"mcp":{"stdio":‹"x"}}`), "AM101", ""},
		{"stdio fields", with(`"delivery":{"mcp":{"stdio":{"command":‹"","args":[‹1]}}}`), "AM105 AM101", ""},
		{"remote url", with(`"delivery":{"mcp":{"remote":{"url":‹"http://x.example"}}}`), "FA091", ""},
		{"remote URL without a host", with(`"delivery":{"mcp":{"remote":{"url":‹"https://"}}}`), "FA091", ""},
		{"hosted agent over stdio", with(`"exec":‹"findagent-hosted","delivery":"mcp.stdio"`), "FA092", ""},
	})
}

func TestSkills(t *testing.T) {
	bundle := func(source, skills string) string {
		return with(`"kind":"skills-bundle","skills_source":` + source + `,"skills":` + skills)
	}
	const one, src = `[{"id":"a","name":"A"}]`, `{"kind":"r2","key":"k"}`
	key := func(key string) string { return bundle(`{"kind":"r2","key":‹`+key+`}`, one) }
	testRules(t, []ruleCase{
		{"all fields", bundle(`{"kind":"r2","key":"a/b/c-1"}`, `[{"id":"a_1-b","name":"A","description":"","tags":["x"]}]`), "", ""},
		{"source is an object", bundle(`‹"r2"`, one), "AM101", ""},
		{"source without required fields", bundle(`‹‹{}`, one), "AM102 AM102", ""},
		{"other source", bundle(`{"kind":‹"s3","key":"k"}`, one), "AM104", ""},
		{"empty key", key(`""`), "FA100", ""},
		{"absolute key", key(`"/a"`), "FA100", "absolute"},
		{"key that leads out of the folder", key(`"a/../../b"`), "FA100", `".."`},
		{"key with a backslash", key(`"a\\b"`), "FA100", "backslash"},
		{"key is not a string", key(`1`), "AM101", ""},
		{"skills is a list", bundle(src, `‹{}`), "AM101", ""},
		{"skill without required fields", bundle(src, `[‹‹{}]`), "AM102 AM102", ""},
		{"ids", bundle(src, `[{"id":‹"A","name":"A"},{"id":"a","name":"A"},{"id":‹"a","name":"A"},{"id":‹"`+strings.Repeat("a", 65)+`","name":"A"}]`), "FA101 FA102 FA101", ""},
		{"name and tags", bundle(src, `[{"id":"a","name":‹"","tags":[‹""],‹"desc":"x"}]`), "AM105 AM105 AM103", ""},
		{"router", bundle(src, `[{"id":"main","name":"A"}],"router_skill_id":"main"`), "", ""},
		{"unknown router", bundle(src, `[{"id":"main","name":"A"}],"router_skill_id":‹"mian"`), "FA103", `did you mean "main"?`},
	})
}

func TestBundles(t *testing.T) {
	bundle := func(entry, runtime, mcp, more string) string {
		return with(`"kind":"code-bundle","entrypoint":` + entry + `,"runtime":` + runtime + `,"mcp":` + mcp + more)
	}
	const entry, node, wrap = `{"path":"src/agent.ts"}`, `{"kind":"node"}`, `{"mode":"wrap"}`
	path := func(p string) string { return bundle(`{"path":‹`+p+`}`, node, wrap, ``) }
	version := func(v string) string { return bundle(entry, `{"kind":"python","version":`+v+`}`, wrap, ``) }
	env := func(env string) string { return bundle(entry, node, wrap, `,"env":`+env) }
	testRules(t, []ruleCase{
		{"all fields", bundle(`{"path":"a.py","export":"main"}`, `{"kind":"python","version":"3.12"}`, `{"mode":"native","command":"python","args":["-m","x"]}`,
			`,"allowed_hosts":["api.example.com"],"ui":{"path":"ui"},"env":[{"name":"A_B","description":"d"}],"credential_slots":[{"ref":"k","label":"K","allowed_hosts":["example.com"]}]`), "", ""},
		{"other forms", bundle(entry, node, wrap, `,"allowed_hosts":[],"ui":"ui","env":{"A_B":"d"}`), "", ""},
		{"entrypoint is a string", bundle(`‹"src/agent.ts"`, node, wrap, ``), "AM101", `write {"path": "src/agent.ts"}`},
		{"entrypoint is a list", bundle(`‹[]`, node, wrap, ``), "AM101", ""},
		{"no path", bundle(`‹{}`, node, wrap, ``), "AM102", ""},
		{"empty path", path(`""`), "FA110", ""},
		{"absolute path", path(`"/a.ts"`), "FA110", ""},
		{"drive letter", path(`"C:a.ts"`), "FA110", ""},
		{"backslash", path(`"src\\a.ts"`), "FA110", ""},
		{"path out of the bundle", path(`"../a.ts"`), "FA110", ""},
		{"ends outside", path(`"a/.."`), "FA110", ""},
		{"NUL", path(`"a\u0000.ts"`), "FA110", ""},
		{"address", path(`"https://example.com/a.ts"`), "FA110", ""},
		{"export", bundle(`{"path":"a.ts","export":‹"my handler"}`, node, wrap, ``), "FA112", ""},
		{"runtime without kind", bundle(entry, `‹{}`, wrap, ``), "AM102", ""},
		{"other runtime", bundle(entry, `{"kind":‹"deno"}`, wrap, ``), "AM104", ""},
		{"versions", version(`">=18 <21"`), "", ""},
		{"version 20.x", version(`"20.x"`), "", ""},
		{"version is a number", version(`‹3.10`), "AM101", ""},
		{"version is a word", version(`‹"latest"`), "FA113", ""},
		{"empty version", version(`‹""`), "FA113", ""},
		{"mcp without mode", bundle(entry, node, `‹{}`, ``), "AM102", ""},
		{"unknown mode", bundle(entry, node, `{"mode":‹"wrapped"}`, ``), "AM104", ""},
		{"native without command", bundle(entry, node, `‹{"mode":"native"}`, ``), "FA114", ""},
		{"native with an empty command", bundle(entry, node, `{"mode":"native","command":‹"","args":‹"x"}`, ``), "AM105 AM101", ""},
		{"mode wrap with a command", bundle(entry, node, `{"mode":"wrap",‹"command":"x",‹"args":[]}`, ``), "FA115 FA115", ""},
		{"hosts", bundle(entry, node, wrap, `,"allowed_hosts":[‹"*",‹"https://a.example"]`), "FA065 FA060", ""},
		{"ui", bundle(entry, node, wrap, `,"ui":‹"/www"`), "FA110", ""},
		{"ui object", bundle(entry, node, wrap, `,"ui":{"path":‹"../www",‹"x":1}`), "FA110 AM103", ""},
		{"ui is neither a string nor an object", bundle(entry, node, wrap, `,"ui":‹true`), "AM101", ""},
		{"env is neither a list nor an object", env(`‹"A"`), "AM101", ""},
		{"env names", env(`[{"name":‹"api-url"},{"name":"A"},{"name":‹"A"},‹{},‹3]`), "FA116 FA117 AM102 AM101", `write "API_URL"`},
		{"invalid env names as keys", env(`{‹"apiUrl":"d","B":‹1}`), "FA116 AM101", ""},
		{"secret name in a list of env", env(`[{"name":‹"GITHUB_TOKEN"}]`), "FA118", "credential_slots"},
		{"secret name as a key of env", env(`{‹"DB_PASSWORD":"d"}`), "FA118", ""},
		{"value", env(`[{"name":"A",‹"value":"x"}]`), "AM103", ""},
		{"secret value", env(`[{"name":"A",‹"default":‹"ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"}]`), "AM103 FA118", "••••••"},
	})
}
