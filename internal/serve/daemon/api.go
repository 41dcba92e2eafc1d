package daemon

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/manifest"
)

// Card is the short description of an agent in the list of agents.
type Card struct {
	Name        string        `json:"name"`
	ID          string        `json:"id"`
	DisplayName string        `json:"display_name"`
	Dialect     agent.Dialect `json:"dialect"`
	Digest      string        `json:"digest"`
	State       State         `json:"state"`
	Error       string        `json:"error"`
	// Refused lists the recent denials of the sandboxes of the agent's servers.
	Refused []toolserver.Denial `json:"refused,omitempty"`
}

// Card describes an agent that is not running. The State in the result is Rejected or empty.
func (f *Found) Card() Card {
	c := Card{Name: f.Name, DisplayName: f.Name}
	if f.Problem != nil {
		c.State, c.Error = Rejected, f.Problem.Error()
	}
	if f.Manifest == nil {
		return c
	}
	c.Dialect, c.Digest = f.Manifest.Dialect, f.Manifest.Digest()
	if a := f.Manifest.Agent(); a != nil {
		c.ID, c.DisplayName = a.ID, a.Name
	}
	return c
}

func (e *entry) card() Card {
	c := e.Card()
	c.State, c.Error = e.state()
	c.Refused = e.denials()
	return c
}

func (d *Daemon) listAgents(r *http.Request) (any, *problem) {
	p := principalOf(r)
	cards := []Card{}
	storeProblem := d.storeProblem()
	for _, e := range d.fleet.current.Load().all {
		if p.MayUse(e.Name) {
			cards = append(cards, e.card().within(storeProblem))
		}
	}
	doc := map[string]any{"agents": cards}
	if storeProblem != nil && p.Admin {
		doc["store"] = storeProblem.Error()
	}
	d.addPolicyProblem(doc, r)
	return doc, nil
}

// detail is the full description of one agent.
type detail struct {
	Card
	Description string                `json:"description"`
	Version     string                `json:"version"`
	Kind        agent.Kind            `json:"kind"`
	SideEffects []agent.SideEffect    `json:"side_effects"`
	Tools       []toolCard            `json:"tools"`
	Servers     []serverCard          `json:"servers"`
	Diagnostics []manifest.Diagnostic `json:"diagnostics"`
}

type toolCard struct {
	Name        string           `json:"name"`
	URI         string           `json:"uri"`
	Description string           `json:"description"`
	SideEffect  agent.SideEffect `json:"side_effect"`
	Binding     string           `json:"binding"`
	Callable    bool             `json:"callable"`
}

type serverCard struct {
	Alias         string                   `json:"alias"`
	OK            bool                     `json:"ok"`
	Error         string                   `json:"error"`
	Message       string                   `json:"message"`
	Missing       []string                 `json:"missing"`
	Unexpected    []string                 `json:"unexpected"`
	Changed       []string                 `json:"changed"`
	PackageDigest toolserver.PackageDigest `json:"package_digest"`
	Protocol      string                   `json:"protocol"`
	Contained     bool                     `json:"contained"`
	Warnings      []string                 `json:"warnings"`
}

func (d *Daemon) showAgent(r *http.Request) (any, *problem) {
	e, trouble := d.fleet.lookup(r.PathValue("name"), principalOf(r))
	if trouble != nil {
		return nil, trouble
	}
	doc := detail{
		Card: e.card().within(d.storeProblem()), SideEffects: []agent.SideEffect{}, Tools: []toolCard{}, Servers: []serverCard{},
		Diagnostics: []manifest.Diagnostic{},
	}
	var hidden map[string]bool
	if e.Manifest != nil {
		doc.Diagnostics = append(doc.Diagnostics, e.Manifest.Diagnostics...)
		if a := e.Manifest.Agent(); a != nil {
			hidden = d.hiddenTools(a, e.Name, principalOf(r))
			doc.describe(a, hidden)
		}
	}
	for _, p := range e.proofs() {
		card := proven(p)
		card.Missing = slices.DeleteFunc(card.Missing, func(tool string) bool { return hidden[tool] })
		card.Changed = slices.DeleteFunc(card.Changed, func(tool string) bool { return hidden[tool] })
		doc.Servers = append(doc.Servers, card)
	}
	return doc, nil
}

// hiddenTools returns the names of the tools that the policy denies to a principal, regardless of the arguments.
// Nothing is hidden from an administrator.
func (d *Daemon) hiddenTools(a *agent.Agent, name string, p *identity.Principal) map[string]bool {
	if d.options.Hidden == nil || p.Admin {
		return nil
	}
	names := map[string]bool{}
	for i, hidden := range d.options.Hidden(a, name, &call.Call{Principal: p.Name, Attributes: p.Attributes()}) {
		if hidden {
			names[a.Tools[i].Name] = true
		}
	}
	return names
}

