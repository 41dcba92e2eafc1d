package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

// ConsoleOptions contains what the console needs in addition to the daemon.
type ConsoleOptions struct {
	Store *store.Store
	// Credentials is used to check which credential slots are set. Vault stores new credentials.
	Credentials *credential.Source
	Vault       credential.Vault
	Operator    guard.Operator
	// PolicyFile is the path of the user's policy file.
	PolicyFile string
	// Inspect returns what "ambit inspect" shows about an agent. If Inspect is nil, the console shows only what the
	// manifest says.
	Inspect func(ctx context.Context, m *manifest.Manifest) (console.Inspection, error)
	// Why answers like "ambit why". If Why is nil, the console explains no calls.
	Why func(ctx context.Context, m *manifest.Manifest, c *call.Call) (*console.Verdict, error)
}

// backend implements [console.Backend] for a daemon.
type backend struct {
	*Daemon
	o *ConsoleOptions
}

var _ console.Backend = backend{}

// consoleUser is the principal of requests that have a console session or a page ticket instead of an API key. This
// principal can use every agent.
var consoleUser = &identity.Principal{Admin: true}

func (b backend) Cards() []console.Card {
	var cards []console.Card
	for _, e := range b.fleet.current.Load().all {
		cards = append(cards, cardOf(e))
	}
	return cards
}

func cardOf(e *entry) console.Card {
	c := console.Card{Name: e.Name, Title: e.Name, Manifest: e.Manifest, Model: e.agent()}
	state, why := e.state()
	if c.State, c.Error = string(state), why; c.Model != nil {
		c.Title = c.Model.Name
	}
	return c
}

func (b backend) Agent(ctx context.Context, name string) *console.Agent {
	e := b.fleet.current.Load().byName[name]
	if e == nil {
		return nil
	}
	out := &console.Agent{Card: cardOf(e)}
	a := out.Model
	if a == nil {
		return out
	}
	out.Servers, out.Refused, out.Guardrails = e.proofs(), e.denials(), b.guardrailsOf(a)
	out.Inspection = b.inspect(ctx, e.Manifest)
	a = out.Resolved
	served := gateway.ServedNames(a)
	for i := range a.Tools {
		t := &a.Tools[i]
		out.Tools = append(out.Tools, console.Tool{
			Tool: withServerInfo(t, out.Servers), Served: served(t),
			Callable: a.Callable(t) && (out.Refuses == nil || !out.Refuses(t)),
		})
	}
	out.Facts = append(out.Facts, Limits(a)...)
	if list, err := grant.Of(b.o.Store).List(ctx); err != nil {
		out.Watch = append(out.Watch, "the grants cannot be read: "+err.Error())
	} else {
		out.Facts = append(out.Facts, Granted(GrantsFor(a, list))...)
	}
	for _, w := range credential.References(a) {
		slot := console.Slot{Reference: w}
		if s := a.Slot(w.Ref); s != nil {
			slot.Label, slot.Description = s.Label, s.Description
		}
		_, where, _, err := b.o.Credentials.For(name).Find(a, w)
		slot.Set = err == nil && where != ""
		out.Slots = append(out.Slots, slot)
	}
	return out
}

// inspectTime is the maximum time that a page waits until the servers of an agent are found.
const inspectTime = 3 * time.Second

// inspect returns what "ambit inspect" shows. If a server cannot be found, there is a warning.
func (b backend) inspect(ctx context.Context, m *manifest.Manifest) (in console.Inspection) {
	var err error
	if b.o.Inspect != nil {
		ctx, cancel := context.WithTimeout(ctx, inspectTime)
		defer cancel()
		in, err = b.o.Inspect(ctx, m)
	}
	if a := m.Agent(); in.Resolved == nil {
		in = console.Inspection{Resolved: a, Facts: Facts(a, a.Reach()), Watch: Warnings(a)}
	}
	if err != nil {
		in.Watch = append(in.Watch, "the agent's servers cannot be found: "+err.Error())
	}
	return in
}

