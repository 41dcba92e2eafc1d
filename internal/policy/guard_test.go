package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
)

func TestGuardOf(t *testing.T) {
	for condition, want := range map[string]string{
		`when { context.arguments has a && context.arguments.a == "x" }`:                                "a x",
		`when { context.arguments has a && context.arguments.a == "x" && 1 + 1 > 9223372036854775807 }`: "a x",
		`when { context.arguments has a && (context.arguments.a == "x" && context.caller == "y") }`:     "a x",
		`when { context.arguments has a && context.arguments.a == "x" } unless { true }`:                "a x",
		`when { context.arguments.a == "x" }`:                                                           "", // it fails without an a
		`when { context.arguments has a }`:                                                              "",
		`when { context.arguments has a && context.arguments.a == 1 }`:                                  "",
		`when { context.arguments has a && context.arguments.b == "x" }`:                                "", // it fails without a b
		`when { context.arguments has a || context.arguments.a == "x" }`:                                "",
		`when { context.caller == "x" && context.arguments has a && context.arguments.a == "x" }`:       "",
		`unless { context.arguments has a && context.arguments.a == "x" }`:                              "",
		`when { context has a && context.a == "x" }`:                                                    "",
		``: "",
	} {
		r, err := Parse("x.cedar", []byte("forbid (principal, action, resource) "+condition+";"))
		if err != nil {
			t.Fatal(condition, err)
		}
		got := ""
		if g := r.list[0].guard; g != nil {
			got = string(g.argument) + " " + string(g.text)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", condition, got, want)
		}
	}
}

// Guards change nothing: with any rules and arguments, what was found is what Cedar
// finds that is shown every rule.
func TestGuardsChangeNothing(t *testing.T) {
	dice := rand.New(rand.NewPCG(7, 11))
	pick := func(list ...string) string { return list[dice.IntN(len(list))] }
	name := func() string { return pick("a", "b") }
	part := func() string {
		return fmt.Sprintf(pick(
			"context.arguments has %[1]s", `context.arguments.%[1]s == %[2]s`, `context.arguments has %[1]s && context.arguments.%[1]s == %[2]s`,
			`context.arguments.%[1]s like "x*"`, `context.arguments.%[1]s.inner == %[2]s`, `context.caller == %[2]s`, `context.arguments.%[1]s < 3`,
		), name(), pick(`"x"`, `"y"`, `""`, "1", "true"))
	}
	values := []string{`"x"`, `"y"`, `""`, `1`, `true`, `null`, `{"inner":"x"}`, `["x"]`, `1.5`}
	found := 0
	for range 3000 {
		var text strings.Builder
		for range 1 + dice.IntN(6) {
			text.WriteString(pick("permit", "forbid") + " (principal, action, resource)")
			for range dice.IntN(3) {
				text.WriteString(" " + pick("when", "when", "unless") + " { " + part())
				for range dice.IntN(3) {
					text.WriteString(pick(" && ", " && ", " || ") + part())
				}
				text.WriteString(" }")
			}
			text.WriteString(";\n")
		}
		rules, err := Parse("x.cedar", []byte(text.String()))
		if err != nil {
			t.Fatal(text.String(), err)
		}
		v := rules.view(subject{agent: "me", server: "s", tool: "t"}, nil)
		arguments := "{"
		for i, n := range []string{"a", "b"} {
			if dice.IntN(3) > 0 {
				arguments += strings.Repeat(",", min(i, len(arguments)-1, 1)) + `"` + n + `":` + pick(values...)
			}
		}
		arguments += "}"
		context, err := makeContext(&v.uses, moment{caller: "x"}, []byte(arguments))
		if err != nil {
			t.Fatal(arguments, err)
		}
		guarded := rules.judge(v, context)
		whole := asked{view: v}
		request := cedar.Request{Principal: v.principal, Action: callAction, Resource: v.resource, Context: context}
		decision, said := cedar.Authorize(whole, v.entities, request)
		again, saidAgain := cedar.Authorize(v.ask(context), v.entities, request)
		if decision != again || fmt.Sprint(said) != fmt.Sprint(saidAgain) {
			t.Fatalf("with %s\n%s\nCedar says %v %v, and behind guards %v %v", arguments, text.String(), decision, said, again, saidAgain)
		}
		found += len(guarded.forbids) + len(guarded.permits)
	}
	if found < 1000 {
		t.Errorf("only %d rules ever said anything", found)
	}
}
