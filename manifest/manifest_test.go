package manifest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

const small = `{"schema_version": 1, "agent": "matrix://agent/x", "allowed_side_effects": ["read"], "servers": [{"alias": "a", "transport": "http", "endpoint": "https://example.com/mcp", "version": "1.0.0", "tools": [{"name": "t", "side_effect_class": "read"}]}]}`

func codes(m *manifest.Manifest) string {
	var out []string
	for _, d := range m.Diagnostics {
		out = append(out, fmt.Sprintf("%s %d:%d", d.Code, d.Line, d.Column))
	}
	return strings.Join(out, ", ")
}

func TestEncodings(t *testing.T) {
	utf16 := []byte{0xFF, 0xFE}
	for _, c := range []byte(small) {
		utf16 = append(utf16, c, 0)
	}
	tests := []struct {
		name  string
		src   []byte
		want  string
		valid bool
	}{
		{"plain", []byte(small), "", true},
		{"byte order mark", []byte("\uFEFF" + small), "AM004 1:1", true},
		{"utf-16", utf16, "AM003 1:1", false},
		{"latin-1", []byte("{\n\"a\": \"caf\xe9\"}"), "AM003 2:10", false},
		{"empty", nil, "AM016 1:1", false},
		{"blank", []byte(" \n\t"), "AM016 1:1", false},
		{"only a byte order mark", []byte("\uFEFF"), "AM004 1:1, AM016 1:1", false},
		{"a list", []byte("[]"), "AM015 1:1", false},
		{"a text", []byte(`"x"`), "AM015 1:1", false},
		{"null", []byte("null"), "AM015 1:1", false},
		{"an unknown word", []byte("hello"), "AM005 1:1", false},
		{"NUL", []byte("{\x00}"), "AM005 1:2", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, _ := manifest.Parse("x.json", tt.src, manifest.Options{})
			if codes(m) != tt.want || m.Valid() != tt.valid {
				t.Errorf("got %q, valid=%t; want %q, %t", codes(m), m.Valid(), tt.want, tt.valid)
			}
		})
	}
}

// Load rejects a file that is far too large, and does not read the whole file into memory.
func TestHugeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "huge.json")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(100 << 20); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := manifest.Load(file, manifest.Options{})
	runtime.ReadMemStats(&after)
	if invalid, ok := errors.AsType[*manifest.InvalidError](err); !ok || invalid.Manifest != m || codes(m) != "AM002 1:1" {
		t.Errorf("got %v, %v", m, err)
	}
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 200 {
		t.Errorf("loading a file of 100 MiB allocated %d MiB", used)
	}
}

