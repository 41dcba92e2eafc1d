package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

// Room is what the console shows besides what the API does.
type Room struct {
	Books *store.Store
	// Credentials tell which slots are filled, and Vault fills them.
	Credentials *credential.Source
	Vault       credential.Vault
	Operator    guard.Operator
	// PolicyFile is where the user's policy lies.
	PolicyFile string
	// Needs tells what the requirements of an agent come to, and what of them is
	// granted; nil if nobody can.
	Needs func(ctx context.Context, m *manifest.Manifest) []console.Need
}

// house is the daemon as the console sees it.
type house struct {
	*Daemon
	room *Room
}

var _ console.House = house{}

// everything is what a person at the console may see.
var everything = &identity.Principal{Admin: true}

func (h house) Cards() []console.Card {
	var cards []console.Card
	for _, e := range h.fleet.current.Load().all {
		cards = append(cards, cardOf(e))
	}
	return cards
}

func cardOf(e *entry) console.Card {
	c := e.card()
	out := console.Card{Name: c.Name, Title: c.DisplayName, ID: c.ID, Dialect: string(c.Dialect), State: string(c.State), Error: c.Error}
	if e.Manifest == nil || e.Manifest.Agent() == nil {
		return out
	}
	a := e.Manifest.Agent()
	out.Description, out.Tools = a.Description, len(a.Tools)
	for _, s := range a.Reach().SideEffects {
		out.SideEffects = append(out.SideEffects, string(s))
	}
	return out
}

func (h house) Agent(ctx context.Context, name string) *console.Agent {
	e := h.fleet.current.Load().byName[name]
	if e == nil {
		return nil
	}
	out := &console.Agent{Card: cardOf(e)}
	if e.Manifest == nil {
		return out
	}
	out.Path, out.Digest, out.Problems = e.Manifest.Path, e.Manifest.Digest(), problemsOf(e.Manifest)
	a := e.Manifest.Agent()
	if a == nil {
		return out
	}
	out.Version, out.Kind = a.Version, string(a.Kind)
	proofs := e.proofs()
	for i := range a.Tools {
		out.Tools = append(out.Tools, toolOf(a, &a.Tools[i], proofs))
	}
	for _, p := range proofs {
		out.Servers = append(out.Servers, serverOf(p))
	}
	out.Facts, out.Rails, out.Watch = factsOf(a), h.railsOf(a), LookTwice(a)
	if h.room.Needs != nil && len(a.Requirements) > 0 {
		out.Needs = h.room.Needs(ctx, e.Manifest)
	}
	for _, w := range credential.Wants(a) {
		slot := console.Slot{Ref: w.Ref, Type: string(w.Type), Hosts: w.Hosts, Required: w.Required}
		if s := a.Slot(w.Ref); s != nil {
			slot.Description = cmp.Or(s.Description, s.Label)
		}
		_, where, _, err := h.room.Credentials.For(name).Find(a, w)
		slot.Set = err == nil && where != ""
		out.Slots = append(out.Slots, slot)
	}
	return out
}

func problemsOf(m *manifest.Manifest) (out []console.Problem) {
	for _, d := range m.Diagnostics {
		p := console.Problem{Code: d.Code, Severity: d.Severity.String(), Message: d.Message, Hint: d.Hint, Line: d.Line, Column: d.Column}
		if m.Source != nil && d.Line > 0 {
			f := m.Source.Frame(d)
			p.Frame = f.Text + "\n" + strings.Repeat(" ", f.Before) + strings.Repeat("^", max(1, f.Marked))
		}
		out = append(out, p)
	}
	return out
}

func toolOf(a *agent.Agent, t *agent.Tool, proofs []toolserver.Proof) console.Tool {
	out := console.Tool{
		Name: t.Name, Description: t.Description, SideEffect: string(t.SideEffect), Binding: "none", Callable: a.Callable(t),
		Approval: t.Policy.HumanApproval, Limits: limitsOf(t), Schema: json.RawMessage(t.InputSchema),
	}
	if t.URI != nil {
		out.URI = t.URI.String()
	}
	if t.Binding != nil {
		out.Binding = t.Binding.Kind()
	}
	// The server knows the schema of a tool that its manifest only names.
	if on, ok := t.Binding.(agent.OnServer); ok {
		for _, p := range proofs {
			if p.Alias != on.Alias {
				continue
			}
			var d struct {
				Description string          `json:"description"`
				InputSchema json.RawMessage `json:"inputSchema"`
			}
			if json.Unmarshal(p.Tools[t.Name], &d) == nil {
				out.Description = cmp.Or(out.Description, d.Description)
				if len(out.Schema) == 0 {
					out.Schema = d.InputSchema
				}
			}
		}
	}
	return out
}

