package agent_test

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
)

func TestJSONRoundTrip(t *testing.T) {
	bindings := []agent.Binding{
		nil,
		agent.OnServer{Alias: "fs"},
		agent.HTTP{Method: "GET", URL: "https://a.example/", Headers: map[string]string{"A": "b"}},
		agent.Prompt{Template: "x"},
		agent.Compose{Agent: "a", Tool: "t"},
		agent.RunProgram{},
		agent.Native{Namespace: "n"},
	}
	want := agent.Agent{
		Name: "x", Program: &agent.Program{Runtime: agent.Python3, Entry: "main.py", Contract: agent.OneLine},
		Resources:  &agent.Resources{WallClock: 1500 * time.Millisecond, MemoryMB: 64, DiskMB: 1, Network: agent.NetworkOff},
		Settlement: &agent.Settlement{CreditsPerHour: 3, Priority: agent.PriorityHigh},
		Guardrails: agent.Guardrails{OnLeak: agent.LeakBlock},
	}
	for _, b := range bindings {
		want.Tools = append(want.Tools, agent.Tool{Name: "t", SideEffect: agent.Read, Timeout: time.Second, Binding: b})
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got agent.Agent
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nfrom %s\nwant %+v", got, text, want)
	}
}

func TestToolJSONRefusesBindings(t *testing.T) {
	for name, text := range map[string]string{
		"unknown": `{"name":"x","binding":{"exec":{}}}`,
		"two":     `{"name":"x","binding":{"http":{},"program":{}}}`,
		"a list":  `{"name":"x","binding":{"http":[]}}`,
	} {
		var tool agent.Tool
		if err := json.Unmarshal([]byte(text), &tool); err == nil {
			t.Errorf("%s: got %+v, want an error", name, tool)
		}
	}
}

func TestMillisecondsDoesNotOverflow(t *testing.T) {
	if d := agent.Milliseconds(math.MaxInt64); d < 290*365*24*time.Hour {
		t.Errorf("Milliseconds(math.MaxInt64) = %s, want about 292 years", d)
	}
}