// TestLargeManifests parses valid and invalid manifests of about a megabyte or more in each dialect. If parsing took
// quadratic time, the test would time out.
func TestLargeManifests(t *testing.T) {
	tool := func(i int) string {
		return fmt.Sprintf(`{"name": "tool_%d", "description": "Does thing number %d and reports it.", "side_effect_class": "read"}`, i, i)
	}
	many := func(n int, f func(int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = f(i)
		}
		return strings.Join(parts, ",\n")
	}
	tests := map[string]struct{ name, text, want string }{
		"matrix":     {"m.json", strings.Replace(small, `{"name": "t", "side_effect_class": "read"}`, many(7_000, tool), 1), ""},
		"matrix bad": {"m.json", strings.Replace(small, `{"name": "t", "side_effect_class": "read"}`, many(7_000, func(int) string { return `{"name": "same", "side_efect_class": "raed", "x": ""}` }), 1), "MX032"},
		"one line":   {"m.json", strings.ReplaceAll(strings.Replace(small, `{"name": "t", "side_effect_class": "read"}`, many(7_000, func(int) string { return `{"name": "é é", "side_effect_class": "raed"}` }), 1), "\n", " "), "MX031"},
		"matrix aliases": {"m.json", fmt.Sprintf(`{"schema_version": 1, "agent": "matrix://agent/x", "allowed_side_effects": ["read"], "servers": [%s]}`, many(2_500, func(i int) string {
			return fmt.Sprintf(`{"alias": "a%d", "transport": "http", "endpoint": "https://example.com/mcp", "version": "1.0.0", "tools": [{"name": "t", "side_effect_class": "read"}], "headers": {"X-A": "$env:X"}}`, i)
		})), ""},
		"gpars": {"g.json", fmt.Sprintf(`{"id": "x", "required_mcp_servers": [%s]}`, many(5_600, func(i int) string {
			return fmt.Sprintf(`{"server_id": "registry.openmcp.org/server-%d", "version": ">=1.0.0", "permission_scopes": ["read"]}`, i)
		})), ""},
		"unknown fields":         {"g.json", fmt.Sprintf(`{"id": "x", "required_mcp_servers": [], %s}`, many(25_000, func(i int) string { return fmt.Sprintf(`"field_%d": %d`, i, i) })), "GP001"},
		"covenant":               {"c.toml", "[agent]\nid = \"a@b\"\nname = \"a\"\nversion = \"1.0.0\"\nruntime = \"node\"\nentry = \"a\"\n[capabilities]\nrequired = [" + many(100_000, func(i int) string { return fmt.Sprintf(`"tool.action_%d"`, i) }) + "]\n", ""},
		"secrets":                {"m.json", fmt.Sprintf(`{"schema_version": 1, "agent": "matrix://agent/x", "x": [%s], "servers": []}`, many(10_000, func(i int) string { return fmt.Sprintf(`"ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P%05d"`, i) })), "AM110"},
		"prefixes of tokens":     {"m.json", strings.Replace(small, `"agent"`, `"description": "`+strings.Repeat("eyJ-", 1<<18)+`", "agent"`, 1), ""},
		"a long reference":       {"m.json", strings.Replace(small, `"version"`, `"headers": {"A": "$env:`+strings.Repeat("A", 4<<20)+`"}, "version"`, 1), ""},
		"problems below one key": {"m.json", strings.Replace(small, `"agent"`, `"`+strings.Repeat("k", 1<<20)+`": [`+many(2000, func(int) string { return "\"\u200b\"" })+`], "agent"`, 1), "AM111"},
		"no known key":           {"m.json", "{" + many(31_900, func(i int) string { return fmt.Sprintf(`"qqqqqqqqqqqq%06d": 0`, i) }) + "}", "AM020"},
		"schema of references":   {"f.json", fmt.Sprintf(`{"name": "abc", "system_prompt": "%s", "example_prompts": ["x"], "tools": [{"name": "t", "description": "d", "input_schema": {"type": "object", "allOf": [%s], "$defs": {"zz": true, %s}}}]}`, strings.Repeat("x", 60), many(5_000, func(int) string { return `{"$ref": "#/$defs/zz"}` }), many(5_000, func(i int) string { return fmt.Sprintf(`"a%d": true`, i) })), "FA"},
		"findagent slots": {"f.json", fmt.Sprintf(`{"name": "abc", "system_prompt": "%s", "example_prompts": ["x"], "credential_slots": [%s]}`, strings.Repeat("x", 60), many(5_000, func(i int) string {
			return fmt.Sprintf(`{"ref": "r%d", "label": "l", "allowed_hosts": ["api.example.com"]}`, i)
		})), "FA"},
		"findagent tools": {"f.json", fmt.Sprintf(`{"name": "abc", "system_prompt": "%s", "example_prompts": ["x"], "tools": [%s]}`, strings.Repeat("x", 60), many(1_900, func(i int) string {
			return fmt.Sprintf(`{"name": "t%d", "description": "d", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}, "action": {"type": "http", "method": "GET", "url": "https://api.example.com/{a}?b={b}", "auth_ref": "nope"}}`, i)
		})), "FA"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			m, _ := manifest.Parse(tt.name, []byte(tt.text), manifest.Options{})
			for _, d := range m.Diagnostics[:min(100, len(m.Diagnostics))] {
				m.Source.Frame(d)
			}
			took := time.Since(start)
			t.Logf("%.1f MB in %v, %d diagnostics", float64(len(tt.text))/1e6, took.Round(time.Millisecond), len(m.Diagnostics))
			if tt.want == "" && !m.Valid() || !strings.Contains(codes(m), tt.want) {
				t.Errorf("want %q, got %s", tt.want, clip([]byte(codes(m))))
			}
		})
	}
}

