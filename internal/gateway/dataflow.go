package gateway

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/flow"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	stageFlow = "flow"
	// readSlack is added to the lifetime of each row in flow_reads, so that ambit need not update the row at every
	// read.
	readSlack = 10 * time.Minute
	// maxFlowTools is the maximum number of tools whose derived properties are kept in memory.
	maxFlowTools = 4096
	// maxElsewhere is the maximum number of principals whose reads in other processes are kept in memory.
	maxElsewhere = 4096
	maxLabel     = 60 // maximum length of the name of a page or file, in characters
	maxFlowValue = 80 // maximum length of a value in a message, in characters
)

// Flow finds out where the values in the arguments of calls come from, with package flow. All gateways of a process
// share one Flow, because text that one agent has read can steer other agents of the same principal.
type Flow struct {
	memories *flow.Memories

	mu sync.Mutex
	// until maps each principal to the time when this process's row in the table flow_reads expires.
	until map[string]time.Time
	// elsewhere maps each principal to what other processes have read.
	elsewhere map[string]elsewhere
	tools     map[*agent.Tool]*flow.Tool
}

// elsewhere is the time when the last row of other processes in the table flow_reads expires. It is valid as long as
// the store's announcements are the same.
type elsewhere struct {
	until     time.Time
	announced state.News
}

// NewFlow returns a Flow without any text.
func NewFlow() *Flow {
	return &Flow{
		memories: flow.NewMemories(flow.DefaultWindow), until: map[string]time.Time{},
		elsewhere: map[string]elsewhere{}, tools: map[*agent.Tool]*flow.Tool{},
	}
}

func (f *Flow) tool(t *agent.Tool) *flow.Tool {
	f.mu.Lock()
	defer f.mu.Unlock()
	made := f.tools[t]
	if made == nil {
		if len(f.tools) >= maxFlowTools {
			clear(f.tools) // servers often announce new tools, so start again
		}
		made = flowTool(t)
		f.tools[t] = made
	}
	return made
}

// flowTool returns the description of a tool for package flow.
func flowTool(t *agent.Tool) *flow.Tool {
	return flow.NewTool(flow.Spec{
		Name: t.Name, Description: t.Description, Schema: t.InputSchema,
		Effect: t.SideEffect != agent.Read, Network: t.SideEffect.Rank() > agent.Write.Rank(),
		Destructive: t.Annotations.Destructive != nil && *t.Annotations.Destructive && t.SideEffect != agent.Read,
	})
}

// session returns the flow session for a request: the text that the principal's agents have read, and the values that
// the client session trusts.
func (g *Gateway) session(principal string, c *call.Client, now time.Time) *flow.Session {
	key := g.name
	if c != nil {
		key += "\x00" + c.Key
	}
	return g.options.Flow.memories.Of(principal, now).Session(key, now)
}

// traceable reports whether calls to a tool are traced.
func (g *Gateway) traceable(t *agent.Tool) bool {
	return g.options.Flow != nil && g.flowMode(t) != guard.FlowOff
}

// flowMode returns the operator's mode for calls to a tool. See guard.FlowRules.
func (g *Gateway) flowMode(t *agent.Tool) string {
	rules := g.options.Operator.Flow
	for _, mode := range []string{rules.Tools[t.Name], rules.Agents[g.name], rules.Mode} {
		if mode != "" {
			return mode
		}
	}
	return guard.FlowAsk
}

// trace finds out whether arguments of the call come from text that the principal's agents have read. The policy and
// the stage "approve" use the verdict.
func trace(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if !g.traceable(p.tool) {
		return nil
	}
	t, now := g.options.Flow.tool(p.tool), time.Now()
	s := g.session(p.Principal, p.Client, now)
	if t.Decides() || s.Trusts(now) {
		if err := g.readElsewhere(ctx, p.Principal, now); err != nil {
			return StoreFailed(ctx, stageFlow, err)
		}
	}
	if t.Decides() {
		v := s.Decide(t, p.canonical, now, g.options.Operator.Flow.Strict)
		if more := rawjson.Lookup(p.More, "inputResponses"); len(more) > 0 && len(v.Findings) == 0 {
			v = s.Decide(t, more, now, g.options.Operator.Flow.Strict)
		}
		p.verdict = &v
		p.Flow = flowFacts(&v)
	}
	s.Made(t, p.canonical, now)
	return nil
}

