package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	guardview "github.com/ambit-run/ambit/internal/gateway/guard/view"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/journal"
)

func (c *Console) agents(w http.ResponseWriter, r *http.Request, s *session) {
	c.show(w, r, s, http.StatusOK, "agents", "Agents", "agents", c.o.Backend.Cards())
}

// agentOf returns the agent in the request's path. If there is no such agent, it shows an error page and returns nil.
func (c *Console) agentOf(w http.ResponseWriter, r *http.Request, s *session) *Agent {
	a := c.o.Backend.Agent(r.Context(), r.PathValue("name"))
	if a == nil {
		c.failed(w, r, s, http.StatusNotFound, "There is no agent with this name.", "Choose an agent from the list.")
	}
	return a
}

func (c *Console) agent(w http.ResponseWriter, r *http.Request, s *session) {
	if a := c.agentOf(w, r, s); a != nil {
		c.show(w, r, s, http.StatusOK, "agent", a.Title, "agents", a)
	}
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
	Agent   *Agent
	Tool    *Tool
	Fields  []field
	JSON    string
	Problem string
	Outcome *outcome
}

type outcome struct {
	CallID    string
	Took      time.Duration
	IsError   bool
	Texts     []string
	Structure string
	Refusal   *call.Refusal
}

// toolOf returns the data of a tool's page. If there is no such agent or tool, it shows an error page and returns
// nil.
func (c *Console) toolOf(w http.ResponseWriter, r *http.Request, s *session, name string) *toolPage {
	a := c.agentOf(w, r, s)
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.Tools, func(t Tool) bool { return t.Name == name })
	if i >= 0 {
		return &toolPage{Agent: a, Tool: &a.Tools[i], Fields: formOf([]byte(a.Tools[i].InputSchema))}
	}
	c.failed(w, r, s, http.StatusNotFound, "The agent has no tool with this name.", "The agent's page lists its tools.")
	return nil
}

func (c *Console) tool(w http.ResponseWriter, r *http.Request, s *session) {
	if t := c.toolOf(w, r, s, r.PathValue("tool")); t != nil {
		c.show(w, r, s, http.StatusOK, "tool", t.Tool.Name, "agents", t)
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
		c.show(w, r, s, http.StatusBadRequest, "tool", t.Tool.Name, "agents", t)
		return
	}
	// The call can wait for approval longer than the read deadline allows.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	asked := &call.Call{Tool: t.Tool.Name, Arguments: jsontext.Value(arguments), Principal: s.Who.Name}
	if t.Tool.URI != nil {
		asked.Tool = t.Tool.URI.String()
	}
	result, err := c.o.Backend.Call(r.Context(), t.Agent.Name, asked)
	t.Outcome = &outcome{CallID: asked.ID, Took: result.Duration.Round(time.Millisecond / 10)}
	if err != nil {
		t.Outcome.Refusal = call.AsRefusal("act", err)
	} else {
		t.Outcome.read(result)
	}
	c.show(w, r, s, http.StatusOK, "tool", t.Tool.Name, "agents", t)
}

// maxShown is the maximum number of bytes of a result that the page shows.
const maxShown = 64 << 10

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
		o.Texts = []string{cut(string(r.Raw))}
		return
	}
	for _, item := range raw.Content {
		if item.Type == "text" {
			o.Texts = append(o.Texts, cut(item.Text))
			continue
		}
		o.Texts = append(o.Texts, fmt.Sprintf("[%s %s, %d bytes]", item.Type, item.MIMEType, len(item.Data)))
	}
	if len(raw.StructuredContent) > 0 {
		o.Structure = cut(pretty(raw.StructuredContent))
	}
}

