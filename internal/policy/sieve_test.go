package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"github.com/ambit-run/ambit/agent"
)

// What a sieve knows, and of what it is unsure.
func TestSieve(t *testing.T) {
	const arguments = `{"a": "x", "n": 5, "price": 2.5, "yes": true, "list": ["p", "q"], "deep": {"side": "s"}, "path": "/data/x", "url": "https://www.example.org", "db": "main"}`
	for condition, want := range map[string]truth{
		`when { context.arguments has a }`:                                                         isTrue,
		`when { context.arguments has b }`:                                                         untrue,
		`when { context.arguments has a && context.arguments.a == "x" }`:                           isTrue,
		`when { context.arguments has a && context.arguments.a == "y" }`:                           untrue,
		`when { context.arguments has b && context.arguments.b == "y" }`:                           untrue,
		`when { context.arguments.b == "y" }`:                                                      unsure, // it fails
		`when { context.arguments.a like "x*" }`:                                                   isTrue,
		`when { context.arguments.a like "y*" }`:                                                   untrue,
		`when { context.arguments.n like "y*" }`:                                                   unsure, // it fails
		`when { context.arguments.n != 5 }`:                                                        untrue,
		`when { context.arguments.n < 5 }`:                                                         untrue,
		`when { context.arguments.n <= 5 }`:                                                        isTrue,
		`when { context.arguments.n > 4 }`:                                                         isTrue,
		`when { context.arguments.n >= 6 }`:                                                        untrue,
		`when { context.arguments.n > "4" }`:                                                       unsure, // it fails
		`when { context.arguments.a > 4 }`:                                                         unsure, // it fails
		`when { context.arguments.yes }`:                                                           isTrue,
		`unless { context.arguments.yes }`:                                                         untrue,
		`when { context.arguments.a }`:                                                             unsure, // it fails
		`when { !context.arguments.yes }`:                                                          untrue,
		`when { context.arguments.list.contains("p") }`:                                            isTrue,
		`when { context.arguments.list.contains("r") }`:                                            untrue,
		`when { context.arguments.a.contains("r") }`:                                               unsure, // it fails
		`when { context.arguments.list.containsAny(["r", "q"]) }`:                                  isTrue,
		`when { context.arguments.list.containsAll(["r", "q"]) }`:                                  untrue,
		`when { context.arguments.list.containsAny([]) }`:                                          untrue,
		`when { context.arguments.list.containsAll([]) }`:                                          isTrue,
		`when { context.arguments.deep has side && context.arguments.deep.side == "t" }`:           untrue,
		`when { context.arguments.deep has other }`:                                                untrue,
		`when { context.arguments.a has other }`:                                                   unsure, // it fails
		`when { context.arguments.deep.other == "t" }`:                                             unsure, // it fails
		`when { context.arguments has b || context.arguments.a == "x" }`:                           isTrue,
		`when { context.arguments has b || context.arguments.a == "y" }`:                           untrue,
		`when { context.arguments has a || context.arguments.b == "y" }`:                           isTrue, // the second is not looked at
		`when { context.arguments.b == "y" || context.arguments has a }`:                           unsure, // it fails first
		`when { context.arguments.b == "y" && context.arguments has c }`:                           unsure, // it fails first
		`when { context.arguments has c && context.arguments.b == "y" }`:                           untrue, // the second is not looked at
		`when { context.arguments has a } unless { context.arguments has a }`:                      untrue,
		`when { context.arguments.n + 1 == 7 }`:                                                    untrue,
		`when { context.arguments.n * 2 - 1 > 8 }`:                                                 isTrue,
		`when { context.arguments.n + 9223372036854775807 > 8 }`:                                   unsure, // it fails
		`when { context.arguments.a + 1 == 7 }`:                                                    unsure, // it fails
		`when { ip(context.arguments.a).isIpv4() } unless { context.arguments has a }`:             unsure,
		`when { if context.arguments has a then context.arguments.n > 5 else context.caller }`:     untrue,
		`when { if context.arguments has b then context.caller else context.arguments.a == "x" }`:  isTrue,
		`when { if context.arguments has b then true else context.caller }`:                        unsure, // it fails
		`when { if context.arguments.b then true else true }`:                                      unsure, // it fails
		`when { context.hosts.isEmpty() }`:                                                         untrue,
		`when { context.arguments.list.isEmpty() }`:                                                untrue,
		`when { context.arguments.a.isEmpty() }`:                                                   unsure, // it fails
		`when { resource is Tool && principal is Server }`:                                         untrue,
		`when { resource in [Server::"x", Server::"s"] }`:                                          isTrue,
		`when { resource in [Server::"x", Server::"y"] }`:                                          untrue,
		`when { context.arguments.price.lessThan(decimal("2.5")) }`:                                untrue,
		`when { context.arguments.price.lessThanOrEqual(decimal("2.5")) }`:                         isTrue,
		`when { context.arguments.price.greaterThan(decimal("2.5")) }`:                             untrue,
		`when { context.arguments.price.greaterThanOrEqual(decimal("2.5")) }`:                      isTrue,
		`when { context.arguments.n.lessThan(decimal("2.5")) }`:                                    unsure, // it fails
		`when { context.paths.contains("/data/x") }`:                                               isTrue,
		`when { context.paths_any_under.containsAny(["/etc", "/root"]) }`:                          untrue,
		`when { context.paths_all_under.contains("/data") }`:                                       isTrue,
		`when { context.paths_all_under.contains(1) }`:                                             unsure,
		`when { context.paths_any_under.containsAll(["/data", 1]) }`:                               untrue,
		`when { context.path_of has path && context.path_of.path.all_under.contains("/tmp") }`:     untrue,
		`when { context.path_of.path.any_under.contains("/data") }`:                                isTrue,
		`when { context.path_of.path.values.contains("/data/x") }`:                                 isTrue,
		`when { context.path_of.path.others.contains("/data/x") }`:                                 unsure, // it fails
		`when { context.path_of.none.values.contains("/data/x") }`:                                 unsure, // it fails
		`when { context.hosts_any_under.contains("example.org") }`:                                 isTrue,
		`when { context.hosts_all_under.contains("example.com") }`:                                 untrue,
		`when { context.hosts.contains("www.example.org") }`:                                       isTrue,
		`when { context.databases.contains("prod") }`:                                              untrue,
		`when { context.caller like "guest*" }`:                                                    untrue,
		`when { context.caller == "me@local" }`:                                                    isTrue,
		`when { context.time < datetime("2020-01-01") }`:                                           untrue,
		`when { context.time >= datetime("2020-01-01") }`:                                          isTrue,
		`when { context has skill }`:                                                               untrue,
		`when { context has caller && context has nothing }`:                                       untrue,
		`when { context.annotations has destructive && context.annotations.destructive }`:          isTrue,
		`when { context.annotations has read_only }`:                                               untrue,
		`when { context.side_effect == "shell" }`:                                                  untrue,
		`when { resource.side_effect == "read" && principal.dialect == "matrix" }`:                 untrue,
		`when { resource.scopes.contains("write") }`:                                               untrue,
		`when { resource in Server::"s" }`:                                                         isTrue,
		`when { resource in Scope::"s/read" }`:                                                     isTrue,
		`when { resource in Server::"other" }`:                                                     untrue,
		`when { resource == Tool::"s/t" && principal == Agent::"me" && principal in Agent::"you"}`: untrue,
		`when { Tool::"s/t" in Server::"s" }`:                                                      unsure,
		`when { Agent::"me" has name }`:                                                            unsure,
		``:                                                                                         unsure,
	} {
		r, err := Parse("x.cedar", []byte("forbid (principal, action, resource) "+condition+";"))
		if err != nil {
			t.Fatal(condition, err)
		}
		f, err := r.gather(r.view(onMe, []string{"read"}), meNow(), []byte(arguments))
		if err != nil {
			t.Fatal(err)
		}
		got := unsure
		if sieve := r.list[0].sieve; sieve != nil {
			got = sieve(f)
		}
		if got != want {
			t.Errorf("%s: %d, want %d", condition, got, want)
		}
		sameAsCedar(t, []byte("forbid (principal, action, resource) "+condition+";"), []byte(arguments))
	}
}

