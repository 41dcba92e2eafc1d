package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

// grantFlags contains the flags of "ambit grant" and "ambit revoke". With --server, these verbs change the user's
// policy file. The rules in the policy file let an agent use a server's scopes. Without --server, the verbs change the
// grants in the store. The grants let a principal perform actions.
type grantFlags struct{ scope, expires, store, server string }

func (f *grantFlags) flags(cmd *cobra.Command, scope string) {
	cmd.Flags().Var((*joined)(&f.scope), "scope", scope)
	cmd.Flags().StringVar(&f.server, "server", "", "for a GPARS agent: the `server` that --scope belongs to: its id, or the last part of the id")
	sharedStoreFlag(cmd.Flags(), &f.store)
}

// joined is the value of a flag that can be repeated. It joins the values with commas.
type joined string

func (j *joined) String() string { return string(*j) }
func (j *joined) Type() string   { return "string" }

func (j *joined) Set(text string) error {
	*j = joined(strings.TrimPrefix(string(*j)+","+text, ","))
	return nil
}

// args checks the arguments. With --server, the only argument is an agent.
func (f *grantFlags) args(cmd *cobra.Command, args []string) error {
	switch {
	case f.server == "":
		return atLeast(2, "a principal and actions")(cmd, args)
	case f.scope == "":
		return usage("add --scope SCOPE; separate several scopes with commas", "--server needs --scope")
	}
	return exactly(1, "an agent, with --server and --scope")(cmd, args)
}

func newGrant(t *terminal) *cobra.Command {
	var f grantFlags
	cmd := verb("grant PRINCIPAL ACTION…", f.args, func(ctx context.Context, args []string) error {
		if f.server != "" {
			return t.grantScope(ctx, args[0], &f)
		}
		return t.grantActions(ctx, args[0], args[1:], &f)
	})
	f.flags(cmd, "limit the grant to the agent with this `id` (default: every agent)")
	cmd.Flags().StringVar(&f.expires, "expires", "",
		"when the grant expires: a `time` from now (30d, 1h) or a date (2027-01-31T00:00:00Z)")
	return cmd
}

func newRevoke(t *terminal) *cobra.Command {
	var f grantFlags
	cmd := verb("revoke PRINCIPAL ACTION…", f.args, func(ctx context.Context, args []string) error {
		if f.server != "" {
			return t.revokeScope(ctx, args[0], &f)
		}
		return t.revokeActions(ctx, args[0], args[1:], &f)
	})
	f.flags(cmd, "revoke only grants for the agent with this `id` (default: all grants)")
	return cmd
}

func newGrants(t *terminal) *cobra.Command {
	var store string
	var all bool
	cmd := verb("grants", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		return t.listGrants(ctx, store, all)
	})
	cmd.Flags().BoolVar(&all, "all", false, "also list expired and revoked grants")
	sharedStoreFlag(cmd.Flags(), &store)
	return cmd
}

func (t *terminal) grantActions(ctx context.Context, principal string, actions []string, f *grantFlags) error {
	if m := manifestOf(f.scope); m != nil {
		return usage("did you mean --scope "+diag.ShellWord(m.Agent().ID)+"?",
			"nothing was granted, because %s is a file and --scope takes the id of an agent", f.scope)
	}
	end, err := parseEnd(f.expires, time.Now())
	if err != nil {
		return err
	}
	asked := grant.Asked{Subject: principal, Actions: actions, Scope: f.scope, Expires: end}
	return t.asOwner(ctx, "only the owner may grant capabilities", f.store, func(b *store.Store) error {
		granted, err := grant.Of(b).Give(ctx, asked, identity.LocalName())
		if problems, ok := errors.AsType[grant.Problems](err); ok {
			return usage("write an action such as tool.web_search or memory.write", "nothing was granted: %w", problems)
		}
		if err != nil {
			return err
		}
		return t.show(map[string]any{"grants": grantDocuments(granted)}, func() {
			for _, g := range granted {
				t.printf("%s %s\n", t.paint(green, "granted:"), withExpiry(grantText(g, "to"), g.Expires))
			}
		})
	})
}

