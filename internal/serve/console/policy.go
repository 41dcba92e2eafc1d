package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// policyPage contains the user's policy. If Verdict is not nil, it also explains the decision about one call.
type policyPage struct {
	File, Problem           string
	Lines                   []string
	Cut                     bool
	Agents                  []Card
	Tools                   []string
	Agent, Tool, Input, Who string
	Verdict                 *Verdict
	Failed                  string
}

// maxPolicy is the maximum size of the rules on the page. maxChoices is the maximum number of choices in each list.
const maxPolicy, maxChoices = 16 << 10, 100

func (c *Console) policy(w http.ResponseWriter, r *http.Request, s *session) {
	q := r.URL.Query()
	p := policyPage{
		Agent: q.Get("agent"), Tool: strings.TrimSpace(q.Get("tool")),
		Input: strings.TrimSpace(q.Get("input")), Who: cmp.Or(strings.TrimSpace(q.Get("as")), s.Who.Name),
	}
	for _, card := range c.o.Backend.Cards() {
		if card.Model != nil && (len(p.Agents) < maxChoices || card.Name == p.Agent) {
			p.Agents = append(p.Agents, card)
		}
	}
	if p.Agent == "" && len(p.Agents) > 0 {
		p.Agent = p.Agents[0].Name
	}
	if a := c.o.Backend.Agent(r.Context(), p.Agent); a != nil {
		for _, t := range a.Tools {
			p.Tools = append(p.Tools, t.Served)
		}
	}
	p.Tools = p.Tools[:min(len(p.Tools), maxChoices)]
	// Keep an unknown tool in the list of choices, because the verdict explains what is wrong with its name.
	if p.Tool != "" && !slices.Contains(p.Tools, p.Tool) {
		p.Tools = append(p.Tools, p.Tool)
	}
	var text string
	p.File, text, p.Problem = c.o.Backend.Policy()
	if text, p.Cut = fit(strings.TrimRight(text, "\n"), maxPolicy); text != "" {
		p.Lines = strings.Split(text, "\n")
	}
	if p.Tool != "" {
		var err error
		asked := &call.Call{Tool: p.Tool, Principal: p.Who, Arguments: jsontext.Value(p.Input)}
		if p.Verdict, err = c.o.Backend.Why(r.Context(), p.Agent, asked); err != nil {
			p.Failed = err.Error()
		}
	}
	c.show(w, r, s, http.StatusOK, "policy", "Policy", "policy", p)
}