func limitsOf(t *agent.Tool) string {
	var parts []string
	if r := t.Policy.Rate; r != nil {
		parts = append(parts, "at most "+r.String())
	}
	if c := t.Policy.Spend; c != nil {
		if c.PerCall != "" {
			parts = append(parts, strings.TrimSpace("up to "+c.PerCall+" "+c.Currency)+" a call")
		}
		if c.PerDay != "" {
			parts = append(parts, strings.TrimSpace(c.PerDay+" "+c.Currency)+" a day")
		}
	}
	return strings.Join(parts, ", ")
}

func serverOf(p toolserver.Proof) console.Server {
	out := console.Server{
		Alias: p.Alias, OK: p.OK, Protocol: p.Protocol, Digest: string(p.Package.Status), Contained: p.Contained,
		Missing: p.Missing, Unexpected: slices.Concat(p.Unexpected, p.Twice), Warnings: p.Warnings,
	}
	if p.Refusal != nil {
		out.Code, out.Message = string(p.Refusal.Code), p.Refusal.Message
	}
	for _, d := range p.Changed {
		drift := console.Drift{Tool: cmp.Or(d.Tool, "the server itself")}
		for _, c := range d.Changes {
			drift.Was += fmt.Sprintf("%s: %s\n", c.Field, c.Old)
			drift.Is += fmt.Sprintf("%s: %s\n", c.Field, c.New)
		}
		out.Changed = append(out.Changed, drift)
	}
	return out
}

func (h house) railsOf(a *agent.Agent) (facts []console.Fact) {
	r := guard.Merge(h.room.Operator, a.Guardrails)
	if r.MaxLength > 0 {
		facts = append(facts, console.Fact{Label: "Arguments", Values: []string{fmt.Sprintf("at most %d bytes", r.MaxLength)}})
	}
	deny := r.Input.Deny
	if r.Input.DenyDefaults {
		deny = append(slices.Clone(deny), "the patterns that ship with ambit")
	}
	if len(deny) > 0 {
		facts = append(facts, console.Fact{Label: "Denied", Values: deny})
	}
	if len(r.Input.PII) > 0 {
		facts = append(facts, console.Fact{Label: "Redacted", Values: r.Input.PII})
	}
	if len(r.Schemas) > 0 {
		facts = append(facts, console.Fact{Label: "Results", Values: []string{"checked against a schema"}})
	}
	leak := "taken out of every result"
	if r.OnLeak == agent.LeakBlock {
		leak = "a result that holds one is withheld"
	}
	return append(facts, console.Fact{Label: "Secrets", Values: []string{leak}})
}

func (h house) Call(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	v, trouble := h.fleet.enter(name, everything)
	if trouble != nil {
		return call.Result{}, call.Refuse("act", call.ServerUnavailable, "%v", console.ErrNoAgent)
	}
	defer v.leave()
	wait, cancel := context.WithTimeout(ctx, readyTime)
	_ = v.running.Ready(wait) // if it is not, the door says so
	cancel()
	return v.running.Call(ctx, c)
}

// judge is an agent whose door can be asked.
type judge interface {
	Why(ctx context.Context, c *call.Call) (bool, []call.Reason)
}

func (h house) Why(ctx context.Context, name string, c *call.Call) (bool, []call.Reason, error) {
	v, trouble := h.fleet.enter(name, everything)
	if trouble != nil {
		return false, nil, console.ErrNoAgent
	}
	defer v.leave()
	j, ok := v.running.(judge)
	if !ok {
		return false, nil, console.ErrNoAgent
	}
	allowed, reasons := j.Why(ctx, c)
	return allowed, reasons, nil
}

// Why asks the agent's door.
func (a *hosted) Why(ctx context.Context, c *call.Call) (bool, []call.Reason) {
	door := a.Gateway()
	if door == nil {
		return false, []call.Reason{{Stage: "record", Code: call.StoreUnavailable, Detail: "there is no store to record the call in"}}
	}
	return door.Why(ctx, c)
}

func (h house) KeepSecret(_ context.Context, name, ref, value string) error {
	e := h.fleet.current.Load().byName[name]
	if e == nil || e.Manifest == nil || e.Manifest.Agent() == nil {
		return console.ErrNoAgent
	}
	a := e.Manifest.Agent()
	for _, w := range credential.Wants(a) {
		if w.Ref != ref {
			continue
		}
		s, err := credential.New(w.Type, value, w.Hosts)
		if err != nil {
			return err
		}
		return h.room.Vault.Set(name, ref, s.Of(credential.ID(a)))
	}
	return errors.New("the agent has no slot of that name")
}

func (h house) Approvals(ctx context.Context) ([]*approval.Question, error) {
	return h.options.Approvals.List(ctx)
}

func (h house) Waiting(ctx context.Context) (int, error) {
	waiting, err := h.options.Approvals.Waiting(ctx)
	return len(waiting), err
}