// withServerInfo returns a copy of a tool. The copy gets a missing description or input schema from the tool's server.
func withServerInfo(t *agent.Tool, proofs []toolserver.Proof) agent.Tool {
	out := *t
	on, _ := t.Binding.(agent.OnServer)
	for _, p := range proofs {
		var d struct {
			Description string         `json:"description"`
			InputSchema jsontext.Value `json:"inputSchema"`
		}
		if on.Alias != "" && p.Alias == on.Alias && json.Unmarshal(p.Tools[t.Name], &d) == nil {
			out.Description = cmp.Or(out.Description, d.Description)
			out.InputSchema = cmp.Or(out.InputSchema, string(d.InputSchema))
		}
	}
	return out
}

func (b backend) guardrailsOf(a *agent.Agent) (facts []console.Fact) {
	add := adder(&facts)
	r := guard.Merge(b.o.Operator, a.Guardrails)
	if r.MaxLength > 0 {
		add("Arguments", fmt.Sprintf("at most %d bytes", r.MaxLength))
	}
	deny := slices.Clone(r.Input.Deny)
	if r.Input.DenyDefaults {
		deny = append(deny, "the patterns that ship with ambit")
	}
	add("Denied", deny...)
	add("Redacted", r.Input.PII...)
	if len(r.Input.PII) > 0 && r.OnResult == agent.ResultRedact {
		add("Personal data", "redacted in arguments and in results")
	}
	if len(r.Schemas) > 0 {
		add("Results", "checked against a schema")
	}
	if r.OnLeak == agent.LeakBlock {
		add("Secrets", "results that contain a secret are withheld")
	} else {
		add("Secrets", "redacted in every result")
	}
	add("Injections", r.Injections())
	return facts
}

func (b backend) Call(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	v, trouble := b.fleet.enter(name, &identity.Principal{Admin: true, Kind: c.Attributes.AuthenticatedBy()})
	if trouble != nil {
		return call.Result{}, call.Refuse("act", call.ServerUnavailable, "%v", console.ErrNoAgent)
	}
	defer v.leave()
	return v.call(ctx, c)
}

func (b backend) Pages(
	ctx context.Context, name string, who *identity.Principal, session string, until time.Time,
) string {
	v, trouble := b.fleet.enter(name, consoleUser)
	if trouble != nil {
		return ""
	}
	defer v.leave()
	if pages, _ := uiOf(ctx, v.running); pages == nil || b.options.Tickets == nil {
		return ""
	}
	at, _ := b.frameAddress(name, who, session, until)
	return at
}

func (b backend) Why(ctx context.Context, name string, c *call.Call) (*console.Verdict, error) {
	e := b.fleet.current.Load().byName[name]
	if e == nil || e.agent() == nil || b.o.Why == nil {
		return nil, console.ErrNoAgent
	}
	return b.o.Why(ctx, e.Manifest, c)
}

func (b backend) Address(r *http.Request, name string) string {
	return b.base(r) + "/mcp/" + url.PathEscape(name)
}

func (b backend) KeyNames(ctx context.Context) (map[string]string, error) {
	keys, err := identity.NewAPIKeys(b.o.Store.Authority).List(ctx)
	names := map[string]string{}
	for _, k := range keys {
		if k.Name != "" && k.Principal == "" {
			names[identity.KeyPrincipal(k.ID)] = k.Name
		}
	}
	return names, err
}

func (b backend) SignIns(name string, who *identity.Principal) (all []console.SignIn) {
	v, trouble := b.fleet.enter(name, consoleUser)
	if trouble != nil || b.options.SignIns == nil {
		return nil
	}
	defer v.leave()
	a := v.entry.agent()
	for i := range a.Servers {
		t, ok := v.running.SignInTarget(a.Servers[i].Alias, who.Name)
		if !ok {
			continue
		}
		if byCaller, err := b.options.SignIns.ByCaller(t.Endpoint); err != nil || !byCaller {
			continue
		}
		state := "none"
		if found, ended := b.options.SignIns.Status(&t); ended != nil {
			state = "ended"
		} else if found {
			state = "in"
		}
		all = append(all, console.SignIn{Server: t.Server, State: state})
	}
	return all
}

func (b backend) Connect(
	r *http.Request, name, server string, who *identity.Principal, session string,
) (page string, err error) {
	person := &identity.Principal{Name: who.Name, Admin: true} // the console serves only administrators
	begun, trouble := b.beginSignIn(r.Context(), person, session, name, server, b.base(r)+console.AnswerPath, nil)
	if trouble != nil {
		return "", trouble.refusal()
	}
	return begun.Page, nil
}