var onMe = subject{agent: "me", dialect: "gpars", server: "s", tool: "t", sideEffect: "read"}

func meNow() moment {
	yes := true
	return moment{caller: "me@local", sideEffect: "read", time: now(), annotations: agent.Annotations{Destructive: &yes}}
}

// sameAsCedar holds what is found of a call to what Cedar finds that knows nothing
// of all this: it is given every rule, whole, and the whole context.
func sameAsCedar(t *testing.T, text, arguments []byte) (said int) {
	t.Helper()
	rules, err := Parse("x.cedar", text)
	if err != nil {
		return 0
	}
	v := rules.view(onMe, []string{"read"})
	all := *v
	all.uses = uses{parts: everyPart, wholeArguments: true, wholePathOf: true}
	everything, err := rules.gather(&all, meNow(), arguments)
	if err != nil {
		return 0 // it is refused where rules look at what is too much
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
		want = append(want, fmt.Sprintf("%v fails: %s", one, plainly(e.Message)))
		forbidden = forbidden || one.forbid
	}
	for _, reason := range diagnostic.Reasons {
		one := rules.list[number(reason.PolicyID)]
		want = append(want, fmt.Sprintf("%v says so", one))
		forbidden = forbidden || one.forbid
	}
	allowed := !forbidden && slices.ContainsFunc(want, func(w string) bool { return strings.HasSuffix(w, "says so") })

	f, err := rules.gather(v, meNow(), arguments)
	if err != nil {
		t.Fatalf("all of %s can be judged, and a part cannot: %v", arguments, err)
	}
	found := rules.judge(f)
	for _, one := range slices.Concat(found.broken, found.failed) {
		got = append(got, fmt.Sprintf("%v fails: %s", one.rule, one.why))
	}
	for _, one := range slices.Concat(found.forbids, found.permits) {
		got = append(got, fmt.Sprintf("%v says so", one))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("with %s\n%s\nCedar finds\n%s\nand we\n%s", arguments, text, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	if yes := !found.denies() && len(found.permits) > 0; yes != allowed {
		t.Fatalf("with %s\n%s\nallowed: Cedar %v, we %v", arguments, text, allowed, yes)
	}
	return len(got)
}

// With any rules and arguments, what is found is what Cedar finds.
func TestSameAsCedar(t *testing.T) {
	dice := rand.New(rand.NewPCG(7, 11))
	said := 0
	for range 1500 {
		text, arguments := someRules(dice)
		if _, err := Parse("x.cedar", []byte(text)); err != nil {
			t.Fatal(text, err)
		}
		said += sameAsCedar(t, []byte(text), []byte(arguments))
	}
	if said < 1000 {
		t.Errorf("only %d rules ever said anything", said)
	}
}

// Whatever a sieve says, nothing is permitted that Cedar does not permit.
func TestCedarPermits(t *testing.T) {
	rules, err := Parse("x.cedar", []byte(`permit (principal, action, resource) when { context.caller == "you@local" };
permit (principal, action, resource) when { context.caller == "me@local" };`))
	if err != nil {
		t.Fatal(err)
	}
	f, err := rules.gather(rules.view(onMe, nil), meNow(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range rules.list {
		one.sieve = func(*facts) truth { return isTrue }
	}
	if found := rules.judge(f); len(found.permits) != 1 || found.permits[0] != rules.list[1] {
		t.Errorf("%v", found.permits)
	}
}

// someRules makes rules and arguments that have something to do with each other.
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
	for _, name := range []string{"a", "b", "path", "url"} {
		if dice.IntN(3) > 0 {
			members = append(members, fmt.Sprintf("%q: %s", name, pick(`"x"`, `"/data/x"`, `""`, `1`, `true`, `null`, `{"deep": "x"}`, `["x", "/data"]`, `1.5`, `"https://example.org"`, `"read"`, `["x", null]`, `"10.0.0.1"`)))
		}
	}
	return b.String(), "{" + strings.Join(members, ", ") + "}"
}

// FuzzSameAsCedar: whatever the rules and the arguments are, what is found of a
// call is what Cedar finds.
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
