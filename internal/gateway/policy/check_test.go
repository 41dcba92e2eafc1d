package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	schema "github.com/cedar-policy/cedar-go/x/exp/schema/ast"

	"github.com/ambit-run/ambit/agent"
)

func TestCheck(t *testing.T) {
	gpars := &agent.Agent{Dialect: agent.GPARS, Requirements: []agent.Requirement{{Server: "registry.openmcp.org/fs", Scopes: []string{"read"}}}}
	matrix := &agent.Agent{Dialect: agent.Matrix, Tools: []agent.Tool{{Name: "run", Binding: agent.OnServer{Alias: "exec"}}}}
	known := Checking{
		Agents: []Known{{"coder", gpars}, {"forge", matrix}}, Scopes: Scopes{"registry.openmcp.org/fs": {"read": {"read_file"}}},
		Declared: schema.RecordType{"count": {Type: schema.LongType{}, Optional: true}},
	}
	for _, tt := range []struct{ name, rule, want string }{
		{"no problem", `forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "x*" };`, ""},
		{"no guard", `forbid (principal, action, resource) when { context.arguments.x == 1 };`, "warning no_guard"},
		{"no guard for a nested argument", `forbid (principal, action, resource) when { context.arguments has o && context.arguments.o.x == 1 };`, "warning no_guard"},
		{"no guard before a path", `forbid (principal, action, resource) when { context.path_of.x.any_under.contains("/x") };`, "warning no_guard"},
		{"no guard before a skill", `forbid (principal, action, resource) when { context.skill == "x" };`, "warning no_guard"},
		{"Cedar does not recognize a negated guard", `forbid (principal, action, resource) when { !(context.arguments has x) || context.arguments.x == 1 };`, "warning no_guard"},
		{"two types", `forbid (principal, action, resource) when { context.arguments has x && (context.arguments.x == 1 || context.arguments.x like "a") };`, "error two_types"},
		{"a type other than the declared one", `forbid (principal, action, resource) when { context.arguments has count && context.arguments.count like "a" };`, "error not_in_schema"},
		{"an attribute that does not exist", `forbid (principal, action, resource) when { resource.colour == "red" };`, "error not_in_schema"},
		{"a part of the context that does not exist", `forbid (principal, action, resource) when { context.argument.x == 1 };`, "error not_in_schema"},
		{"a guard for a part that never exists", `forbid (principal, action, resource) when { context has path_any_under && context.caller == "x" };`, "error not_in_schema"},
		{"a guard for a part that can exist", `forbid (principal, action, resource) when { context has skill && context.skill == "x" };`, ""},
		{"an entity type that does not exist", `forbid (principal == User::"x", action, resource);`, "error not_in_schema warning unused"},
		{"an action that does not exist", `forbid (principal, action == Action::"read", resource);`, "error not_in_schema"},
		{"a condition that is not a boolean", `forbid (principal, action, resource) when { "x" };`, "error not_in_schema"},
		{"numbers, addresses and times", `forbid (principal, action, resource) when { context.arguments has a && context.arguments.a.lessThan(decimal("1.5")) && context.time > datetime("2026-01-01") };`, ""},
		{"an address of an argument", `forbid (principal, action, resource) when { context.arguments has a && ip(context.arguments.a).isLoopback() };`, "warning not_in_schema"},
		{"sets", `forbid (principal, action, resource) unless { context.arguments has l && ["a"].containsAll(context.arguments.l) };`, ""},
		{"a raw path", `forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "/etc/*" };`, "warning raw_text"},
		{"a raw path, compared", `forbid (principal, action, resource) when { context.arguments has path && context.arguments.path == "/etc" };`, "warning raw_text"},
		{"a raw URL", `forbid (principal, action, resource) when { context.arguments has url && context.arguments.url like "https://evil.com/*" };`, "warning raw_text"},
		{"containsAll without a test for the empty set", `permit (principal == Agent::"coder", action, resource) when { ["a"].containsAll(context.databases) };`, "warning all_of_none"},
		{"containsAll with a test for the empty set", `permit (principal == Agent::"coder", action, resource) when { !context.databases.isEmpty() && ["a"].containsAll(context.databases) };`, ""},
		{"canonical places", `forbid (principal, action, resource) when { context.paths_any_under.containsAny(["/etc", "C:/x", "src"]) || context.hosts.contains("10.0.0.1") || context.hosts_any_under.containsAny(["example.org", "xn--bcher-kva.example"]) || context.databases.contains("prod") };`, ""},
		{"a slash at the end", `forbid (principal, action, resource) when { context.paths_any_under.contains("/etc/") };`, "error never_there"},
		{"a .. segment", `forbid (principal, action, resource) when { context.paths_any_under.containsAny(["/etc", "/srv/../root"]) };`, "error never_there"},
		{"a pattern of paths", `forbid (principal, action, resource) when { context.paths.contains("/etc/*") };`, "error never_there"},
		{"a home folder", `forbid (principal, action, resource) when { context.paths_any_under.contains("~/.ssh") };`, "error never_there"},
		{"a path of one argument", `permit (principal == Agent::"coder", action, resource) when { context.path_of has path && context.path_of.path.all_under.contains("/srv//x") };`, "error never_there"},
		{"a drive", `forbid (principal, action, resource) when { context.paths_any_under.contains("c:\\x") };`, "error never_there"},
		{"a host in capitals", `forbid (principal, action, resource) when { context.hosts_any_under.contains("Example.org") };`, "error never_there"},
		{"a host in non-ASCII letters", `forbid (principal, action, resource) when { context.hosts_any_under.contains("bücher.example") };`, "error never_there"},
		{"a pattern of hosts", `forbid (principal, action, resource) when { context.hosts.contains("*.example.org") };`, "error never_there"},
		{"a URL for a host", `forbid (principal, action, resource) when { context.hosts.contains("https://example.org/") };`, "error never_there"},
		{"a host with a port", `forbid (principal, action, resource) when { context.hosts.contains("example.org:443") };`, "error never_there"},
		{"not a host", `forbid (principal, action, resource) when { context.hosts.contains("a b") };`, "error never_there"},
		{"a database in capitals", `permit (principal == Agent::"coder", action, resource) when { !context.databases.isEmpty() && ["Staging"].containsAll(context.databases) };`, "error never_there"},
		{"an unknown agent", `forbid (principal == Agent::"unknown", action, resource);`, "warning unused"},
		{"no such server", `forbid (principal, action, resource in Server::"other");`, "warning unused"},
		{"no such tool", `forbid (principal, action, resource == Tool::"exec/stop");`, "warning unused"},
		{"a tool of a server with unknown tools", `forbid (principal, action, resource == Tool::"registry.openmcp.org/fs/anything");`, ""},
		{"an unneeded permit", `permit (principal == Agent::"forge", action, resource);`, "warning no_effect"},
		{"two equal rules", `forbid (principal == Agent::"forge", action, resource); forbid (principal == Agent::"forge", action, resource);`, "warning shadowed"},
		{"a rule that a wider rule covers", `forbid (principal, action, resource in Server::"exec"); forbid (principal == Agent::"forge", action, resource == Tool::"exec/run") when { context.caller == "x" };`, "warning shadowed"},
		{"a permit that a forbid rule overrides", `permit (principal == Agent::"coder", action, resource) when { context.caller == "x" }; forbid (principal, action, resource);`, "warning shadowed"},
		{"a rule with a condition shadows nothing", `permit (principal == Agent::"coder", action, resource); forbid (principal, action, resource) when { context.caller == "x" };`, ""},
		{"a rule for another server shadows nothing", `forbid (principal, action, resource in Server::"exec"); forbid (principal, action, resource in Server::"registry.openmcp.org/fs");`, ""},
		{"a grant", Grant{Agent: "coder", Server: "registry.openmcp.org/fs", Scope: "read", By: "me"}.Rule(), ""},
		{"a grant of an unmapped scope", Grant{Agent: "coder", Server: "registry.openmcp.org/fs", Scope: "write", By: "me"}.Rule(), "warning scope_unmapped"},
		{"a grant that was edited", strings.Replace(Grant{Agent: "coder", Server: "registry.openmcp.org/fs", Scope: "read"}.Rule(), "permit", "forbid", 1), "warning edited_grant"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := Parse("p", []byte(tt.rule))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range rules.Check(known) {
				got = append(got, string(p.Severity)+" "+p.Code)
				if p.Message == "" || p.Line == 0 || p.Rule == "" {
					t.Errorf("the problem has no message, line or rule: %+v", p)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q\n%+v", got, tt.want, rules.Check(known))
			}
		})
	}
}