// flowFacts returns the parts of a verdict that policy rules can use.
func flowFacts(v *flow.Verdict) *call.Flow {
	f := &call.Flow{Untrusted: v.Untrusted, Strict: v.Strict}
	for _, found := range v.Findings {
		name, _, _ := strings.Cut(strings.TrimPrefix(found.Argument, "/"), "/")
		if name != "" && !slices.Contains(f.Doubtful, name) {
			f.Doubtful = append(f.Doubtful, name)
		}
		if found.Source.Tool != "" && !slices.Contains(f.Origin, found.Source.Tool) {
			f.Origin = append(f.Origin, found.Source.Tool)
		}
		if found.Asked && !slices.Contains(f.AskedForIn, found.Source.Tool) {
			f.AskedForIn = append(f.AskedForIn, found.Source.Tool)
		}
	}
	return f
}

// originsOf describes a verdict for the journal. The journal gets a MAC of each value, never the value itself.
func (g *Gateway) originsOf(v *flow.Verdict) (origins []journal.Origin) {
	if v == nil {
		return nil
	}
	for _, f := range v.Findings {
		mac := g.store.Keys.MAC("flow value", []byte(f.Value))
		origins = append(origins, journal.Origin{
			Argument: g.showableName(f.Argument), Reason: string(f.Reason),
			Call: f.Source.Call, ValueMAC: hex.EncodeToString(mac[:8]),
		})
	}
	return origins
}

// showableName returns a JSON pointer without secrets and personal data. The caller chooses the names of arguments.
func (g *Gateway) showableName(pointer string) string {
	quoted, err := jsontext.AppendQuote(nil, clip(pointer))
	if err != nil {
		return ""
	}
	name, _ := rawjson.Text(g.showable(g.guards.withoutPersonal(quoted)))
	return name
}

// whyFlow explains how the origin of the arguments would affect a call. It knows the text that the principal's agents
// have read in this process, but not the values that the session of a later call will trust. It returns nil if the
// origin does not matter or is unknown.
func (g *Gateway) whyFlow(p *inflight) *call.Reason {
	if !g.traceable(p.tool) || len(p.Arguments) == 0 {
		return nil
	}
	t, now := g.options.Flow.tool(p.tool), time.Now()
	if !t.Decides() {
		return nil
	}
	v := g.options.Flow.memories.Of(p.Principal, now).Preview(now).Decide(t, p.canonical, now, g.options.Operator.Flow.Strict)
	p.verdict, p.Flow = &v, flowFacts(&v)
	r := &call.Reason{Stage: stageFlow, Allowed: true}
	ask, stopped := g.doubts(p)
	switch {
	case !v.Untrusted && !v.Strict:
		r.Detail = "the principal's agents have not read any untrusted text recently"
	case stopped != nil:
		*r = stopped.Deny(stageFlow)
	case ask:
		r.Detail = "a person must approve the call first, unless the session trusts the value: " +
			strings.Join(originLines(&v), "; ")
	default:
		r.Detail = "no argument comes from untrusted text that the principal's agents have read"
	}
	return r
}

// FlowMatters reports whether the origin of arguments can stop a call to the tool, or make it wait for a person.
func (g *Gateway) FlowMatters(t *agent.Tool) bool {
	return g.flowMode(t) != guard.FlowOff && flowTool(t).Decides()
}

// ReadUntil returns the end of the time in which text affects a principal's calls, because the principal's agents have
// read the text. It returns zero if no text affects the calls.
func (g *Gateway) ReadUntil(ctx context.Context, principal string) (until time.Time, err error) {
	if g.store == nil {
		return until, nil
	}
	return g.lastRead(ctx, principal, "", time.Now())
}

// lastRead returns the latest time at which a row of the principal in the table flow_reads expires. It ignores the
// rows of the given owner. It returns the zero time if all rows have expired.
func (g *Gateway) lastRead(ctx context.Context, principal, owner string, now time.Time) (until time.Time, err error) {
	var last int64
	err = g.store.DB.Read(ctx, func(tx state.Tx) error {
		return tx.Query(`SELECT CAST(COALESCE(MAX(until), 0) AS BIGINT) FROM flow_reads WHERE principal = $1 AND owner <> $2`,
			[]any{principal, owner}, func(row state.Row) error { return row.Scan(&last) })
	})
	if end := time.UnixMicro(last); err == nil && end.After(now) {
		until = end
	}
	return until, err
}