func (t *terminal) revokeActions(ctx context.Context, principal string, actions []string, f *grantFlags) error {
	return t.asOwner(ctx, "only the owner may revoke grants", f.store, func(b *store.Store) error {
		revoked, err := grant.Of(b).Revoke(ctx, principal, actions, f.scope, identity.LocalName())
		if absent, ok := errors.AsType[grant.NotHeld](err); ok {
			return no("to list the grants, run: ambit grants", "nothing was revoked, because %s does not hold %s",
				diag.Quote(principal), diag.Printable(strings.Join(absent, ", ")))
		}
		if err != nil {
			return err
		}
		return t.show(map[string]any{"revoked": grantDocuments(revoked)}, func() {
			for _, g := range revoked {
				t.printf("%s %s\n", t.paint(green, "revoked:"), diag.Printable(grantText(g, "from")))
			}
		})
	})
}

// asOwner returns an error if the user does not own the home; see checkOwner. Otherwise it opens the store and calls f.
func (t *terminal) asOwner(ctx context.Context, rule, store string, f func(*store.Store) error) error {
	if err := t.checkOwner(rule); err != nil {
		return err
	}
	b, err := t.sharedStore(ctx, store)
	if err != nil {
		return err
	}
	return errors.Join(f(b), b.Close())
}

// grantText describes a grant, but leaves out the expiry. The preposition is "to" or "from".
func grantText(g *grant.Grant, preposition string) string {
	s := g.Action + " " + preposition + " " + g.Subject
	if g.Scope != "" {
		s += " for " + g.Scope
	}
	return s
}

// withExpiry appends the expiry to the description of a grant.
func withExpiry(grant string, end time.Time) string {
	if !end.IsZero() {
		grant += " until " + moment(end)
	}
	return diag.Printable(grant)
}

func (t *terminal) listGrants(ctx context.Context, store string, all bool) error {
	var list []*grant.Grant
	if t.hasSharedStore(store) {
		b, err := t.sharedStore(ctx, store)
		if err != nil {
			return err
		}
		defer b.Close()
		if list, err = grant.Of(b).List(ctx); err != nil {
			return err
		}
	}
	now := time.Now()
	shown := slices.DeleteFunc(list, func(g *grant.Grant) bool {
		return !all && !g.Changed && g.State(now) != grant.Active
	})
	granted, err := t.scopesGranted()
	if err != nil {
		return err
	}
	scoped := scopesAsGrants(granted)
	return t.show(map[string]any{"grants": append(grantDocuments(shown), scopeDocuments(granted)...)}, func() {
		for i, g := range granted {
			t.printf("%s %s\n", scoped[i].State(now), scopeSentence(g))
		}
		if len(shown)+len(scoped) == 0 {
			t.notef("there are no grants; to add one, run: ambit grant PRINCIPAL ACTION, " +
				"or ambit grant AGENT --server ID --scope S")
		}
		colours := map[string]style{grant.Active: green, "changed": boldRed}
		t.table("", each(shown, func(g *grant.Grant) []string {
			state, end := g.State(now), "no end"
			if !g.Expires.IsZero() {
				end = "until " + moment(g.Expires)
			}
			return []string{
				t.paint(cmp.Or(colours[state], dim), state), diag.Printable(g.Subject), diag.Printable(g.Action),
				diag.Printable(cmp.Or(g.Scope, "every agent")), end, "by " + diag.Printable(g.GrantedBy),
			}
		}))
	})
}

// grantsFor returns the active grants for an agent. It does not create a store.
func (t *terminal) grantsFor(ctx context.Context, a *agent.Agent) ([]*grant.Grant, error) {
	if !t.hasSharedStore("") {
		return nil, nil
	}
	var list []*grant.Grant
	err := t.withSharedStore(ctx, "", func(b *store.Store) (err error) {
		list, err = grant.Of(b).List(ctx)
		return err
	})
	return daemon.GrantsFor(a, list), err
}

// grantDocument is the JSON document for a grant.
type grantDocument struct {
	Subject string `json:"subject"`
	// AgentID is the id of the agent. It is set only in a grant of a server's scope.
	AgentID   string  `json:"agent_id,omitempty"`
	Action    string  `json:"action"`
	Scope     string  `json:"scope"`
	GrantedBy string  `json:"granted_by"`
	GrantedAt string  `json:"granted_at"`
	ExpiresAt *string `json:"expires_at"`
	State     string  `json:"state"`
}