// Suspect must return true for every file that could be a broken manifest.
func TestSuspect(t *testing.T) {
	const schema = `{"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"system_prompt": {}}}`
	for name, tt := range map[string]struct {
		path, text string
		want       bool
	}{
		"another file":                          {"x.json", `{"name": "x"}`, false},
		"a schema":                              {"x.json", schema, false},
		"a schema with a manifest's name":       {"schema/findagent.json", schema, false},
		"a truncated schema":                    {"schema/findagent.json", schema[:40], true},
		"a manifest's name":                     {"a/findagent.json", `{"name": "x"}`, true},
		"a manifest's name, in TOML":            {"a/agent.toml", "name = 'x'", true},
		"a $schema that is not json-schema.org": {"findagent.json", `{"$schema": "https://ambit.run/schema/findagent.json", "nmae": "x"}`, true},
		"json-schema.org only in the path":      {"findagent.json", `{"$schema": "https://example.com/json-schema.org/"}`, true},
		"not an object":                         {"findagent.json", `[]`, true},
		"a truncated file with a manifest key":  {"x.json", `{"agents": [{"system_prompt": "x"`, true},
		"an empty file":                         {"x.json", ``, false},
		"an empty file with a manifest's name":  {"agent.toml", ``, true},
	} {
		m, _ := manifest.Parse(tt.path, []byte(tt.text), manifest.Options{})
		if got := m.Suspect(); got != tt.want {
			t.Errorf("%s: Suspect() = %t, want %t", name, got, tt.want)
		}
	}
}

func TestDetect(t *testing.T) {
	tests := []struct {
		name, text string
		want       agent.Dialect
		code       string
	}{
		{"x.json", `{"schema_version": 1}`, agent.Matrix, ""},
		{"x.json", `{"agent": "matrix://agent/x"}`, agent.Matrix, ""},
		{"x.json", `{"required_mcp_servers": []}`, agent.GPARS, ""},
		{"x.json", `{"system_prompt": "x"}`, agent.FindAgent, ""},
		{"x.json", `{"guardrails": {}}`, agent.FindAgent, ""},
		{"x.toml", "[agent]\n", agent.Covenant, ""},
		{"x", "[agent]\nid = 'x'", agent.Covenant, ""},
		{"x", `{"servers": []}`, agent.Matrix, ""},
		{"x.json", `{"agent": {"id": "x"}}`, "", "AM020"},
		{"x.json", `{"mcpServers": {}}`, "", "AM020"},
		{"x.json", `{"name": "x"}`, "", "AM020"},
		{"x.json", `{"servers": [], "required_mcp_servers": []}`, "", "AM021"},
		{"x.json", `{"servers": [], "schema_version": 1, "required_mcp_servers": []}`, agent.Matrix, ""},
		{"x.toml", "name = 'x'\n", "", "AM020"},
		// OpenAPI descriptions also have the key servers. A manifest is therefore recognized only by another key.
		{"x.json", `{"openapi": "3.1.0", "info": {}, "servers": []}`, "", "AM020"},
		{"x.json", `{"openapi": "3.1.0", "info": {}, "servers": [], "allowed_side_effects": []}`, agent.Matrix, ""},
		{"x.json", `{"openapi": "3.1.0", "info": {}, "servers": [], "system_prompt": "x"}`, agent.FindAgent, ""},
		{"x.json", `{"openapi": "3.1.0", "servers": []}`, agent.Matrix, ""},
		{"x.json", `{"openapi": true, "info": {}, "servers": []}`, agent.Matrix, ""},
		{"x.json", `{"$schema": "https://json-schema.org/draft/2020-12/schema", "servers": []}`, agent.Matrix, ""},
	}
	for _, tt := range tests {
		if got := manifest.Detect(tt.name, []byte(tt.text)); got != tt.want {
			t.Errorf("Detect(%s) = %q, want %q", tt.text, got, tt.want)
		}
		m, _ := manifest.Parse(tt.name, []byte(tt.text), manifest.Options{})
		if m.Dialect != tt.want || tt.code != "" && !strings.Contains(codes(m), tt.code) {
			t.Errorf("%s: got the dialect %q and the codes %s, want %q and %q",
				tt.text, m.Dialect, codes(m), tt.want, tt.code)
		}
	}
}

// If Options.Dialect is not a known dialect, Parse must detect the dialect. Without rules, every manifest would be
// valid.
func TestUnknownDialectOption(t *testing.T) {
	for text, valid := range map[string]bool{small: true, strings.Replace(small, `"a"`, `"A"`, 1): false} {
		m, _ := manifest.Parse("x.json", []byte(text), manifest.Options{Dialect: "klingon"})
		if m.Dialect != agent.Matrix || m.Valid() != valid {
			t.Errorf("%s: got dialect %q, valid=%t", text, m.Dialect, m.Valid())
		}
	}
}

