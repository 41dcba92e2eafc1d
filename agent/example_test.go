package agent_test

import (
	"fmt"

	"github.com/ambit-run/ambit/agent"
)

// What a reviewer asks first is derived from the model.
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
