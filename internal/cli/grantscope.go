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
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

// ambit grant has two forms. With --server it grants a scope of a server to an agent, as a
// rule in the user's policy. Without, it grants a capability to a principal, in the store.

// onServer adds --server to a verb that grants or revokes.
func (t *terminal) onServer(cmd *cobra.Command, f *grantFlags, do func(t *terminal, ctx context.Context, agent string, f *grantFlags) error) {
	cmd.Flags().StringVar(&f.server, "server", "", "the `id` of the server whose --scope is meant, for a GPARS agent")
	args, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, names []string) error {
		if f.server == "" {
			return args(cmd, names)
		}
		if f.scope == "" {
			return usage("name it with --scope, several separated by commas", "--server needs a scope")
		}
		return exactly(1, "an agent, with --server and --scope")(cmd, names)
	}
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if f.server == "" {
			return run(cmd, names)
		}
		return do(t, cmd.Context(), names[0], f)
	}
}

// scopeGrants returns a grant for each scope that the flags name.
func (t *terminal) scopeGrants(name string, f *grantFlags) ([]policy.Grant, error) {
	var problems []error
	end, err := parseEnd(f.expires, time.Now())
	if err != nil {
		problems = append(problems, err)
	}
	if !end.IsZero() {
		end = end.UTC().Truncate(time.Second)
	}
	var all []policy.Grant
	for scope := range strings.SplitSeq(f.scope, ",") {
		if scope = strings.TrimSpace(scope); scope == "" {
			problems = append(problems, errors.New("--scope contains an empty name"))
		}
		all = append(all, policy.Grant{
			Agent: name, Server: f.server, Scope: scope, By: identity.LocalName(), At: time.Now().UTC().Truncate(time.Second), Expires: end,
		})
	}
	if strings.ContainsAny(name, "\n\r") || name == "" {
		problems = append(problems, errors.New("the name of the agent is empty or has a line break"))
	}
	if len(problems) > 0 {
		return nil, usage("see: ambit grant --help", "%w", errors.Join(problems...))
	}
	return all, nil
}

func (t *terminal) grantScope(ctx context.Context, name string, f *grantFlags) error {
	grants, err := t.scopeGrants(name, f)
	if err != nil {
		return err
	}
	h := t.home
	if err := t.checkOwner("only the owner may grant"); err != nil {
		return err
	}
	if m := manifestOf(name); m != nil && installedAs(h, name) == "" {
		if meant := registered(h, m); meant != name {
			return usage("did you mean "+diag.ShellWord(meant)+"?", "nothing was granted: %s is a file, and a grant is for the name of an agent", name)
		}
	}
	fresh := false
	err = policy.Edit(h.Policy(), func(text []byte) (out []byte, err error) {
		if out, fresh, err = policy.Add(h.Policy(), text, grants); err == nil && fresh {
			err = t.journalScopes(ctx, f.store, "grant", "was granted", grants)
		}
		return out, err
	})
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if err != nil {
		return no("fix the policy first: ambit policy check", "nothing was granted: %w", err)
	}
	return t.show(map[string]any{"grants": scopeDocuments(grants), "policy": h.Policy(), "changed": fresh}, func() {
		for _, g := range grants {
			t.printf("%s %s\n", t.paint(green, "granted:"), scopeSentence(g))
		}
		if !fresh {
			t.remarkf("it was already granted")
		}
		t.scopeNotes(h, grants)
	})
}

// manifestOf reads a file that was named in place of an id; nil if it is not a manifest.
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

// scopeNotes prints the tools that a grant covers, and warns if it has no effect.
func (t *terminal) scopeNotes(h home.Home, grants []policy.Grant) {
	scopes, err := policy.ReadScopes(h.Config())
	if err != nil {
		t.warnf("%v", err)
		return
	}
	catalogue, err := catalog.Open(h)
	if err != nil {
		t.warnf("%v", err)
		return
	}
	for _, g := range grants {
		m := scopes.Map(catalogue, g.Server, g.Scope)
		if len(m.Tools) == 0 {
			t.warnf("the scope %s of %s covers no tool", diag.Quote(g.Scope), diag.Printable(g.Server))
			hint := fmt.Sprintf("map it in %s: [scopes.%q] %s = [TOOL, …]", h.Config(), g.Server, g.Scope)
			t.hintf("%s", cmp.Or(diag.DidYouMean(g.Scope, catalogue.ScopesOf(g.Server)), hint))
			continue
		}
		t.notef("%s", t.paint(dim, fmt.Sprintf("it covers %s (%s)", diag.Printable(strings.Join(m.Tools, ", ")), m.From)))
	}
	file := installedAs(h, grants[0].Agent)
	if file == "" {
		t.warnf("no agent is registered as %s yet", diag.Quote(grants[0].Agent))
		t.hintf("the grant applies to a manifest file of that name; to install the agent: ambit install PATH")
		return
	}
	m, err := t.load(file, "")
	switch {
	case err != nil:
	case m.Dialect != agent.GPARS:
		t.warnf("the grant has no effect: %s is a %s agent, and its manifest alone permits its calls",
			diag.Quote(grants[0].Agent), m.Dialect)
	default:
		t.unasked(m.Agent(), grants)
	}
}