func grantDocuments(list []*grant.Grant) []grantDocument {
	return each(list, func(g *grant.Grant) grantDocument {
		d := grantDocument{
			Subject: g.Subject, Action: g.Action, Scope: g.Scope, GrantedBy: g.GrantedBy, ExpiresAt: expiry(g.Expires),
			State: g.State(time.Now()),
		}
		if at := expiry(g.Granted); at != nil { // for some scopes, the time of the grant is unknown
			d.GrantedAt = *at
		}
		return d
	})
}

// expiry formats a time for JSON. It returns nil for the zero time.
func expiry(at time.Time) *string {
	if at.IsZero() {
		return nil
	}
	return new(at.UTC().Format(time.RFC3339))
}

// scopeDocuments returns the JSON documents for granted server scopes.
func scopeDocuments(list []policy.Grant) []grantDocument {
	docs := grantDocuments(scopesAsGrants(list))
	for i := range docs {
		docs[i].AgentID = list[i].ID
	}
	return docs
}

// scopesAsGrants converts granted server scopes to the type grant.Grant, which grantDocuments can format.
func scopesAsGrants(list []policy.Grant) []*grant.Grant {
	return each(list, func(g policy.Grant) *grant.Grant {
		return &grant.Grant{
			Subject: g.Agent, Action: g.Server, Scope: g.Scope, GrantedBy: g.By, Granted: g.At, Expires: g.Expires,
		}
	})
}

func scopeSentence(g policy.Grant) string {
	return withExpiry(g.Scope+" on "+g.Server+" to "+g.Agent, g.Expires)
}

// scopeGrants returns a grant for each scope in --scope. Each grant belongs to the named agent.
func (f *grantFlags) scopeGrants(name string) ([]policy.Grant, error) {
	now := time.Now()
	end, problems := parseEnd(f.expires, now)
	if !end.IsZero() {
		end = end.UTC().Truncate(time.Second)
	}
	var all []policy.Grant
	for scope := range strings.SplitSeq(f.scope, ",") {
		if scope = strings.TrimSpace(scope); scope == "" {
			problems = errors.Join(problems, errors.New("--scope contains an empty name"))
		}
		all = append(all, policy.Grant{
			Agent: name, Server: f.server, Scope: scope,
			By: identity.LocalName(), At: now.UTC().Truncate(time.Second), Expires: end,
		})
	}
	if strings.ContainsAny(name, "\n\r") || name == "" {
		problems = errors.Join(problems, errors.New("the name of the agent is empty or has a line break"))
	}
	if problems != nil {
		return nil, usage("see: ambit grant --help", "%w", problems)
	}
	return all, nil
}

func (t *terminal) grantScope(ctx context.Context, name string, f *grantFlags) error {
	grants, err := f.scopeGrants(name)
	if err != nil {
		return err
	}
	if err := t.checkOwner("only the owner may grant capabilities"); err != nil {
		return err
	}
	if m := manifestOf(name); m != nil && installedAs(t.home, name) == "" {
		if meant := registeredName(t.home, m); meant != name {
			return usage("did you mean "+diag.ShellWord(meant)+"?",
				"nothing was granted, because %s is a file and a grant needs the name of an agent", name)
		}
	}
	a := t.agentNamed(name)
	if err := t.completeServer(a, f, grants); err != nil {
		return err
	}
	if err := checkRequested(a, name, grants); err != nil {
		return err
	}
	for i := range grants {
		if a != nil {
			grants[i].ID = a.ID
		}
	}
	fresh, file := false, t.home.Policy()
	err = t.editPolicy("granted", func(text []byte) (out []byte, err error) {
		if out, fresh, err = policy.Add(file, text, grants); err == nil && fresh {
			err = t.journalScopes(ctx, f.store, "grant", "was granted", grants)
		}
		return out, err
	})
	if err != nil {
		return err
	}
	doc := map[string]any{"grants": scopeDocuments(grants), "policy": file, "changed": fresh}
	return t.show(doc, func() {
		for _, g := range grants {
			t.printf("%s %s\n", t.paint(green, "granted:"), scopeSentence(g))
		}
		if !fresh {
			t.remarkf("nothing changed, because the grant already existed")
		}
		t.scopeNotes(grants)
	})
}