func (h house) Decide(ctx context.Context, id string, yes bool, who, reason string) error {
	return h.options.Approvals.Decide(ctx, id, yes, who, reason)
}

func (h house) Show(ctx context.Context, f journal.Filter) ([]journal.Entry, error) {
	return h.room.Books.Journal.Show(ctx, f)
}

func (h house) Ends(ctx context.Context) (journal.Ends, error) { return h.room.Books.Journal.Ends(ctx) }

func (h house) Follow(ctx context.Context, from journal.Ends, f journal.Filter, each func(journal.Entry) error) error {
	return h.room.Books.Journal.Follow(ctx, from, f, each)
}

func (h house) Prove(ctx context.Context, log, seq int64) (*journal.Proof, error) {
	return h.room.Books.Journal.Prove(ctx, log, seq)
}

// shownIntents is how many intents the queue shows.
const shownIntents = 100

func (h house) Intents(ctx context.Context) (out []console.Intent, err error) {
	if h.options.Intents == nil {
		return nil, nil
	}
	list, err := h.options.Intents.List(ctx, dispatch.Filter{Limit: shownIntents})
	for _, i := range list {
		one := console.Intent{ID: dispatch.UUID(i.ID), Agent: i.Name, State: string(i.State), Priority: string(i.Priority), Principal: i.Principal, Asked: i.Asked}
		if !i.Ended.IsZero() && !i.Started.IsZero() {
			one.Took = i.Ended.Sub(i.Started)
		}
		out = append(out, one)
	}
	return out, err
}

func (h house) Policy() (file, text, problem string) {
	raw, err := os.ReadFile(h.room.PolicyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problem = "the file cannot be read"
	}
	if h.options.PolicyProblem != nil {
		problem = cmp.Or(h.options.PolicyProblem(), problem)
	}
	return h.room.PolicyFile, string(raw), problem
}

func (h house) Spent(ctx context.Context) (out []console.Spent, err error) {
	err = h.room.Books.DB.Read(ctx, func(tx state.Tx) error {
		all, err := limit.SpentToday(tx, time.Now())
		out = nil
		for _, s := range all {
			out = append(out, console.Spent(s))
		}
		return err
	})
	return out, err
}

func (h house) Spend(ctx context.Context, id string, until time.Time) (bool, error) {
	return h.room.Books.Spend(ctx, id, until)
}

func (h house) IsSpent(ctx context.Context, id string) (bool, error) {
	return h.room.Books.Spent(ctx, id)
}

func (h house) Standing(ctx context.Context, p *identity.Principal) error { return h.standing(ctx, p) }

func (h house) Changed(ctx context.Context) error { return h.room.Books.DB.Changed(ctx) }

// Mark tells states, approvals and records of one moment from those of another.
func (h house) Mark(ctx context.Context) string {
	var b strings.Builder
	for _, e := range h.fleet.current.Load().all {
		s, _ := e.state()
		fmt.Fprintf(&b, "%p%s ", e, s)
	}
	if waiting, err := h.options.Approvals.Waiting(ctx); err == nil {
		for _, q := range waiting {
			b.WriteString(q.ID + " ")
		}
	}
	if ends, err := h.room.Books.Journal.Ends(ctx); err == nil {
		b.WriteString(cursor(ends))
	}
	if intents, err := h.Intents(ctx); err == nil {
		for _, i := range intents {
			b.WriteString(i.ID + i.State + " ")
		}
	}
	return b.String()
}

// faced is a daemon's console, once it has one.
type faced struct {
	of atomic.Pointer[console.Console]
}

// OpenConsole gives the daemon its face for people, until ctx ends.
func (d *Daemon) OpenConsole(ctx context.Context, room *Room) error {
	c, err := console.New(console.Options{
		Context: ctx, House: house{d, room}, Keys: room.Books.Keys, Version: d.options.Version, Log: d.options.Log,
		Secure: d.options.Cert != "" || d.options.public != nil && d.options.public.Scheme == "https",
	})
	if err != nil {
		return err
	}
	d.console.of.Store(c)
	return nil
}

// ConsoleLink is an address, good once, by which a person signs in, for as long as
// what makes them who they are is good.
func (d *Daemon) ConsoleLink(base string, p *identity.Principal) string {
	c := d.console.of.Load()
	if c == nil {
		return ""
	}
	return strings.TrimSuffix(base, "/") + c.Link(p)
}

// makeLink answers whoever has an admin key with such an address.
func (d *Daemon) makeLink(w http.ResponseWriter, r *http.Request) {
	link := d.ConsoleLink(d.base(r), principalOf(r))
	if link == "" {
		(&problem{status: http.StatusNotFound, Code: "not_found", Message: "this daemon has no console"}).write(w)
		return
	}
	reply(w, http.StatusOK, map[string]any{"url": link})
}