func (doc *detail) describe(a *agent.Agent, hidden map[string]bool) {
	doc.Description, doc.Version, doc.Kind = a.Description, a.Version, a.Kind
	for i := range a.Tools {
		t := &a.Tools[i]
		if hidden[t.Name] {
			continue
		}
		c := toolCard{Name: t.Name, Description: t.Description, SideEffect: t.SideEffect, Callable: a.Callable(t)}
		if t.URI != nil {
			c.URI = t.URI.String()
		}
		if c.Binding = "none"; t.Binding != nil {
			c.Binding = t.Binding.Kind()
		}
		if c.Callable && !slices.Contains(doc.SideEffects, t.SideEffect) {
			doc.SideEffects = append(doc.SideEffects, t.SideEffect)
		}
		doc.Tools = append(doc.Tools, c)
	}
	slices.SortFunc(doc.SideEffects, func(a, b agent.SideEffect) int { return a.Rank() - b.Rank() })
}

func proven(p toolserver.Proof) serverCard {
	c := serverCard{
		Alias: p.Alias, OK: p.OK, PackageDigest: p.Package, Protocol: p.Protocol, Contained: p.Contained,
		Missing: append([]string{}, p.Missing...), Unexpected: append(append([]string{}, p.Unexpected...), p.Twice...),
		Changed: []string{}, Warnings: append([]string{}, p.Warnings...),
	}
	for _, d := range p.Changed {
		c.Changed = append(c.Changed, d.Tool)
	}
	if p.Refusal != nil {
		c.Error, c.Message = string(p.Refusal.Code), p.Refusal.Message
	}
	return c
}

func (d *Daemon) whoami(r *http.Request) (any, *problem) {
	p := principalOf(r)
	agents := []string{}
	for name, e := range d.fleet.current.Load().byName {
		if p.MayUse(name) && !e.rejected() {
			agents = append(agents, name)
		}
	}
	slices.Sort(agents)
	return map[string]any{
		"principal": p.Name, "kind": p.Kind, "key_id": p.KeyID, "admin": p.Admin, "agents": agents,
		"issuer": p.Issuer, "groups": append([]string{}, p.Groups...),
	}, nil
}

func (d *Daemon) callTool(r *http.Request) (any, *problem) { return d.callAs(r, r.PathValue("name")) }

// callAs makes the call in the body of a request. The caller is the principal of the request.
func (d *Daemon) callAs(r *http.Request, name string) (any, *problem) {
	var asked struct {
		Tool           string         `json:"tool"`
		Arguments      jsontext.Value `json:"arguments"`
		IdempotencyKey string         `json:"idempotency_key"`
	}
	if trouble := readJSON(r, &asked); trouble != nil {
		return nil, trouble
	}
	if asked.Tool == "" {
		return nil, badRequest("the request does not specify a tool", `send {"tool": NAME, "arguments": {…}}`)
	}
	if len(asked.Arguments) == 0 {
		asked.Arguments = jsontext.Value("{}")
	}
	p := principalOf(r)
	c := &call.Call{
		Tool: asked.Tool, Arguments: asked.Arguments, Principal: p.Name, Attributes: p.Attributes(), IdempotencyKey: asked.IdempotencyKey,
	}
	v, trouble := d.enter(r, name)
	if trouble != nil {
		return nil, trouble
	}
	defer v.leave()
	result, err := v.call(r.Context(), c)
	if err != nil {
		return nil, refusedProblem(call.AsRefusal("act", err), c.ID)
	}
	return result.Document(c.ID), nil
}

func readJSON(r *http.Request, into any) *problem {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return bodyProblem(err)
	}
	// The decoder rejects duplicate and unknown members. Member names are case-sensitive.
	if err := jsonv2.Unmarshal(body, into, jsonv2.RejectUnknownMembers(true)); err != nil {
		return badRequest(wrongJSON(err), "compare the request with the API description: GET /api/v1/openapi.json")
	}
	return nil
}

// wrongJSON returns the message for an invalid request body. If possible, the message contains the name of the invalid
// member.
func wrongJSON(err error) string {
	at, ok := errors.AsType[*jsonv2.SemanticError](err)
	switch {
	case ok && errors.Is(err, jsonv2.ErrUnknownName):
		return "the request has an unknown member: " + diag.Quote(string(at.JSONPointer))
	case ok && at.JSONPointer != "":
		return "a member of the request has the wrong type: " + diag.Quote(string(at.JSONPointer))
	}
	return "the request body is not the expected JSON object"
}

func (d *Daemon) reload(r *http.Request) (any, *problem) {
	c, err := d.Reload(r.Context())
	if late, ok := errors.AsType[*QueueError](err); ok {
		const hint = "the agents were replaced; reload again when the queue is available"
		return nil, failure("unavailable", late.Error(), hint)
	}
	if err != nil {
		p := failure("reload_failed", err.Error(), "nothing was changed; fix the problem, then reload again")
		if errors.Is(err, errLeaving) {
			p.status = http.StatusServiceUnavailable
		}
		return nil, p
	}
	return c, nil
}

// Journal is the part of the audit journal that the API uses.
type Journal interface {
	Show(ctx context.Context, f journal.Filter) ([]journal.Entry, error)
	Ends(ctx context.Context) (journal.Ends, error)
	Checkpoint(ctx context.Context) ([]byte, error)
	Key() journal.Key
	// HandedOver returns an error if this process has detected that the root key was rotated after the process started.
	// The process can then no longer record calls.
	HandedOver() error
}

