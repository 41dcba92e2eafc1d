package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// agentsPage is the list of agents. Agents with problems come first. Counts contains the states other than ready. Next
// is the position at which the next page begins, or 0.
type agentsPage struct {
	Total  int
	Search string // only agents whose names contain this text are shown
	Many   bool
	Counts []stateCount
	Agents []listedAgent
	Next   int
}

type stateCount struct {
	State string
	N     int
}

type listedAgent struct {
	Card
	LastCall time.Time // zero if the agent has no recent call
}

// maxAgents and maxTools are the maximum numbers of agents and of tools on one page.
const maxAgents, maxTools = 30, 25

func (c *Console) agents(w http.ResponseWriter, r *http.Request, s *session) {
	cards := c.o.Backend.Cards()
	slices.SortStableFunc(cards, func(a, b Card) int { return cmp.Compare(urgency(a.State), urgency(b.State)) })
	p := agentsPage{Total: len(cards), Many: len(cards) > maxAgents, Search: strings.TrimSpace(r.URL.Query().Get("q"))}
	for _, card := range cards {
		if n := len(p.Counts); n > 0 && p.Counts[n-1].State == card.State {
			p.Counts[n-1].N++
		} else if card.State != "ready" {
			p.Counts = append(p.Counts, stateCount{card.State, 1})
		}
	}
	cards = slices.DeleteFunc(cards, func(c Card) bool {
		return !strings.Contains(strings.ToLower(c.Name+" "+c.Title), strings.ToLower(p.Search))
	})
	cards, p.Next = part(cards, r, maxAgents)
	for _, card := range cards {
		p.Agents = append(p.Agents, listedAgent{card, c.activity.lastCall(card.Name)})
	}
	c.show(w, r, s, http.StatusOK, "agents", "Agents", "agents", p)
}

// urgency orders the states of agents: problems first, then agents that are starting, then ready agents.
func urgency(state string) string {
	switch state {
	case "ready":
		return "3"
	case "starting":
		return "2"
	}
	return "1" + state
}

// part returns at most n elements of a list, from the index in the query's parameter "from". The second result is the
// index at which the next part begins, or 0 if there is no next part.
func part[T any](list []T, r *http.Request, n int) (shown []T, next int) {
	from, _ := strconv.Atoi(r.URL.Query().Get("from"))
	from = min(max(from, 0), len(list))
	if len(list)-from > n {
		next = from + n
		return list[from:next], next
	}
	return list[from:], 0
}

// agentOf returns the agent in the request's path. If there is no such agent, it shows an error page and returns nil.
func (c *Console) agentOf(w http.ResponseWriter, r *http.Request, s *session) *Agent {
	a := c.o.Backend.Agent(r.Context(), r.PathValue("name"))
	if a == nil {
		c.failed(w, r, s, http.StatusNotFound, "There is no agent with this name.", "Choose an agent from the list.")
	}
	return a
}

// agentPage is the page of an agent. Address is the URL for MCP clients. Next is the position of the first tool that is
// not shown, or 0.
type agentPage struct {
	*Agent
	Address string
	SignIns map[string]SignIn // the key is the alias of the server
	Groups  []toolGroup
	Next    int
	Recent  []record
}

// toolGroup contains the tools of one server, with the server's proof. Alias is "" for tools that need no server. Proof
// is nil if the server has not been started.
type toolGroup struct {
	Alias  string
	Proof  *toolserver.Proof
	Access []string
	Tools  []Tool
}

// maxRecent is the number of recent calls on the page of an agent.
const maxRecent = 8

func (c *Console) agent(w http.ResponseWriter, r *http.Request, s *session) {
	a := c.agentOf(w, r, s)
	if a == nil {
		return
	}
	p := agentPage{Agent: a, Address: c.o.Backend.Address(r, a.Name), SignIns: map[string]SignIn{}}
	for _, one := range c.o.Backend.SignIns(a.Name, s.Who) {
		p.SignIns[one.Server] = one
	}
	tools, next := part(a.Tools, r, maxTools)
	p.Groups, p.Next = a.groups(tools), next
	recent, err := c.o.Journal.Show(r.Context(), journal.Filter{Agent: a.Name, Limit: maxRecent})
	if err != nil {
		c.unavailable(w, r, s, "The journal cannot be read at the moment.", err)
		return
	}
	names := c.keyNames(r.Context())
	for _, e := range recent {
		one := sentence(e, names, s.base())
		one.OfAgent = true
		p.Recent = append(p.Recent, one)
	}
	c.show(w, r, s, http.StatusOK, "agent", a.Title, "agents", &p)
}