func cut(s string) string {
	if len(s) > maxShown {
		return diag.Cut(s, maxShown) + "\n… (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return s
}

// pretty indents JSON and escapes characters that a person cannot see, such as those that reverse the direction of text.
// It does not indent large or deep values, because the text could become a hundred times as long.
func pretty(raw []byte) string {
	var out bytes.Buffer
	if len(raw) > maxShown || rawjson.Deeper(raw, maxIndented) || json.Indent(&out, raw, "", "  ") != nil {
		return diag.Printable(string(raw))
	}
	lines := strings.Split(out.String(), "\n")
	for i, line := range lines {
		lines[i] = diag.Printable(line)
	}
	return strings.Join(lines, "\n")
}

const (
	maxIndented = 16
	// maxFirst is how much of a call's arguments the list of approvals shows at once, and maxAll how much it shows on
	// request. maxPage bounds the arguments of all calls in the list.
	maxFirst, maxAll, maxPage = 2000, 32 << 10, 1 << 20
)

// waitingCall is a call that waits for a decision, with the part of its arguments that is shown.
type waitingCall struct {
	*approval.Question
	First, All string // All is "" if First is everything
	Size       int
	Cut        bool // not all arguments are shown
	// LookAlikes are the words that a person reads as other words. There are at most maxLookAlikes.
	LookAlikes []guardview.LookAlike
}

const maxLookAlikes = 5

func waitingCalls(list []*approval.Question) []waitingCall {
	calls := make([]waitingCall, len(list))
	left := maxPage
	for i, q := range list {
		text := pretty(q.Arguments)
		c := waitingCall{Question: q, First: diag.Cut(text, min(maxFirst, left)), Size: len(q.Arguments)}
		if len(text) > len(c.First) {
			c.All = diag.Cut(text, min(maxAll, left))
			c.Cut = len(text) > len(c.All)
		}
		c.LookAlikes = guardview.LookAlikes(q.Tool+" "+cmp.Or(c.All, c.First), maxLookAlikes)
		left = max(left-len(c.First)-len(c.All), 0)
		calls[i] = c
	}
	return calls
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

func (c *Console) approvals(w http.ResponseWriter, r *http.Request, s *session) {
	waiting, err := c.o.Approvals.List(r.Context())
	if err != nil {
		c.unavailable(w, r, s, "The approvals cannot be read at the moment.", err)
		return
	}
	c.show(w, r, s, http.StatusOK, "approvals", "Approvals", "approvals", waitingCalls(waiting))
}

func (c *Console) decide(w http.ResponseWriter, r *http.Request, s *session) {
	decision := r.PostFormValue("decision")
	if decision != "approve" && decision != "deny" {
		c.failed(w, r, s, http.StatusBadRequest, "The decision must be approve or deny.", "Use one of the two buttons.")
		return
	}
	id, reason := r.PathValue("id"), r.PostFormValue("reason")
	err := c.o.Approvals.Decide(r.Context(), id, decision == "approve", s.Who.Name, reason)
	switch {
	case err == nil:
		http.Redirect(w, r, s.base()+"approvals", http.StatusSeeOther)
	case errors.Is(err, approval.ErrUnknown), errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrOver):
		c.failed(w, r, s, http.StatusConflict, "Your decision was not recorded: "+err.Error()+".",
			"Go back to the list of waiting calls.")
	default:
		c.unavailable(w, r, s, "The decision could not be stored.", err)
	}
}

// journalPage contains the journal records that match a filter. More is true if there are further matching records.
type journalPage struct {
	Filter  map[string]string
	Records []journal.Entry
	More    bool
}

const pageLength = 100

func (c *Console) journal(w http.ResponseWriter, r *http.Request, s *session) {
	q := r.URL.Query()
	p := journalPage{Filter: map[string]string{}}
	for _, name := range []string{"agent", "tool", "principal", "call", "code", "decision"} {
		p.Filter[name] = strings.TrimSpace(q.Get(name))
	}
	found, err := c.o.Journal.Show(r.Context(), journal.Filter{
		Agent: p.Filter["agent"], Tool: p.Filter["tool"], Principal: p.Filter["principal"],
		Call: p.Filter["call"], Code: p.Filter["code"], Decision: journal.Decision(p.Filter["decision"]),
		Unknown: q.Get("unknown") == "true", Limit: pageLength + 1,
	})
	if err != nil {
		c.unavailable(w, r, s, "The journal cannot be read at the moment.", err)
		return
	}
	if p.More = len(found) > pageLength; p.More {
		found = found[:pageLength]
	}
	p.Records = found
	c.show(w, r, s, http.StatusOK, "journal", "Journal", "journal", p)
}

func (c *Console) record(w http.ResponseWriter, r *http.Request, s *session) {
	log, err1 := strconv.ParseInt(r.PathValue("log"), 10, 64)
	seq, err2 := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	var proof *journal.Proof
	err := errors.Join(err1, err2)
	if err == nil {
		proof, err = c.o.Journal.Prove(r.Context(), log, seq)
	}
	if err1 != nil || err2 != nil || errors.Is(err, journal.ErrNoRecord) {
		c.failed(w, r, s, http.StatusNotFound, "The journal has no record with this number.", "")
		return
	}
	data := map[string]any{"Log": log, "Seq": seq}
	if err != nil {
		data["Problem"] = err.Error()
	} else {
		data["Proof"], data["Path"] = proof, len(proof.Path)
	}
	if err == nil && proof.Record != nil {
		data["Record"] = pretty([]byte(*proof.Record))
	}
	c.show(w, r, s, http.StatusOK, "record", fmt.Sprintf("Record %d", seq), "journal", data)
}

func (c *Console) charts(w http.ResponseWriter, r *http.Request, s *session) {
	spent, err := c.o.Backend.SpentToday(r.Context())
	if err != nil {
		c.unavailable(w, r, s, "Today's spending cannot be read at the moment.", err)
		return
	}
	now := time.Now()
	c.activity.recordSpending(spent, now)
	start, calls, latency, money := c.activity.read(now)
	type drawn struct {
		Title string
		Lines []series
		SVG   template.HTML
	}
	c.show(w, r, s, http.StatusOK, "activity", "Activity", "activity", map[string]any{
		"Charts": []drawn{
			{
				"Calls and refusals, every five minutes", calls,
				chart("calls, refused calls and calls with an unknown outcome in the last day", "", start, calls),
			},
			{"Latency of calls", latency, chart("latency of calls in the last day", " ms", start, latency)},
			{"Spent today by tools with a limit", money, chart("amount spent today by tools with a limit", "", start, money)},
		},
		"Spent": spent,
	})
}

func (c *Console) queue(w http.ResponseWriter, r *http.Request, s *session) {
	intents, err := c.o.Backend.Intents(r.Context())
	if err != nil {
		c.unavailable(w, r, s, "The queue cannot be read at the moment.", err)
		return
	}
	c.show(w, r, s, http.StatusOK, "queue", "Queue", "queue", intents)
}

// policyPage contains the user's policy. If Asked is true, it also explains the decision about one call.
type policyPage struct {
	File, Text, Problem     string
	Agents                  []Card
	Agent, Tool, Input, Who string
	Asked, Allowed          bool
	Reasons                 []call.Reason
	Failed                  string
}

func (c *Console) policy(w http.ResponseWriter, r *http.Request, s *session) {
	q := r.URL.Query()
	p := policyPage{
		Agents: c.o.Backend.Cards(), Agent: q.Get("agent"), Tool: strings.TrimSpace(q.Get("tool")),
		Input: q.Get("input"), Who: cmp.Or(strings.TrimSpace(q.Get("as")), s.Who.Name),
	}
	p.File, p.Text, p.Problem = c.o.Backend.Policy()
	if p.Asked = p.Agent != "" && p.Tool != ""; p.Asked {
		asked := &call.Call{Tool: p.Tool, Principal: p.Who, Arguments: jsontext.Value(p.Input)}
		var err error
		if p.Allowed, p.Reasons, err = c.o.Backend.Why(r.Context(), p.Agent, asked); err != nil {
			p.Asked, p.Failed = false, err.Error()
		}
	}
	c.show(w, r, s, http.StatusOK, "policy", "Policy", "policy", p)
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
		if d <= 0 {
			return "no time"
		}
		return d.String()
	},
	"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"ms":    func(us int64) string { return strconv.FormatFloat(float64(us)/1000, 'f', 1, 64) },
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
