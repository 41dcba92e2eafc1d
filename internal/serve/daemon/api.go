package daemon

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
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
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/manifest"
)

// Card is an agent in the list of agents.
type Card struct {
	Name        string        `json:"name"`
	ID          string        `json:"id"`
	DisplayName string        `json:"display_name"`
	Dialect     agent.Dialect `json:"dialect"`
	Digest      string        `json:"digest"`
	State       State         `json:"state"`
	Error       string        `json:"error"`
}

// Card describes an agent that is not running.
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
	return c
}

func (d *Daemon) listAgents(w http.ResponseWriter, r *http.Request) {
	p := principalOf(r)
	cards := []Card{}
	for _, e := range d.fleet.current.Load().all {
		if p.MayUse(e.Name) {
			cards = append(cards, e.card())
		}
	}
	doc := map[string]any{"agents": cards}
	d.addPolicyProblem(doc, r)
	reply(w, http.StatusOK, doc)
}

// detail is one agent with all details.
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

func (d *Daemon) showAgent(w http.ResponseWriter, r *http.Request) {
	e, trouble := d.fleet.see(r.PathValue("name"), principalOf(r))
	if trouble != nil {
		trouble.write(w)
		return
	}
	doc := detail{Card: e.card(), SideEffects: []agent.SideEffect{}, Tools: []toolCard{}, Servers: []serverCard{}, Diagnostics: []manifest.Diagnostic{}}
	if e.Manifest != nil {
		doc.Diagnostics = append(doc.Diagnostics, e.Manifest.Diagnostics...)
		if a := e.Manifest.Agent(); a != nil {
			doc.describe(a)
		}
	}
	for _, p := range e.proofs() {
		doc.Servers = append(doc.Servers, proven(p))
	}
	reply(w, http.StatusOK, doc)
}