func TestDigest(t *testing.T) {
	digest := func(name, text string) string {
		t.Helper()
		m, _ := manifest.Parse(name, []byte(text), manifest.Options{})
		if !m.Valid() {
			t.Fatal(listing(m))
		}
		before := m.Digest()
		if m.Agent().Digest != before || m.Digest() != before {
			t.Error("two calls of Digest returned different digests")
		}
		return before
	}
	base := digest("x.json", small)
	if got := digest("x.json", strings.ReplaceAll(small, ", ", " ,\n\t")); got != base {
		t.Error("white space changes the digest")
	}
	if got := digest("x.json", strings.Replace(small, `"schema_version": 1, "agent": "matrix://agent/x"`, `"agent": "matrix:\/\/agent\/\u0078", "schema_version": 1`, 1)); got != base {
		t.Error("key order or escapes change the digest")
	}
	if got := digest("x.json", "\uFEFF"+small); got != base {
		t.Error("a byte order mark changes the digest")
	}
	if got := digest("x.json", strings.Replace(small, "agent/x", "agent/y", 1)); got == base {
		t.Error("a manifest with another name has the same digest")
	}
	if m, _ := manifest.Parse("x.json", []byte(`{"schema_version": 1}`), manifest.Options{}); m.Digest() != "" || m.Agent() != nil {
		t.Error("an invalid manifest has a digest or an agent")
	}
}

func TestRulesAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range manifest.Rules() {
		if seen[r.Code] {
			t.Errorf("the rule %s appears twice", r.Code)
		}
		seen[r.Code] = true
		if len(r.Code) != 5 || r.Title == "" || r.Why == "" || !strings.HasSuffix(r.Why, ".") {
			t.Errorf("the rule %s is not well formed: %+v", r.Code, r)
		}
	}
}

// No message, hint, pointer or frame of any problem may contain a secret. This applies to secrets that are
// recognized by their format, and to secrets that are recognized by their name.
func TestSecretsAreNeverShown(t *testing.T) {
	canary := "ghp" + "_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6canary"
	plain := "correct-horse-canary"
	for _, text := range []string{
		strings.Replace(small, `"https://example.com/mcp"`, `"https://example.com/mcp", "headers": {"Authorization": "Bearer `+plain+`"}, "oops": 1`, 1),
		strings.Replace(small, `"name": "t"`, `"name": "`+canary+`"`, 1),
		strings.Replace(small, `"http"`, `"`+canary+`"`, 1),
		strings.Replace(small, `"1.0.0"`, `"`+canary+`"`, 1),
		strings.Replace(small, `"read"`, `"`+canary+`"`, 1),
		strings.Replace(small, `"alias"`, `"`+canary+`"`, 1),
		strings.Replace(small, `"https://example.com/mcp"`, `"https://user:`+plain+`@example.com/mcp"`, 1),
		strings.Replace(small, `"https://example.com/mcp"`, `"https://example.com/mcp?api_key=`+plain+`"`, 1),
		strings.Replace(small, `"endpoint": "https://example.com/mcp"`, `"endpoint": "x", "env": ["TOKEN=`+plain+`", "`+plain+`"], "args": ["--token", "`+plain+`", "--api-key=`+plain+`"]`, 1),
		strings.Replace(small, `"https://example.com/mcp"`, `"https://example.com/mcp", "env": {"BRAVE_API_KEY": "`+plain+`"}, "args": "--api-key `+plain+`", "apiKey": "`+plain+`"`, 1),
		strings.Replace(small, `"https://example.com/mcp"`, `"https://example.com/mcp", "headers": ["Authorization: Bearer `+plain+`"]`, 1),
		strings.Replace(small, `"https://example.com/mcp"`, `"https://example.com/mcp", "headers": {"X-Api-Key": "${KEY:-`+plain+`}"}`, 1),
		strings.Replace(small, `"https://example.com/mcp"`, `"https://example.com/mcp", "headers": {"Authorization": "Bearer `+plain+`$env:X"}`, 1),
		strings.Replace(small, `"agent"`, `"description": "postgres://app:`+plain+`@db.example.com/ `+canary+`", "agent"`, 1),
		`{"schema_version": 1, ` + canary + `: 1}`,
		`{"schema_version": 1, "apiKey": "` + plain + `" oops}`,
		`{"system_prompt": "` + canary + `", "name": "` + canary + `", "exec": "` + canary + `"}`,
		"[agent]\nid = \"" + canary + "\"\nruntime = \"" + canary + "\"\n",
	} {
		name := "x.json"
		if strings.HasPrefix(text, "[") {
			name = "x.toml"
		}
		m, _ := manifest.Parse(name, []byte(text), manifest.Options{})
		if m.Valid() {
			t.Errorf("the manifest is valid, want errors: %s", text)
		}
		for _, d := range m.Diagnostics {
			if shown := d.Message + d.Hint + d.Pointer + m.Source.Frame(d).Text; strings.Contains(shown, "canary") {
				t.Errorf("%s shows the secret: %s", d.Code, shown)
			}
		}
	}
}