// groups sorts the given tools into groups, one for each server. The result contains every server of the agent, even
// without tools. Servers with problems come first.
func (a *Agent) groups(tools []Tool) (groups []toolGroup) {
	of := func(alias string) *toolGroup {
		i := slices.IndexFunc(groups, func(g toolGroup) bool { return g.Alias == alias })
		if i < 0 {
			i, groups = len(groups), append(groups, toolGroup{Alias: alias})
		}
		return &groups[i]
	}
	for i := range a.Servers {
		of(a.Servers[i].Alias).Proof = &a.Servers[i]
	}
	for _, f := range a.Access {
		of(f.Label).Access = f.Values
	}
	for _, t := range tools {
		on, _ := t.Binding.(agent.OnServer)
		g := of(on.Alias)
		g.Tools = append(g.Tools, t)
	}
	slices.SortStableFunc(groups, func(x, y toolGroup) int { return cmp.Compare(x.rank(), y.rank()) })
	return groups
}

func (g *toolGroup) rank() int {
	if g.Proof != nil && !g.Proof.OK {
		return 0
	}
	return 1
}

// ui redirects to the agent's own pages.
func (c *Console) ui(w http.ResponseWriter, r *http.Request, s *session) {
	at := c.o.Backend.Pages(r.Context(), r.PathValue("name"), s.Who, s.id(), time.Unix(s.Until, 0))
	if at == "" {
		c.failed(w, r, s, http.StatusNotFound, "The agent has no pages, or it is not ready.",
			"The agent's page shows its state.")
		return
	}
	http.Redirect(w, r, at, http.StatusSeeOther)
}

type toolPage struct {
	Agent       *Agent
	Tool        *Tool
	Destination string
	Fields      []field
	JSON        string
	Problem     string
	Outcome     *outcome
}

type outcome struct {
	CallID    string
	Took      time.Duration
	IsError   bool
	Texts     []string
	Structure string
	Refusal   *call.Refusal
	Cut       bool // set if the page shows only a part of the texts
	size      int
}

// toolOf returns the data of a tool's page. If there is no such agent or tool, it shows an error page and returns
// nil.
func (c *Console) toolOf(w http.ResponseWriter, r *http.Request, s *session, name string) *toolPage {
	a := c.agentOf(w, r, s)
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.Tools, func(t Tool) bool { return t.Served == name })
	if i >= 0 {
		t := &a.Tools[i]
		return &toolPage{
			Agent: a, Tool: t, Destination: destination(&t.Tool), Fields: formOf([]byte(t.InputSchema)),
		}
	}
	c.failed(w, r, s, http.StatusNotFound, "The agent has no tool with this name.", "The agent's page lists its tools.")
	return nil
}

func (c *Console) tool(w http.ResponseWriter, r *http.Request, s *session) {
	if t := c.toolOf(w, r, s, r.PathValue("tool")); t != nil {
		c.show(w, r, s, http.StatusOK, "tool", t.Tool.Served, "agents", t)
	}
}

// try handles a submitted form. It calls the tool with the arguments in the form.
func (c *Console) try(w http.ResponseWriter, r *http.Request, s *session) {
	t := c.toolOf(w, r, s, r.PostFormValue("tool"))
	if t == nil {
		return
	}
	t.JSON = r.PostFormValue("json")
	arguments, filled, err := argumentsOf(t.Fields, r.PostForm)
	t.Fields = filled
	if err != nil {
		t.Problem = err.Error()
		c.show(w, r, s, http.StatusBadRequest, "tool", t.Tool.Served, "agents", t)
		return
	}
	// The call can wait for approval longer than the read deadline allows.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	asked := &call.Call{Tool: t.Tool.Served, Arguments: jsontext.Value(arguments), Principal: s.Who.Name, Attributes: s.Who.Attributes()}
	result, err := c.o.Backend.Call(r.Context(), t.Agent.Name, asked)
	t.Outcome = &outcome{CallID: asked.ID, Took: result.Duration.Round(time.Millisecond / 10)}
	if err != nil {
		t.Outcome.Refusal = call.AsRefusal("act", err)
	} else {
		t.Outcome.read(result)
	}
	c.show(w, r, s, http.StatusOK, "tool", t.Tool.Served, "agents", t)
}

// maxShown is the maximum size of a tool's result on the page.
const maxShown = 12 << 10

