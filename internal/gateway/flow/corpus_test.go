package flow

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// suite is a file of traces: calls with the results that a model would see.
type suite struct {
	Tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		SideEffect  string          `json:"side_effect"`
	} `json:"tools"`
	UserTasks []struct {
		ID    string `json:"id"`
		Steps []step `json:"steps"`
	} `json:"user_tasks"`
	Attacks []struct {
		User, Injection, Goal string
		Steps                 []step
	} `json:"attacks"`
}

type step struct {
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"args"`
	Result   any             `json:"result"`
	Attacker bool            `json:"attacker"`
}

// change is applied to a suite before it is measured.
type change struct {
	neutral bool // tools have neutral names
	strict  bool
}

func (s *suite) tools(c change) map[string]*Tool {
	m := map[string]*Tool{}
	for i, d := range s.Tools {
		name := d.Name
		if c.neutral {
			name = fmt.Sprintf("op%d", i+1)
		}
		m[d.Name] = NewTool(Spec{
			Name: name, Description: d.Description, Schema: string(d.Parameters),
			Effect: d.SideEffect != "read", Network: d.SideEffect == "network",
		})
	}
	return m
}

func resultOf(text any) []byte {
	s, ok := text.(string)
	if !ok {
		b, _ := json.Marshal(text)
		s = string(b)
	}
	b, err := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": s}}})
	if err != nil {
		panic(err)
	}
	return b
}

// run plays a trace. It returns the number of questions, and how many effects of the attacker were questioned.
func run(tools map[string]*Tool, steps []step, c change, say func(string, ...any)) (questions, effects, attacker, stopped int) {
	now := time.Unix(1_700_000_000, 0)
	s := NewMemory(DefaultWindow).Session("", now)
	for i, st := range steps {
		t := tools[st.Tool]
		if t.Decides() {
			v := s.Decide(t, st.Args, now, c.strict)
			if t.Effect {
				effects++
				if st.Attacker {
					attacker++
				}
			}
			if len(v.Findings) > 0 {
				questions++
				if st.Attacker {
					stopped++
				}
				say("  asked %s: %+v", st.Tool, v.Findings)
				if !st.Attacker { // a person refuses the others
					s.Approve(t, st.Args)
				}
			} else if st.Attacker && t.Effect {
				say("  MISSED %s", st.Tool)
			}
		}
		s.Made(t, st.Args, now)
		s.Observe(t, st.Args, resultOf(st.Result), Source{Call: fmt.Sprint(i), Tool: st.Tool, Time: now})
	}
	return questions, effects, attacker, stopped
}

// half selects half of the traces.
func half(first bool) func(string) bool {
	return func(id string) bool {
		var seed [32]byte
		copy(seed[:], "flow"+id)
		return rand.New(rand.NewChaCha8(seed)).IntN(2) == 0 == first
	}
}
