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
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

// ConsoleOptions are what the console needs besides the daemon.
type ConsoleOptions struct {
	Store *store.Store
	// Credentials looks up which slots are filled; Vault fills them.
	Credentials *credential.Source
	Vault       credential.Vault
	Operator    guard.Operator
	// PolicyFile is the path of the user's policy.
	PolicyFile string
	// Needs returns an agent's required servers and their grants; nil shows none.
	Needs func(ctx context.Context, m *manifest.Manifest) []console.Need
}

// backend is the daemon as the console sees it.
type backend struct {
	*Daemon
	o *ConsoleOptions
}

var _ console.Backend = backend{}

// consoleUser may use every agent.
var consoleUser = &identity.Principal{Admin: true}

func (b backend) Cards() []console.Card {
	var cards []console.Card
	for _, e := range b.fleet.current.Load().all {
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

func (b backend) Agent(ctx context.Context, name string) *console.Agent {
	e := b.fleet.current.Load().byName[name]
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
	out.Facts, out.Guardrails, out.Watch = factsOf(a), b.guardrailsOf(a), Warnings(a)
	if b.o.Needs != nil && len(a.Requirements) > 0 {
		out.Needs = b.o.Needs(ctx, e.Manifest)
	}
	for _, w := range credential.Wants(a) {
		slot := console.Slot{Ref: w.Ref, Type: string(w.Type), Hosts: w.Hosts, Required: w.Required}
		if s := a.Slot(w.Ref); s != nil {
			slot.Description = cmp.Or(s.Description, s.Label)
		}
		_, where, _, err := b.o.Credentials.For(name).Find(a, w)
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
	// A server knows the schema of a tool that the manifest only names.
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

func (b backend) guardrailsOf(a *agent.Agent) (facts []console.Fact) {
	r := guard.Merge(b.o.Operator, a.Guardrails)
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
	leak := "redacted in every result"
	if r.OnLeak == agent.LeakBlock {
		leak = "a result that contains one is withheld"
	}
	return append(facts, console.Fact{Label: "Secrets", Values: []string{leak}})
}

func (b backend) Call(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	v, trouble := b.fleet.enter(name, consoleUser)
	if trouble != nil {
		return call.Result{}, call.Refuse("act", call.ServerUnavailable, "%v", console.ErrNoAgent)
	}
	defer v.leave()
	wait, cancel := context.WithTimeout(ctx, readyTime)
	_ = v.running.Ready(wait) // the gateway reports an agent that is not ready
	cancel()
	return v.running.Call(ctx, c)
}

// explainer is an agent whose gateway can explain decisions.
type explainer interface {
	Why(ctx context.Context, c *call.Call) (bool, []call.Reason)
}

func (b backend) Why(ctx context.Context, name string, c *call.Call) (bool, []call.Reason, error) {
	v, trouble := b.fleet.enter(name, consoleUser)
	if trouble != nil {
		return false, nil, console.ErrNoAgent
	}
	defer v.leave()
	j, ok := v.running.(explainer)
	if !ok {
		return false, nil, console.ErrNoAgent
	}
	allowed, reasons := j.Why(ctx, c)
	return allowed, reasons, nil
}

// Why asks the agent's gateway.
func (a *hosted) Why(ctx context.Context, c *call.Call) (bool, []call.Reason) {
	g := a.Gateway()
	if g == nil {
		return false, []call.Reason{{Stage: "record", Code: call.StoreUnavailable, Detail: "no store is available to record the call"}}
	}
	return g.Why(ctx, c)
}

func (b backend) SetSecret(name, ref, value string) error {
	e := b.fleet.current.Load().byName[name]
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
		return b.o.Vault.Set(name, ref, s.Of(credential.ID(a)))
	}
	return errors.New("the agent has no credential slot with this name")
}

// shownIntents bounds the intents on the queue page.
const shownIntents = 100

func (b backend) Intents(ctx context.Context) (out []console.Intent, err error) {
	if b.options.Intents == nil {
		return nil, nil
	}
	list, err := b.options.Intents.List(ctx, dispatch.Filter{Limit: shownIntents})
	for _, i := range list {
		one := console.Intent{ID: dispatch.UUID(i.ID), Agent: i.Name, State: string(i.State), Priority: string(i.Priority), Principal: i.Principal, Asked: i.Asked}
		if !i.Ended.IsZero() && !i.Started.IsZero() {
			one.Took = i.Ended.Sub(i.Started)
		}
		out = append(out, one)
	}
	return out, err
}

func (b backend) Policy() (file, text, problem string) {
	raw, err := os.ReadFile(b.o.PolicyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problem = "the policy file cannot be read"
	}
	if b.options.PolicyProblem != nil {
		problem = cmp.Or(b.options.PolicyProblem(), problem)
	}
	return b.o.PolicyFile, string(raw), problem
}

func (b backend) SpentToday(ctx context.Context) (out []console.Spent, err error) {
	err = b.o.Store.DB.Read(ctx, func(tx state.Tx) error {
		all, err := limit.SpentToday(tx, time.Now())
		out = nil
		for _, s := range all {
			out = append(out, console.Spent(s))
		}
		return err
	})
	return out, err
}

func (b backend) Standing(ctx context.Context, p *identity.Principal) error {
	return b.standing(ctx, p)
}

func (b backend) Changed(ctx context.Context) error { return b.o.Store.DB.Changed(ctx) }

// Mark changes with the agents' states, the waiting approvals, the journal and the queue.
func (b backend) Mark(ctx context.Context) string {
	var text strings.Builder
	for _, e := range b.fleet.current.Load().all {
		s, _ := e.state()
		fmt.Fprintf(&text, "%p%s ", e, s)
	}
	if waiting, err := b.options.Approvals.Waiting(ctx); err == nil {
		for _, q := range waiting {
			text.WriteString(q.ID + " ")
		}
	}
	if ends, err := b.o.Store.Journal.Ends(ctx); err == nil {
		text.WriteString(cursor(ends))
	}
	if intents, err := b.Intents(ctx); err == nil {
		for _, i := range intents {
			text.WriteString(i.ID + i.State + " ")
		}
	}
	return text.String()
}

// OpenConsole serves the console until ctx ends.
func (d *Daemon) OpenConsole(ctx context.Context, o *ConsoleOptions) error {
	c, err := console.New(console.Options{
		Context: ctx, Backend: backend{d, o}, Approvals: d.options.Approvals, Journal: o.Store.Journal, SingleUse: o.Store,
		Keys: o.Store.Keys, Version: d.options.Version, Log: d.options.Log,
		Secure: d.options.Cert != "" || d.options.public != nil && d.options.public.Scheme == "https",
	})
	if err != nil {
		return err
	}
	d.console.Store(c)
	return nil
}

// ConsoleLink returns an address that signs a person in once; empty if there is no console. The
// session ends with the principal's key or token.
func (d *Daemon) ConsoleLink(base string, p *identity.Principal) string {
	c := d.console.Load()
	if c == nil {
		return ""
	}
	return strings.TrimSuffix(base, "/") + c.Link(p)
}

func (d *Daemon) makeLink(w http.ResponseWriter, r *http.Request) {
	link := d.ConsoleLink(d.base(r), principalOf(r))
	if link == "" {
		(&problem{status: http.StatusNotFound, Code: "not_found", Message: "this daemon serves no console"}).write(w)
		return
	}
	reply(w, http.StatusOK, map[string]any{"url": link})
}