// Diagnostics escape control characters in text from a manifest, because the output may be a terminal.
func TestProblemsArePrintable(t *testing.T) {
	m, _ := manifest.Parse("x.json", []byte(strings.Replace(small, `"version"`, `"headers": {"\r\n\u001b[2JTOKEN": "literal"}, "version"`, 1)), manifest.Options{})
	if m.Valid() {
		t.Fatal("the manifest is valid, want errors")
	}
	for _, d := range m.Diagnostics {
		if shown := d.Message + d.Hint + d.Pointer + m.Source.Frame(d).Text; strings.ContainsAny(shown, "\x1b\r\n") {
			t.Errorf("%s contains a control character: %q", d.Code, shown)
		}
	}
}

func TestHiddenText(t *testing.T) {
	tests := map[string]bool{
		"plain":                       false,
		"na\u00efve caf\u00e9 \u65e5": false,
		"tab\\tand\\nline":            false,
		"family \U0001F468\u200D\U0001F469\u200D\U0001F467": false,
		"\u0645\u06CC\u200C\u062E\u0648\u0627\u0647\u0645":  false,
		"zero\u200Bwidth": true, "pass\u200Dword": true, "\u202Egnp.exe": true, "tag\U000E0041": true, "bell\\u0007": true, "soft\u00ADhyphen": true,
	}
	for text, want := range tests {
		m, _ := manifest.Parse("x.json", []byte(strings.Replace(small, `"agent"`, `"description": "`+text+`", "agent"`, 1)), manifest.Options{})
		if got := strings.Contains(codes(m), diag.HiddenText.Code); got != want || !m.Valid() {
			t.Errorf("%q: hidden=%t, want %t (%s)", text, got, want, codes(m))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("x.json", []byte(small), false)
	f.Add("x.toml", []byte("[agent]\nid = 'a@b'\n"), true)
	f.Add("x.json", []byte(`{"system_prompt": "x", "tools": [{"action": {"type": "http", "url": "https://{a}/"}}]}`), false)
	f.Add("x", []byte(`{"required_mcp_servers": [{}]}`), true)
	f.Fuzz(func(t *testing.T, name string, src []byte, strict bool) {
		m, _ := manifest.Parse(name, src, manifest.Options{Strict: strict})
		for _, d := range m.Diagnostics {
			if d.Line < 1 || d.Column < 1 || d.EndLine < d.Line || d.Message == "" {
				t.Fatalf("unexpected diagnostics: %+v", d)
			}
			m.Source.Frame(d)
		}
		if !m.Valid() || m.Dialect == "" {
			return
		}
		if m.Agent() == nil || m.Digest() == "" {
			t.Fatal("a valid manifest has no agent or no digest")
		}
		if d := manifest.Diff(m.Agent(), m.Agent()); len(d.Widened)+len(d.Narrowed)+len(d.Changed) > 0 {
			t.Fatalf("a manifest differs from itself: %+v", d)
		}
		for _, to := range agent.Dialects {
			if _, err := manifest.Convert(m, to); err != nil {
				if _, invalid := errors.AsType[*manifest.InvalidError](err); invalid {
					t.Fatalf("the conversion to %s is invalid: %v", to, err)
				}
			}
		}
	})
}

// Several goroutines can use a Manifest at the same time. Under the race detector, this test also finds data races.
func TestFramesAtTheSameTime(t *testing.T) {
	m, _ := manifest.Parse("agent.json", []byte(strings.Replace(small, `"t"`, `"t", "api_key": "canary", "bogus": 1`, 1)), manifest.Options{})
	if len(m.Diagnostics) == 0 {
		t.Fatal("the manifest has no problems")
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, d := range m.Diagnostics {
				if f := m.Source.Frame(d); strings.Contains(f.Text, "canary") {
					t.Errorf("the frame shows the secret: %s", f.Text)
				}
			}
		})
	}
	all.Wait()
}

// If computing the digest panics, a later call of Agent must not return an agent without a digest.
func TestNoAgentWithoutDigest(t *testing.T) {
	m, err := manifest.Parse("agent.json", []byte(small), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.Source = nil
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Agent did not panic without the text of the manifest")
			}
		}()
		m.Agent()
	}()
	if a := m.Agent(); a != nil {
		t.Errorf("after a panic, Agent returned an agent with the digest %q, want no agent", a.Digest)
	}
}