// unasked warns of grants that the agent does not ask for: after a typo, the intended scope
// stays refused.
func (t *terminal) unasked(a *agent.Agent, grants []policy.Grant) {
	var servers, scopes []string
	for _, q := range a.Requirements {
		servers = append(servers, q.Server)
		if q.Server == grants[0].Server {
			scopes = append(scopes, q.Scopes...)
		}
	}
	warn := func(what, name string, asked []string) {
		if slices.Contains(asked, name) {
			return
		}
		t.warnf("%s asks for no %s %s", diag.Quote(grants[0].Agent), what, diag.Quote(name))
		t.hintf("it asks for %s", diag.Printable(cmp.Or(diag.Words(asked, "and"), "none")))
	}
	if !slices.Contains(servers, grants[0].Server) {
		warn("server", grants[0].Server, servers)
		return
	}
	for _, g := range grants {
		warn("scope", g.Scope, scopes)
	}
}

func (t *terminal) revokeScope(ctx context.Context, name string, f *grantFlags) error {
	grants, err := t.scopeGrants(name, f)
	if err != nil {
		return err
	}
	h := t.home
	if err := t.checkOwner("only the owner may revoke"); err != nil {
		return err
	}
	var removed []policy.Grant
	if _, statErr := os.Stat(h.Policy()); statErr == nil {
		err = policy.Edit(h.Policy(), func(text []byte) (out []byte, err error) {
			out, removed, err = policy.Remove(h.Policy(), text, grants)
			if err == nil && len(removed) < len(grants) {
				return text, nil // all of them or none
			}
			if err == nil {
				err = t.journalScopes(ctx, f.store, "revoke", "was deprived of", removed)
			}
			return out, err
		})
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	switch {
	case errors.Is(err, policy.ErrChanged):
		return no("change "+h.Policy()+" by hand", "nothing was revoked: %w", err)
	case err != nil:
		return no("fix the policy first: ambit policy check", "nothing was revoked: %w", err)
	case len(removed) < len(grants):
		return no("see what is granted: ambit grants", "nothing was revoked: %s was not granted all of %s on %s", diag.Quote(name), diag.Quote(f.scope), diag.Quote(f.server))
	}
	return t.show(map[string]any{"revoked": scopeDocuments(removed), "policy": h.Policy()}, func() {
		for _, g := range removed {
			g.Expires = time.Time{} // it has ended
			t.printf("%s %s\n", t.paint(green, "revoked:"), scopeSentence(g))
		}
	})
}

// journalScopes records a change of grants before the policy changes: a change that cannot
// be journaled is not made.
func (t *terminal) journalScopes(ctx context.Context, store, verb, what string, list []policy.Grant) error {
	b, err := t.openStore(ctx, store)
	if err != nil {
		return err
	}
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		for _, g := range list {
			detail := fmt.Sprintf("%s %s the scope %s on %s", g.Agent, what, g.Scope, g.Server)
			if verb == "grant" && !g.Expires.IsZero() {
				detail += " until " + g.Expires.UTC().Format(time.RFC3339)
			}
			_, err := b.Journal.Append(tx, &journal.Record{
				Call: rand.Text(), Agent: g.Agent, Principal: identity.LocalName(), Tool: verb, Decision: journal.Allow, Stage: "grant", Detail: detail,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, b.Close()); err != nil {
		return missing("", "nothing was changed, because the change cannot be journaled: %w", err)
	}
	return nil
}

// scopesGranted returns the grants in the user's policy.
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
		return nil, no("fix it: ambit policy check", "%w", err)
	}
	all := rules.Grants()
	slices.SortStableFunc(all, func(a, b policy.Grant) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Scope, b.Scope))
	})
	return all, nil
}

func scopeDocuments(list []policy.Grant) []grantDocument {
	docs := make([]grantDocument, len(list))
	for i, g := range list {
		docs[i] = grantDocument{
			Subject: g.Agent, Action: g.Server, Scope: g.Scope, GrantedBy: g.By, State: scopeState(g), ExpiresAt: expiry(g.Expires),
		}
		if !g.At.IsZero() {
			docs[i].GrantedAt = g.At.UTC().Format(time.RFC3339)
		}
	}
	return docs
}

func scopeState(g policy.Grant) string {
	if !g.Expires.IsZero() && !time.Now().Before(g.Expires) {
		return "expired"
	}
	return "active"
}

func scopeSentence(g policy.Grant) string {
	s := g.Scope + " on " + g.Server + " to " + g.Agent
	if !g.Expires.IsZero() {
		s += " until " + moment(g.Expires)
	}
	return diag.Printable(s)
}