// doubts reports whether a person must approve the call because arguments come from untrusted text. It returns a
// refusal if the operator denies such calls.
func (g *Gateway) doubts(p *inflight) (ask bool, stopped *call.Refusal) {
	if p.verdict == nil || len(p.verdict.Findings) == 0 {
		return false, nil
	}
	if g.flowMode(p.tool) == guard.FlowDeny {
		stopped = call.Refuse(stageFlow, call.PolicyDenied, "%s is denied, because its arguments come from untrusted text: %s",
			p.tool.Name, strings.Join(originLines(p.verdict), "; "))
		stopped.Hint = `to ask a person instead, set the mode of this tool or agent to "ask" under "flow" in guardrails.json`
		return false, stopped
	}
	return true, nil
}

// originLines describes where the doubtful arguments come from, one line for each.
func originLines(v *flow.Verdict) (lines []string) {
	for _, f := range v.Findings {
		line := "this call"
		if f.Argument != "" {
			line = fmt.Sprintf("%s: %s", strings.TrimPrefix(f.Argument, "/"), diag.Quote(diag.Cut(f.Value, maxFlowValue)))
		}
		place := f.Source.Tool + ", " + f.Source.Time.Local().Format("15:04")
		if f.Source.Label != "" {
			place = f.Source.Label + " (" + place + ")"
		}
		switch f.Reason {
		case flow.Unknown:
			line += " has no known origin; it may come from text that ambit no longer remembers"
		case flow.Named:
			line += " is asked for in " + place
		case flow.AcrossSources:
			line += " was first seen in " + place + ", but the destination comes from another result"
		case flow.AskedFor:
			line += " also appears in " + place + ", and that text asks for this action"
		default:
			line += " was first seen in " + place
			if f.Asked {
				line += "; that text asks for this action"
			}
		}
		lines = append(lines, diag.Printable(line))
	}
	return lines
}

// markRead records in the store that the principal's agents read text. It writes a row before the first read, and again
// when the row is about to expire. Other processes, and this process after a restart, do not have the text. The row
// tells them that such text exists.
func markRead(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if !g.traceable(p.tool) {
		return nil
	}
	if err := g.markReader(ctx, p.Principal, g.timeout(p)); err != nil {
		return StoreFailed(ctx, stageFlow, err)
	}
	return nil
}