const (
	maxRecords = 1000
	// maxPages is the maximum number of journal pages that one request reads. Without this limit, a caller who is allowed
	// to see only a few records could make one request read the whole journal.
	maxPages = 20
)

func (d *Daemon) showJournal(r *http.Request) (any, *problem) {
	f, trouble := filterOf(r)
	if trouble != nil {
		return nil, trouble
	}
	p := principalOf(r)
	if !p.Admin {
		f.Principal = p.Name // only administrators see the records of other principals
	}
	want := f.Limit
	if f.Before == nil {
		ends, err := d.options.Journal.Ends(r.Context())
		if err != nil {
			return nil, d.unavailable("the journal cannot be read", err)
		}
		f.Before = ends
	}
	records := []journal.Entry{}
	more := true
	for page := 0; page < maxPages && more && len(records) < want; page++ {
		f.Limit = want - len(records)
		if !p.SeesAll() {
			f.Limit = maxRecords // the loop below may skip many of these records
		}
		found, err := d.options.Journal.Show(r.Context(), f)
		if err != nil {
			return nil, d.unavailable("the journal cannot be read", err)
		}
		more = len(found) == f.Limit && !f.Unknown
		f.Before = maps.Clone(f.Before)
		for _, e := range found {
			if len(records) == want {
				more = true
				break
			}
			if e.Seq >= 0 {
				f.Before[e.Log] = min(f.Before[e.Log], e.Seq)
			}
			// An erased record no longer contains the name of its agent, so only administrators see it.
			if p.Admin || !e.Erased && p.MayUse(e.Agent) {
				records = append(records, e)
			}
		}
	}
	next := ""
	if more {
		next = cursor(f.Before)
	}
	return map[string]any{"records": records, "next": next}, nil
}

// filterOf parses the query parameters of a journal request.
func filterOf(r *http.Request) (f journal.Filter, trouble *problem) {
	q, n, trouble := listQuery(r, maxRecords, map[string]*time.Time{"since": &f.Since, "until": &f.Until},
		"agent", "tool", "principal", "call", "code", "decision", "since", "until", "unknown", "limit", "cursor")
	if trouble != nil {
		return f, trouble
	}
	f.Agent, f.Tool, f.Principal = q.Get("agent"), q.Get("tool"), q.Get("principal")
	f.Call, f.Code, f.Decision = q.Get("call"), q.Get("code"), journal.Decision(q.Get("decision"))
	f.Unknown, f.Limit = q.Get("unknown") == "true", n
	if s := q.Get("cursor"); s != "" {
		var ok bool
		if f.Before, ok = parseCursor(s); !ok {
			return f, badRequest("the cursor is invalid", `send the value of "next" from the previous response unchanged`)
		}
	}
	return f, nil
}

// listQuery parses the query parameters of a request for a list. It returns the parameters and the value of "limit".
// The parameter most is the largest allowed limit, and known lists the allowed query parameters. The parameter times
// maps each query parameter with a time to the variable in which listQuery stores the parsed time.
func listQuery(r *http.Request, most int, times map[string]*time.Time, known ...string) (url.Values, int, *problem) {
	q, limit := r.URL.Query(), 100
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, 0, badRequest("unknown filter "+strconv.Quote(name), "use "+strings.Join(known, ", "))
		}
	}
	var err error
	if s := q.Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 || limit > most {
			return nil, 0, badRequest("\"limit\" must be a number from 1 to "+strconv.Itoa(most), "")
		}
	}
	for name, t := range times {
		if s := q.Get(name); s != "" {
			if *t, err = time.Parse(time.RFC3339, s); err != nil {
				return nil, 0, badRequest(name+" is not a valid time", "use the format 2026-01-31T12:00:00Z")
			}
		}
	}
	return q, limit, nil
}

// cursor encodes a position in the journal. The result contains "log:seq" for each log.
func cursor(ends journal.Ends) string {
	var parts []string
	for _, log := range slices.Sorted(maps.Keys(ends)) {
		parts = append(parts, strconv.FormatInt(log, 10)+":"+strconv.FormatInt(ends[log], 10))
	}
	return strings.Join(parts, ",")
}

func parseCursor(s string) (journal.Ends, bool) {
	ends := journal.Ends{}
	for part := range strings.SplitSeq(s, ",") {
		a, b, _ := strings.Cut(part, ":")
		log, err1 := strconv.ParseInt(a, 10, 64)
		size, err2 := strconv.ParseInt(b, 10, 64)
		if err1 != nil || err2 != nil || log < 0 || size < 0 {
			return nil, false
		}
		ends[log] = size
	}
	return ends, true
}

func (d *Daemon) checkpoint(r *http.Request) (any, *problem) {
	if trouble := requireAllAgents(r); trouble != nil {
		return nil, trouble
	}
	note, err := d.options.Journal.Checkpoint(r.Context())
	if err != nil {
		return nil, d.unavailable("the journal cannot be read", err)
	}
	return map[string]any{"checkpoint": string(note), "key": d.options.Journal.Key().String()}, nil
}