func (b backend) ConnectWith(
	r *http.Request, name, server, key, session string,
) (page string, who *identity.Principal, err error) {
	p, trouble := b.holder(r.Context(), key)
	if trouble != nil {
		return "", nil, trouble.refusal()
	}
	begun, trouble := b.beginSignIn(r.Context(), p, session, name, server, b.base(r)+console.AnswerPath, nil)
	if trouble != nil {
		return "", nil, trouble.refusal()
	}
	return begun.Page, p, nil
}

func (b backend) Connected(
	ctx context.Context, who *identity.Principal, session string, answer url.Values,
) (name string, err error) {
	if b.options.SignIns == nil {
		return "", console.ErrNoAgent
	}
	g, err := b.options.SignIns.Complete(ctx, who.Name, session, answer)
	return g.Agent, err
}

func (b backend) SetSecret(name, ref, value string) error {
	e := b.fleet.current.Load().byName[name]
	if e == nil || e.agent() == nil {
		return console.ErrNoAgent
	}
	a := e.agent()
	for _, w := range credential.References(a) {
		if w.Ref != ref {
			continue
		}
		s, err := w.Secret(value, credential.ID(a))
		if err != nil {
			return err
		}
		return b.o.Vault.Set(name, ref, s)
	}
	return errors.New("the agent has no credential slot with this name")
}

// shownIntents is the maximum number of intents (queued calls) on the console's queue page.
const shownIntents = 100

func (b backend) Intents(ctx context.Context) ([]*dispatch.Intent, error) {
	if b.options.Intents == nil {
		return nil, nil
	}
	return b.options.Intents.List(ctx, dispatch.Filter{Limit: shownIntents})
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

func (b backend) SpentToday(ctx context.Context) (out []limit.Spent, err error) {
	err = b.o.Store.DB.Read(ctx, func(tx state.Tx) (err error) {
		out, err = limit.SpentToday(tx, time.Now())
		return err
	})
	return out, err
}

func (b backend) Standing(ctx context.Context, p *identity.Principal) error {
	return b.standing(ctx, p)
}

func (b backend) Changed(ctx context.Context) error { return b.o.Store.DB.Changed(ctx) }

// Mark returns a string that changes when the state of an agent, the waiting approvals, the journal or the queue
// changes.
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
			fmt.Fprintf(&text, "%s%s ", i.ID, i.State)
		}
	}
	return text.String()
}

// OpenConsole adds the console to the daemon. The console works until ctx is done or the daemon shuts down.
func (d *Daemon) OpenConsole(ctx context.Context, o *ConsoleOptions) error {
	ctx, stop := context.WithCancel(ctx)
	d.server.RegisterOnShutdown(stop)
	c, err := console.New(console.Options{
		Context: ctx, Backend: backend{d, o}, Approvals: d.options.Approvals, Journal: o.Store.Journal, SingleUse: o.Store.Authority,
		Keys: o.Store.Keys, Version: d.options.Version, Log: d.options.Log,
		Secure: d.options.Cert != "" || d.options.public != nil && d.options.public.Scheme == "https",
	})
	if err != nil {
		return err
	}
	d.console.Store(c)
	return nil
}

// ConsoleLink returns a link that signs a person in to the console as the principal p. The link works once. The session
// ends at the latest when the key or token of p becomes invalid. If the daemon has no console, the link is empty.
func (d *Daemon) ConsoleLink(base string, p *identity.Principal) string {
	c := d.console.Load()
	if c == nil {
		return ""
	}
	return strings.TrimSuffix(base, "/") + c.Link(p)
}

// maxLink is the maximum size of a link to the console. The cookie of the session is a little larger than the link, and
// browsers reject cookies larger than 4 KiB.
const maxLink = 3 << 10

func (d *Daemon) makeLink(r *http.Request) (any, *problem) {
	link := d.ConsoleLink(d.base(r), principalOf(r))
	if len(link) > maxLink {
		return nil, badRequest("your token has too many groups: the cookie of the console would be too large",
			"use a key of an administrator, or open the console on the daemon's machine with: ambit console")
	}
	if link == "" {
		return nil, failure("not_found", "this daemon does not serve a console", "")
	}
	return map[string]any{"url": link}, nil
}