// A grant of an unmapped scope is reported even if no agents are registered.
func TestGrantWithoutAgents(t *testing.T) {
	rules, err := Parse("p", []byte(Grant{Agent: "coder", Server: "registry.openmcp.org/fs", Scope: "write", By: "me"}.Rule()))
	if err != nil {
		t.Fatal(err)
	}
	if got := rules.Check(Checking{}); len(got) != 1 || got[0].Code != ScopeUnknown {
		t.Errorf("Check returned %+v", got)
	}
}

// A rule that starts with a "has" test for a nonexistent part of the context never matches. Anywhere else, such a
// test is just always false.
func TestNeverAPart(t *testing.T) {
	const nothing, never = "the rule never matches, because its condition begins with this \"has\" test", "this \"has\" test is always false"
	for condition, want := range map[string]string{
		`when { context has x }`: nothing,
		`when { context has x && context.caller == "a" && context.caller == "b" }`: nothing,
		`unless { context has x }`:                                never,
		`unless { context has x && context.caller == "a" }`:       never,
		`when { !(context has x) }`:                               never,
		`when { context has x || context.caller == "a" }`:         never,
		`when { if context has x then false else true }`:          never,
		`when { context.caller == "a" } unless { context has x }`: never,
		`when { {"a": context has x} == {"a": false} }`:           never,
	} {
		rules, err := Parse("p", []byte("forbid (principal, action, resource) "+condition+";"))
		if err != nil {
			t.Fatal(err)
		}
		got := rules.Check(Checking{})
		if len(got) != 1 || got[0].Code != NotInSchema || got[0].Message != `"context.x" does not exist: `+want {
			t.Errorf("%s: Check returned %+v", condition, got)
		}
	}
}

