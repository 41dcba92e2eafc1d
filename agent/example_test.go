package agent_test

import (
	"fmt"

	"github.com/ambit-run/ambit/agent"
)

// Reach answers a reviewer's first questions from the model.
func ExampleAgent_Reach() {
	a := &agent.Agent{
		Tools: []agent.Tool{{
			Name: "summary", SideEffect: agent.Read,
			Binding: agent.HTTP{Method: "GET", URL: "https://api.example.com/v1", Host: "api.example.com", AuthRef: "token"},
		}},
		Slots: []agent.Slot{{Ref: "token", Env: "API_TOKEN", Hosts: []string{"api.example.com"}, Required: true}},
	}
	r := a.Reach()
	fmt.Println(r.Hosts[0].Name, r.Secrets[0].Name, r.SideEffects)
	// Output: api.example.com API_TOKEN [read]
}

func ExampleSlug() {
	fmt.Println(agent.Slug("GA Report Builder"))
	// Output: ga-report-builder
}

// A host covers its subdomains, but no other host with the same ending.
func ExampleCovers() {
	hosts := []string{"example.com"}
	for _, host := range []string{"example.com", "api.example.com", "notexample.com"} {
		fmt.Println(host, agent.Covers(hosts, host))
	}
	// Output:
	// example.com true
	// api.example.com true
	// notexample.com false
}

// Braces that do not enclose a name are plain text, so a template can contain JSON. Placeholders returns the offsets
// of these braces as its second result.
func ExamplePlaceholders() {
	found, stray := agent.Placeholders(`{ "amount": {amount}, "to": "{name}" }`)
	for _, p := range found {
		fmt.Println(p.Name)
	}
	fmt.Println(stray)
	// Output:
	// amount
	// name
	// [0 37]
}