func (o *outcome) read(r call.Result) {
	o.IsError = r.IsError
	var raw struct {
		Content []struct {
			Type     string          `json:"type"`
			Text     string          `json:"text"`
			MIMEType string          `json:"mimeType"`
			Data     json.RawMessage `json:"data"`
		} `json:"content"`
		StructuredContent jsontext.Value `json:"structuredContent"`
	}
	if json.Unmarshal(r.Raw, &raw) != nil {
		o.add(string(r.Raw))
		return
	}
	for _, item := range raw.Content {
		if item.Type == "text" {
			o.add(item.Text)
			continue
		}
		o.add(fmt.Sprintf("[%s %s, %d bytes]", item.Type, item.MIMEType, len(item.Data)))
	}
	if len(raw.StructuredContent) > 0 {
		o.Structure, _ = fit(approval.Show(raw.StructuredContent), maxShown/2)
	}
}

// add adds a text to the result, if it fits on the page.
func (o *outcome) add(text string) {
	if o.Cut {
		return
	}
	shown, cut := fit(text, maxShown-o.size)
	o.Texts, o.Cut = append(o.Texts, shown), cut
	o.size += len(template.HTMLEscapeString(shown)) + 20
}

func (c *Console) setSecret(w http.ResponseWriter, r *http.Request, s *session) {
	a := c.agentOf(w, r, s)
	if a == nil {
		return
	}
	err := c.o.Backend.SetSecret(a.Name, r.PostFormValue("ref"), r.PostFormValue("value"))
	if err != nil {
		c.failed(w, r, s, http.StatusBadRequest, "The credential was not stored.", err.Error())
		return
	}
	http.Redirect(w, r, s.base()+"agents/"+url.PathEscape(a.Name)+"#credentials", http.StatusSeeOther)
}

func (c *Console) queue(w http.ResponseWriter, r *http.Request, s *session) {
	intents, err := c.o.Backend.Intents(r.Context())
	if err != nil {
		c.unavailable(w, r, s, "The queue cannot be read at the moment.", err)
		return
	}
	c.show(w, r, s, http.StatusOK, "queue", "Queue", "queue", intents)
}

// funcs contains the functions for the page templates.
var funcs = template.FuncMap{
	"ago": func(t time.Time) string {
		switch d := time.Since(t); {
		case d < time.Minute:
			return "just now"
		case d < time.Hour:
			return fmt.Sprintf("%d min ago", int(d.Minutes()))
		case d < 24*time.Hour:
			return fmt.Sprintf("%d h ago", int(d.Hours()))
		}
		return t.Format("2006-01-02")
	},
	"left": func(t time.Time) string {
		d := time.Until(t).Round(time.Second)
		switch {
		case d <= 0:
			return "no time"
		case d < 2*time.Minute:
			return d.String()
		}
		return fmt.Sprintf("%d min", int(d.Minutes()))
	},
	"at":      func(layout string, t time.Time) string { return t.UTC().Format(layout) },
	"ms":      elapsed,
	"clip":    clip,
	"first":   first,
	"shell":   diag.ShellWord,
	"counted": counted,
	"number":  thousands,
	"short": func(s string) string {
		if len(s) > 19 {
			return s[:19] + "…"
		}
		return s
	},
	"join":   strings.Join,
	"limits": limits,
	"uuid":   dispatch.UUID,
	"took": func(i *dispatch.Intent) string {
		if i.Ended.IsZero() || i.Started.IsZero() {
			return ""
		}
		return i.Ended.Sub(i.Started).String()
	},
}

// counted returns a number with its noun, such as "1 tool" or "2 tools".
func counted(n any, noun string) string {
	if text := thousands(n); text != "1" {
		return text + " " + noun + "s"
	}
	return "1 " + noun
}

// thousands writes a number that is not negative with separators, such as 12,345.
func thousands(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// elapsed formats the duration of a call. A long duration has fewer decimals, so that a person can compare durations.
func elapsed(us int64) string {
	switch ms := float64(us) / 1000; {
	case us < 100:
		return "<0.1 ms"
	case us < 10_000:
		return fmt.Sprintf("%.1f ms", ms)
	case us < 1_000_000:
		return fmt.Sprintf("%.0f ms", ms)
	case us < 60_000_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return (time.Duration(us) * time.Microsecond).Round(time.Second).String()
}

// limits describes the rate and spending limits of a tool.
func limits(p agent.ToolPolicy) string {
	var parts []string
	if p.Rate != nil {
		parts = append(parts, "at most "+p.Rate.String())
	}
	if c := p.Spend; c != nil {
		if c.PerCall != "" {
			parts = append(parts, strings.TrimSpace("up to "+c.PerCall+" "+c.Currency)+" a call")
		}
		if c.PerDay != "" {
			parts = append(parts, strings.TrimSpace(c.PerDay+" "+c.Currency)+" a day")
		}
	}
	return strings.Join(parts, ", ")
}