// The starter policy has no problems, even if its example rules are uncommented.
func TestStarter(t *testing.T) {
	text := Starter[strings.Index(Starter, "// No agent can use keys"):]
	var rules strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(line, "// ")
		if !strings.Contains(line, ".\n") {
			rules.WriteString(line)
		}
	}
	for _, text := range []string{Starter, rules.String()} {
		r, err := Parse("starter.cedar", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if problems := r.Check(Checking{}); problems != nil {
			t.Errorf("Check returned %+v", problems)
		}
	}
	if r, _ := Parse("x", []byte(rules.String())); r.Len() != 3 {
		t.Errorf("got %d rules, want 3", r.Len())
	}
	if declared, err := ParseSchema("x", []byte(Schema)); err != nil || len(declared) != 0 {
		t.Errorf("ParseSchema returned %v, %v", declared, err)
	}
}

func TestParseSchema(t *testing.T) {
	text := strings.Replace(Schema, "type Arguments = {\n", "type Arguments = {\n  path?: String, \"how many\"?: Long, list?: Set<String>, o?: {a: Bool}, at?: Own,\n", 1) + "type Own = String;"
	declared, err := ParseSchema("x", []byte(text))
	if err != nil || fmt.Sprint(slices.Sorted(maps.Keys(declared))) != "[how many list o path]" {
		t.Errorf("ParseSchema returned %v, %v", declared, err)
	}
	for condition, want := range map[string]string{
		`context.arguments has path && context.arguments.path > 1`:           NotInSchema,
		`context.arguments has list && context.arguments.list.contains("a")`: "",
		`context.arguments has o && context.arguments.o.a`:                   "",
	} {
		rules, err := Parse("p", []byte("forbid (principal, action, resource) when { "+condition+" };"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range rules.Check(Checking{Declared: declared}) {
			got += p.Code
		}
		if got != want {
			t.Errorf("%s: %q, want %q", condition, got, want)
		}
	}
	if _, err := ParseSchema("x", []byte("entity A in B;")); err == nil {
		t.Error("ParseSchema accepted an unknown type")
	}
}