func (doc *detail) describe(a *agent.Agent) {
	doc.Description, doc.Version, doc.Kind = a.Description, a.Version, a.Kind
	for i := range a.Tools {
		t := &a.Tools[i]
		c := toolCard{Name: t.Name, Description: t.Description, SideEffect: t.SideEffect, Binding: "none", Callable: a.Callable(t)}
		if t.URI != nil {
			c.URI = t.URI.String()
		}
		if t.Binding != nil {
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

func (d *Daemon) whoami(w http.ResponseWriter, r *http.Request) {
	p := principalOf(r)
	agents := []string{}
	for name, e := range d.fleet.current.Load().byName {
		if p.MayUse(name) && !e.rejected() {
			agents = append(agents, name)
		}
	}
	slices.Sort(agents)
	reply(w, http.StatusOK, map[string]any{"principal": p.Name, "kind": p.Kind, "key_id": p.KeyID, "admin": p.Admin, "agents": agents})
}

// readyTime bounds how long a call waits for an agent that is being proven.
const readyTime = time.Minute

func (d *Daemon) callTool(w http.ResponseWriter, r *http.Request) {
	p := principalOf(r)
	var asked struct {
		Tool           string         `json:"tool"`
		Arguments      jsontext.Value `json:"arguments"`
		IdempotencyKey string         `json:"idempotency_key"`
	}
	if trouble := readJSON(r, &asked); trouble != nil {
		trouble.write(w)
		return
	}
	if asked.Tool == "" {
		badRequest("the request names no tool", `send {"tool": NAME, "arguments": {…}}`).write(w)
		return
	}
	if len(asked.Arguments) == 0 {
		asked.Arguments = jsontext.Value("{}")
	}
	v, trouble := d.fleet.enter(r.PathValue("name"), p)
	if trouble != nil {
		trouble.write(w)
		return
	}
	defer v.leave()
	wait, cancel := context.WithTimeout(r.Context(), readyTime)
	_ = v.running.Ready(wait) // the gateway reports an agent that is not ready
	cancel()
	c := &call.Call{Tool: asked.Tool, Arguments: asked.Arguments, Principal: p.Name, IdempotencyKey: asked.IdempotencyKey}
	result, err := v.running.Call(r.Context(), c)
	if err != nil {
		refusedProblem(call.AsRefusal("act", err), c.ID).write(w)
		return
	}
	reply(w, http.StatusOK, result.Document(c.ID))
}

func readJSON(r *http.Request, into any) *problem {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return bodyProblem(err)
	}
	// Strict: no duplicate and no unknown members, exact names.
	if err := jsonv2.Unmarshal(body, into, jsonv2.RejectUnknownMembers(true)); err != nil {
		return badRequest(wrongJSON(err), "see GET /api/v1/openapi.json")
	}
	return nil
}

// wrongJSON names the invalid member of a request.
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

func (d *Daemon) reload(w http.ResponseWriter, r *http.Request) {
	c, err := d.Reload(r.Context())
	if late, ok := errors.AsType[*QueueError](err); ok {
		(&problem{
			status: http.StatusServiceUnavailable, Code: "unavailable", Message: late.Error(),
			Hint: "the agents were replaced; reload again when the queue is available",
		}).write(w)
		return
	}
	if err != nil {
		status := http.StatusConflict
		if errors.Is(err, errLeaving) {
			status = http.StatusServiceUnavailable
		}
		(&problem{
			status: status, Code: "reload_failed", Message: err.Error(),
			Hint: "nothing was changed; fix or remove the cause, then reload again",
		}).write(w)
		return
	}
	reply(w, http.StatusOK, c)
}

// Journal is the audit log as the API reads it.
type Journal interface {
	Show(ctx context.Context, f journal.Filter) ([]journal.Entry, error)
	Ends(ctx context.Context) (journal.Ends, error)
	Checkpoint(ctx context.Context) ([]byte, error)
	Key() journal.Key
	// HandedOver returns why this process can no longer record calls.
	HandedOver() error
}

const (
	maxRecords = 1000
	// maxPages bounds how much of the journal one request reads for a caller who may see little of
	// it.
	maxPages = 20
)

func (d *Daemon) showJournal(w http.ResponseWriter, r *http.Request) {
	f, trouble := filterOf(r)
	if trouble != nil {
		trouble.write(w)
		return
	}
	p := principalOf(r)
	if !p.Admin {
		f.Principal = p.Name // other callers' records are for administrators
	}
	want := f.Limit
	if f.Before == nil {
		ends, err := d.options.Journal.Ends(r.Context())
		if err != nil {
			d.unavailable(w, "the journal cannot be read", err)
			return
		}
		f.Before = ends
	}
	records := []journal.Entry{}
	more := true
	for page := 0; page < maxPages && more && len(records) < want; page++ {
		f.Limit = want - len(records)
		if !p.SeesAll() {
			f.Limit = maxRecords // few of them may be shown
		}
		found, err := d.options.Journal.Show(r.Context(), f)
		if err != nil {
			d.unavailable(w, "the journal cannot be read", err)
			return
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
			// Only an admin sees records without an agent.
			if p.Admin || !e.Erased && p.MayUse(e.Agent) {
				records = append(records, e)
			}
		}
	}
	next := ""
	if more {
		next = cursor(f.Before)
	}
	reply(w, http.StatusOK, map[string]any{"records": records, "next": next})
}

// filterOf parses the query parameters.
func filterOf(r *http.Request) (journal.Filter, *problem) {
	q := r.URL.Query()
	known := []string{"agent", "tool", "principal", "call", "code", "decision", "since", "until", "unknown", "limit", "cursor"}
	for name := range q {
		if !slices.Contains(known, name) {
			return journal.Filter{}, badRequest("unknown filter "+strconv.Quote(name), "use "+strings.Join(known, ", "))
		}
	}
	f := journal.Filter{
		Agent: q.Get("agent"), Tool: q.Get("tool"), Principal: q.Get("principal"), Call: q.Get("call"), Code: q.Get("code"),
		Decision: journal.Decision(q.Get("decision")), Unknown: q.Get("unknown") == "true", Limit: 100,
	}
	var err error
	if s := q.Get("limit"); s != "" {
		if f.Limit, err = strconv.Atoi(s); err != nil || f.Limit < 1 || f.Limit > maxRecords {
			return f, badRequest("limit must be a number from 1 to "+strconv.Itoa(maxRecords), "")
		}
	}
	for name, t := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if s := q.Get(name); s != "" {
			if *t, err = time.Parse(time.RFC3339, s); err != nil {
				return f, badRequest(name+" is not a valid time", "write it as 2026-01-31T12:00:00Z")
			}
		}
	}
	if s := q.Get("cursor"); s != "" {
		var ok bool
		if f.Before, ok = parseCursor(s); !ok {
			return f, badRequest("the cursor is invalid", "use the value of next unchanged")
		}
	}
	return f, nil
}

// cursor encodes the end of a journal page: log:seq for each log.
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

func (d *Daemon) checkpoint(w http.ResponseWriter, r *http.Request) {
	if !d.seesAll(w, r) {
		return
	}
	note, err := d.options.Journal.Checkpoint(r.Context())
	if err != nil {
		d.unavailable(w, "the journal cannot be read", err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"checkpoint": string(note), "key": d.options.Journal.Key().String()})
}