// grantCommand returns the command that grants an agent some scopes of a server.
func grantCommand(name, server string, scopes []string) string {
	return "ambit grant " + diag.ShellWord(name) + " --server " + diag.ShellWord(server) +
		" --scope " + diag.ShellWord(strings.Join(scopes, ","))
}

// completeServer replaces a shortened server id with the full id, both in --server and in the grants. The shortened id
// is the last part of the full id. If the agent is nil, its manifest is unknown and the full id comes from the
// catalogue.
func (t *terminal) completeServer(a *agent.Agent, f *grantFlags, grants []policy.Grant) (err error) {
	if a != nil {
		f.server = serverNamed(t.home, a, f.server)
	} else if known, openErr := catalog.Open(t.home); openErr == nil {
		if f.server, err = completeID(known, f.server); err != nil {
			return err
		}
	}
	for i := range grants {
		grants[i].Server = f.server
	}
	return nil
}

// agentNamed returns the installed agent with the given name, or the agent in the manifest file with that name. It
// returns nil if there is no such agent, or if its manifest is not valid.
func (t *terminal) agentNamed(name string) *agent.Agent {
	m := manifestOf(cmp.Or(installedAs(t.home, name), name))
	if m == nil {
		return nil
	}
	return m.Agent()
}

func (t *terminal) revokeScope(ctx context.Context, name string, f *grantFlags) error {
	grants, err := f.scopeGrants(name)
	if err != nil {
		return err
	}
	if err := t.checkOwner("only the owner may revoke grants"); err != nil {
		return err
	}
	if err := t.completeServer(t.agentNamed(name), f, grants); err != nil {
		return err
	}
	var removed []policy.Grant
	file := t.home.Policy()
	if _, statErr := os.Stat(file); statErr == nil {
		err = t.editPolicy("revoked", func(text []byte) (out []byte, err error) {
			out, removed, err = policy.Remove(file, text, grants)
			if err == nil && len(removed) < len(grants) {
				return text, nil // all of the scopes are revoked, or none
			}
			if err == nil {
				err = t.journalScopes(ctx, f.store, "revoke", "no longer has", removed)
			}
			return out, err
		})
	}
	if err != nil {
		return err
	}
	if len(removed) < len(grants) {
		return no("to list the grants, run: ambit grants", "nothing was revoked: %s does not have all of the scopes %s on %s",
			diag.Quote(name), diag.Quote(f.scope), diag.Quote(f.server))
	}
	return t.show(map[string]any{"revoked": scopeDocuments(removed), "policy": file}, func() {
		for _, g := range removed {
			g.Expires = time.Time{} // do not print the expiry of a revoked grant
			t.printf("%s %s\n", t.paint(green, "revoked:"), scopeSentence(g))
		}
	})
}

// editPolicy changes the user's policy file with the given function. Error messages contain the given word, which is
// "granted" or "revoked".
func (t *terminal) editPolicy(word string, edit func([]byte) ([]byte, error)) error {
	file := t.home.Policy()
	err := policy.Edit(file, edit)
	failed, ok := errors.AsType[*failure](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return failed
	case errors.Is(err, policy.ErrChanged):
		return no("edit "+file+" by hand", "nothing was %s: %w", word, err)
	}
	return no("fix the policy file first; to see its problems, run: ambit policy check", "nothing was %s: %w", word, err)
}

// manifestOf returns the valid manifest at a path, or nil. It is used to detect a path that was given instead of an id.
func manifestOf(file string) *manifest.Manifest {
	path, err := manifestIn(file)
	if err != nil {
		return nil
	}
	m, err := manifest.Load(path, manifest.Options{})
	if err != nil {
		return nil
	}
	return m
}