// markReader records in the store that the principal's agents read text. The text arrives within the given time.
func (g *Gateway) markReader(ctx context.Context, principal string, within time.Duration) error {
	f, now := g.options.Flow, time.Now()
	needed := now.Add(within + f.memories.Window())
	f.mu.Lock()
	known := !f.until[principal].Before(needed)
	f.mu.Unlock()
	if known {
		return nil
	}
	until := needed.Add(readSlack)
	err := g.store.DB.Write(ctx, func(tx state.Tx) error {
		if _, err := tx.Exec(`DELETE FROM flow_reads WHERE principal = $1 AND until < $2`, principal, now.UnixMicro()); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO flow_reads (principal, owner, until) VALUES ($1, $2, $3)
ON CONFLICT (principal, owner) DO UPDATE SET until = excluded.until`, principal, g.store.DB.Owner(), until.UnixMicro())
		return err
	})
	if err == nil {
		err = g.store.DB.Announce()
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, end := range f.until {
		if end.Before(now) {
			delete(f.until, other)
		}
	}
	f.until[principal] = until
	return nil
}

// readElsewhere makes the memory of a principal strict if the principal's agents have read text in another process. It
// asks the store only if a process may have changed the rows since it last asked.
func (g *Gateway) readElsewhere(ctx context.Context, principal string, now time.Time) error {
	f := g.options.Flow
	announced, known := g.store.DB.Announced()
	f.mu.Lock()
	e, kept := f.elsewhere[principal]
	f.mu.Unlock()
	if !known || !kept || e.announced != announced {
		// Include expired rows, because a clock that is set back makes them valid again.
		until, err := g.lastRead(ctx, principal, g.store.DB.Owner(), time.Time{})
		if err != nil {
			return err
		}
		if e = (elsewhere{until, announced}); known {
			f.keepElsewhere(principal, e)
		}
	}
	if e.until.After(now) {
		f.memories.Of(principal, now).Forget(e.until.Add(-f.memories.Window()))
	}
	return nil
}

func (f *Flow) keepElsewhere(principal string, e elsewhere) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.elsewhere) >= maxElsewhere {
		clear(f.elsewhere)
	}
	f.elsewhere[principal] = e
}

// observe adds the call's result or refusal to the principal's memory, before the caller receives the answer. It returns
// the refusal, without the server's text if the store cannot record that the principal's agents read it.
func (g *Gateway) observe(p *inflight, stopped *call.Refusal) *call.Refusal {
	if p.tool == nil || !g.traceable(p.tool) {
		return stopped
	}
	now := time.Now()
	s := g.session(p.Principal, p.Client, now)
	src := flow.Source{Call: p.ID, Tool: p.tool.Name, Label: labelOf(p.canonical), Time: now}
	if stopped == nil {
		s.Observe(g.options.Flow.tool(p.tool), p.canonical, p.result.Raw, src)
		if p.result.Failure != nil {
			s.Read(p.result.Failure, src)
		}
		return nil
	}
	if stopped.Stage != stageAct && stopped.Stage != guard.StageOut {
		return stopped // the message does not quote the server
	}
	s.Read([]byte(stopped.Message+"\n"+stopped.Hint), src)
	// Record the read here too, because a call to an agent that could not start is refused before the stage markRead.
	if err := g.markReader(context.Background(), p.Principal, 0); err != nil {
		withheld := *stopped
		withheld.Message = fmt.Sprintf("the reason is withheld, because the store cannot record that an agent reads it: %v", err)
		withheld.Hint = ""
		return &withheld
	}
	return stopped
}

// observeMessages returns the call's OnNotify and Client, wrapped so that they add each message of the server to the
// principal's memory before the client gets the message. The end of the call would be too late, because the agent can
// read a message and make another call before then.
func (g *Gateway) observeMessages(p *inflight) (notify func(string, jsontext.Value), client *call.Client) {
	if !g.traceable(p.tool) {
		return p.OnNotify, p.Client
	}
	o := observer(func(params jsontext.Value) error {
		now := time.Now()
		g.session(p.Principal, p.Client, now).Read(params, flow.Source{Call: p.ID, Tool: p.tool.Name, Time: now})
		return nil
	})
	return o.notify(p.OnNotify), o.client(p.Client)
}

// observeUnrequested is like observeMessages, but for messages that belong to no call. For these, markRead has not run.
// If the store cannot record that the principal's agents read text, the client does not get the message.
func (g *Gateway) observeUnrequested(principal string, c *call.Client, src flow.Source) observer {
	return func(params jsontext.Value) error {
		if g.options.Flow == nil || principal == "" {
			return nil
		}
		if err := g.markReader(context.Background(), principal, 0); err != nil {
			return err
		}
		src := src
		src.Time = time.Now()
		g.session(principal, c, src.Time).Read(params, src)
		return nil
	}
}

// observer adds a server's message to the memory of a principal. After an error, the client must not get the message.
type observer func(params jsontext.Value) error

func (o observer) notify(next func(string, jsontext.Value)) func(string, jsontext.Value) {
	if next == nil {
		return nil
	}
	return func(method string, params jsontext.Value) {
		silent := len(params) <= len("{}") || method == "notifications/progress" && rawjson.Lookup(params, "message") == nil
		if silent || o(params) == nil {
			next(method, params)
		}
	}
}

func (o observer) client(c *call.Client) *call.Client {
	if c == nil {
		return nil
	}
	observed := *c
	observed.Notify = o.notify(c.Notify)
	if observed.Asker != nil {
		observed.Asker = observedAsker{o, observed.Asker}
	}
	return &observed
}

// observedAsker adds a server's requests to the memory before it forwards them to the client.
type observedAsker struct {
	observe observer
	call.Asker
}

func (a observedAsker) Ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	if err := a.observe(params); err != nil {
		return nil, err
	}
	return a.Asker.Ask(ctx, method, params)
}

// observeForward adds the answer of a forwarded request to the memory of the request's principal.
func (g *Gateway) observeForward(f *call.Forward, what string, answer jsontext.Value, err error) error {
	if g.options.Flow == nil {
		return nil
	}
	if failed := g.markReader(context.Background(), f.Principal, 0); failed != nil {
		return failed
	}
	if err != nil {
		answer = jsontext.Value(err.Error())
	}
	now := time.Now()
	g.session(f.Principal, f.Client, now).Read(answer, flow.Source{Call: f.ID, Tool: what, Label: labelOf(f.Params), Time: now})
	return nil
}

// labelOf returns the first string among the arguments of a read, shortened. It usually names the file or page that was
// read.
func labelOf(arguments jsontext.Value) (label string) {
	rawjson.Members(arguments, func(_ string, value jsontext.Value) {
		if text, ok := rawjson.Text(value); ok && label == "" && text != "" {
			label = diag.Cut(text, maxLabel)
		}
	})
	return label
}
