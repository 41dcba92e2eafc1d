package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

var onMe = subject{agent: "me", dialect: "gpars", server: "s", tool: "t", sideEffect: "read"}

func meNow() callInfo {
	yes := true
	return callInfo{caller: "me@local", sideEffect: "read", time: now(), annotations: agent.Annotations{Destructive: &yes}}
}

// sameAsCedar compares the findings of this package for a call with the findings of plain Cedar. Plain Cedar
// evaluates every rule with the complete context. The result is the number of findings.
func sameAsCedar(t *testing.T, text, arguments []byte) (said int) {
	t.Helper()
	rules, err := Parse("x.cedar", text)
	if err != nil {
		return 0
	}
	v := rules.view(onMe, []string{"read"}, nil)
	all := *v
	all.uses.parts, all.uses.wholeArguments, all.uses.wholePathOf = everyPart, true, true
	everything, err := all.gather(t.Context(), meNow(), arguments, false)
	if err != nil {
		return 0 // these arguments are refused if rules read them
	}
	plain, err := cedar.NewPolicySetFromBytes("x.cedar", text)
	if err != nil {
		t.Fatal(err)
	}
	_, diagnostic := cedar.Authorize(plain, v.entities, cedar.Request{
		Principal: v.principal, Action: callAction, Resource: v.resource, Context: everything.context(everyPart),
	})
	var want, got []string
	forbidden := false
	number := func(id cedar.PolicyID) (n int) {
		if _, err := fmt.Sscanf(string(id), "policy%d", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, e := range diagnostic.Errors {
		one := rules.list[number(e.PolicyID)]
		want = append(want, fmt.Sprintf("%v fails: %s", one, describeError(e.Message)))
		forbidden = forbidden || one.forbid
	}
	for _, reason := range diagnostic.Reasons {
		one := rules.list[number(reason.PolicyID)]
		want = append(want, fmt.Sprintf("%v applies", one))
		forbidden = forbidden || one.forbid
	}
	allowed := !forbidden && slices.ContainsFunc(want, func(w string) bool { return strings.HasSuffix(w, "applies") })

	f, err := v.gather(t.Context(), meNow(), arguments, false)
	if err != nil {
		t.Fatalf("all of %s can be judged, but not a part: %v", arguments, err)
	}
	found := f.judge()
	for _, one := range slices.Concat(found.broken, found.failed) {
		got = append(got, fmt.Sprintf("%v fails: %s", one.rule, one.why))
	}
	for _, one := range slices.Concat(found.forbids, found.permits) {
		got = append(got, fmt.Sprintf("%v applies", one))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("with the arguments %s and the rules\n%s\nCedar finds\n%s\nbut this package finds\n%s", arguments, text, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	if yes := !found.denies() && len(found.permits) > 0; yes != allowed {
		t.Fatalf("with the arguments %s and the rules\n%s\nallowed: Cedar %v, this package %v", arguments, text, allowed, yes)
	}
	return len(got)
}

// For random rules and arguments, this package returns the same findings as Cedar.
func TestSameAsCedar(t *testing.T) {
	dice := rand.New(rand.NewPCG(7, 11))
	said := 0
	for range 3000 {
		text, arguments := someRules(dice)
		if _, err := Parse("x.cedar", []byte(text)); err != nil {
			t.Fatal(text, err)
		}
		said += sameAsCedar(t, []byte(text), []byte(arguments))
	}
	if said < 1000 {
		t.Errorf("there were only %d findings", said)
	}
}

// If Foresee returns Always or Never, judging a call with any arguments gives the same verdict.
func TestForeseenVerdictsHold(t *testing.T) {
	dice := rand.New(rand.NewPCG(5, 3))
	tool := &agent.Tool{Name: "t", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "s"}}
	certain := 0
	for range 1500 {
		text, arguments := someRules(dice)
		rules, err := Parse("x.cedar", []byte(text))
		if err != nil {
			t.Fatal(text, err)
		}
		in := &snapshot{fileData: fileData{rules: rules, scopes: Scopes{"s": {"read": {"t"}}}}}
		for _, d := range []agent.Dialect{agent.GPARS, agent.Matrix} {
			a := &agent.Agent{Dialect: d}
			foreseen := in.foresee(asked{a, "me", tool, &call.Call{Principal: "me@local"}, now(), 0, false, ""})
			if _, err := in.view(a, subjectOf(a, "me", tool), nil).decide(t.Context(), meNow(), []byte(arguments)); err != nil {
				continue // the spelling is refused before the rules are evaluated
			}
			call := &call.Call{Principal: "me@local", Arguments: []byte(arguments)}
			got := first(in.judge(t.Context(), Options{Now: now}, a, "me", tool, call))
			if foreseen == Always && got != "yes" || foreseen == Never && got == "yes" {
				t.Fatalf("%s: foreseen %d, got %s with %s\n%s", d, foreseen, got, arguments, text)
			}
			if foreseen != Depends {
				certain++
			}
		}
	}
	if certain < 500 {
		t.Errorf("only %d verdicts were certain", certain)
	}
}

// someRules returns random rules and random arguments. The names and values of the arguments occur
// in the rules.
func someRules(dice *rand.Rand) (text, arguments string) {
	pick := func(list ...string) string { return list[dice.IntN(len(list))] }
	value := func() string {
		return pick(`"x"`, `"/data"`, `""`, "1", "true", `["x"]`, `"example.org"`, `decimal("1.5")`, `"me"`, `"read"`)
	}
	under := func() string {
		return pick("paths", "paths_any_under", "paths_all_under", "hosts", "hosts_any_under", "hosts_all_under", "databases", "path_of.a.values", "path_of.b.any_under", "path_of.a.all_under", "arguments.a", "arguments.b")
	}
	part := func() string {
		return strings.NewReplacer(
			"NAME", pick("a", "b", "path", "url"), "VALUE", value(), "SET", under(), "OP", pick("==", "!=", "<", "<=", ">", ">="), "WORD", pick("destructive", "read_only", "me"),
		).Replace(pick(
			"context.arguments has NAME", `context.arguments.NAME OP VALUE`, `context.arguments has NAME && context.arguments.NAME == VALUE`,
			`context.arguments.NAME like "x*"`, `context.arguments.NAME.deep == VALUE`, `context.arguments.NAME has deep`, `context.caller == VALUE`, "context.arguments.NAME",
			"context.SET.contains(VALUE)", "context.SET.containsAny([VALUE, VALUE])", "context.SET.containsAll([VALUE])", "context.SET.isEmpty()", "context.path_of has NAME",
			"resource.scopes.contains(VALUE)", `resource in Server::"s"`, `principal == Agent::"WORD"`, "resource.side_effect == VALUE", "context has skill", "context.annotations has destructive",
			"context.annotations.WORD", `context.time OP datetime("2026-03-02")`, `resource.name == context.arguments.NAME`, `(if context.arguments has NAME then true else context.arguments.NAME)`,
			"context.arguments.NAME + 1 == 2", "context.arguments.NAME * 9223372036854775807 - 1 > context.arguments.NAME", "context.skill == VALUE", `context == {}`, `resource in [Server::"s", Server::"u"]`, "resource is Tool", "resource is Server", "context.arguments.NAME.lessThan(decimal(\"2.0\"))", "context.arguments.NAME.greaterThanOrEqual(decimal(\"1.5\"))", `ip(context.arguments.NAME).isIpv4()`,
		))
	}
	var b strings.Builder
	for range 1 + dice.IntN(6) {
		fmt.Fprintf(&b, "%s (%s, action, %s)", pick("permit", "forbid"), pick("principal", `principal == Agent::"me"`, `principal == Agent::"you"`),
			pick("resource", `resource in Server::"s"`, `resource == Tool::"s/t"`, `resource in Scope::"s/read"`, `resource in Scope::"s/write"`))
		for range dice.IntN(3) {
			b.WriteString(" " + pick("when", "when", "unless") + " { " + part())
			for range dice.IntN(3) {
				b.WriteString(pick(" && ", " && ", " || ", " && !"))
				b.WriteString("(" + part() + ")")
			}
			b.WriteString(" }")
		}
		b.WriteString(";\n")
	}
	var members []string
	some := []string{`1`, `true`, `null`, `{"deep": "x"}`, `1.5`, `["x", null]`, `"read"`, `"x"`, `"/data/x"`, `["x", "/data"]`, `""`}
	for _, one := range []struct {
		name   string
		values []string
	}{
		{"a", some},
		{"b", some},
		{"path", []string{`"/data/x"`, `"/x"`, `1`, `["/data", "/x"]`, `""`}},
		{"url", []string{`"https://example.org/"`, `"https://example.org/x"`, `"10.0.0.1"`, `true`}},
	} {
		if dice.IntN(3) > 0 {
			members = append(members, fmt.Sprintf("%q: %s", one.name, pick(one.values...)))
		}
	}
	return b.String(), "{" + strings.Join(members, ", ") + "}"
}

// FuzzSameAsCedar checks that for any rules and arguments this package returns the same findings as
// Cedar.
func FuzzSameAsCedar(f *testing.F) {
	dice := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		text, arguments := someRules(dice)
		f.Add([]byte(text), []byte(arguments))
	}
	f.Add([]byte(gated), []byte(`{"path": "/data/../etc", "url": "https://x.internal.example", "database": "prod", "force": true}`))
	f.Fuzz(func(t *testing.T, text, arguments []byte) {
		if len(text) > 4<<10 {
			return
		}
		sameAsCedar(t, text, arguments)
	})
}