// scopeNotes prints the tools that each grant covers. It warns about grants that have no effect.
func (t *terminal) scopeNotes(grants []policy.Grant) {
	h, name := t.home, diag.Quote(grants[0].Agent)
	scopes, err := policy.ReadScopes(h.Config())
	catalogue, catalogueErr := catalog.Open(h)
	if err := cmp.Or(err, catalogueErr); err != nil {
		t.warnf("%v", err)
		return
	}
	for _, g := range grants {
		m := scopes.Map(catalogue, g.Server, g.Scope)
		if len(m.Tools) == 0 {
			t.warnf("the scope %s of %s does not cover any tools", diag.Quote(g.Scope), diag.Printable(g.Server))
			hint := fmt.Sprintf("add the scope to %s: [scopes.%q] %s = [TOOL, …]", h.Config(), g.Server, g.Scope)
			t.hintf("%s", cmp.Or(diag.DidYouMean(g.Scope, catalogue.ScopesOf(g.Server)), hint))
			continue
		}
		t.remarkf("the grant covers %s (%s)", diag.Printable(strings.Join(m.Tools, ", ")), m.From)
	}
	file := installedAs(h, grants[0].Agent)
	if file == "" {
		t.warnf("no agent named %s is installed yet", name)
		t.hintf("the grant applies to a manifest file with that name; " +
			"to install the agent, run: ambit install PATH --client cli")
		return
	}
	m, err := t.load(file, "")
	if err == nil && m.Dialect != agent.GPARS {
		t.warnf("the grant has no effect, because %s is a %s agent and only its manifest decides what it may call",
			name, m.Dialect)
	}
}

// checkRequested returns an error if the agent does not request the server or one of the scopes. A scope that the agent
// does not request has no effect, so a name is probably misspelt. The parameter a can be nil.
func checkRequested(a *agent.Agent, name string, grants []policy.Grant) error {
	if a == nil || a.Dialect != agent.GPARS {
		return nil
	}
	var servers, scopes []string
	for _, q := range a.Requirements {
		servers = append(servers, q.Server)
		if q.Server == grants[0].Server {
			scopes = append(scopes, q.Scopes...)
		}
	}
	refuse := func(what, unknown string, requested []string) error {
		hint := strings.TrimSpace(diag.DidYouMean(unknown, requested) +
			" the agent requests " + diag.Printable(cmp.Or(diag.Words(requested, "and"), "none")))
		return no(hint, "nothing was granted, because %s does not request the %s %s",
			diag.Quote(name), what, diag.Quote(unknown))
	}
	if !slices.Contains(servers, grants[0].Server) {
		return refuse("server", grants[0].Server, servers)
	}
	for _, g := range grants {
		if !slices.Contains(scopes, g.Scope) {
			return refuse("scope", g.Scope, scopes)
		}
	}
	return nil
}

// journalScopes records changed grants in the journal. It must be called before the policy file is changed. If
// journalScopes fails, the policy file must stay unchanged.
func (t *terminal) journalScopes(ctx context.Context, store, verb, what string, list []policy.Grant) error {
	b, err := t.sharedStore(ctx, store)
	if err != nil {
		return err
	}
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		for _, g := range list {
			detail := fmt.Sprintf("%s %s the scope %s on %s", g.Agent, what, g.Scope, g.Server)
			if verb == "grant" {
				detail += untilUTC(g.Expires)
			}
			_, err := b.Journal.Append(tx, &journal.Record{
				Call: rand.Text(), Agent: g.Agent, Principal: identity.LocalName(), Tool: verb,
				Decision: journal.Allow, Stage: "grant", Detail: detail,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, b.Close()); err != nil {
		return missing("", "nothing was changed, because the change could not be written to the journal: %w", err)
	}
	return nil
}

// scopesGranted returns the server scopes that the user's policy file grants. They are sorted by agent, server and
// scope.
func (t *terminal) scopesGranted() ([]policy.Grant, error) {
	file := t.home.Policy()
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(file, err)
	}
	rules, err := policy.Parse(file, text)
	if err != nil {
		return nil, no("fix the policy file; to see its problems, run: ambit policy check", "%w", err)
	}
	all := rules.Grants()
	slices.SortStableFunc(all, func(a, b policy.Grant) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Scope, b.Scope))
	})
	return all, nil
}
