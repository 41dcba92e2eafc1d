package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

func newCatalog(t *terminal) *cobra.Command {
	verbs := []*cobra.Command{newCatalogList(t), newCatalogShow(t), newCatalogAdd(t), newCatalogRemove(t)}
	return group(&cobra.Command{Use: "catalog"}, verbs...)
}

// entryReport is the JSON document for a catalogue entry.
type entryReport struct {
	ID string `json:"id"`
	*catalog.Entry
}

func (t *terminal) catalogue() (*catalog.Catalog, error) {
	c, err := catalog.Open(t.home)
	if err != nil {
		return nil, no("fix or remove the file named in the message", "%w", err)
	}
	return c, nil
}

func newCatalogList(t *terminal) *cobra.Command {
	var host, search string
	cmd := verb("list", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		if host != "" {
			return t.searchRegistry(ctx, host, search)
		}
		c, err := t.catalogue()
		if err != nil {
			return err
		}
		reports := []entryReport{}
		for _, id := range c.IDs() {
			if strings.Contains(id, search) {
				reports = append(reports, entryReport{id, c.Entries[id]})
			}
		}
		return t.show(map[string]any{"servers": reports}, func() {
			t.table("", each(reports, func(r entryReport) []string {
				scopes := strings.Join(slices.Sorted(maps.Keys(r.Scopes)), ", ")
				return []string{t.paint(bold, diag.Printable(r.ID)), r.Version, scopes, diag.Printable(r.Description)}
			}))
		})
	})
	cmd.Flags().StringVar(&host, "registry", "", "list the registry at this `host` instead of the catalogue")
	cmd.Flags().StringVar(&search, "search", "", "list only servers with this `text` in their names")
	return cmd
}

// maxSearched limits a search in a registry. The search stops after the page that reaches this number of servers.
const maxSearched = 500

func (t *terminal) searchRegistry(ctx context.Context, host, text string) error {
	config, err := registry.ReadConfig(t.home)
	if err != nil {
		return no("fix the file named in the message", "%w", err)
	}
	list, err := registry.NewClient(t.home, config).Search(ctx, host, text, maxSearched)
	if err != nil {
		return registryFailure(err)
	}
	return t.show(map[string]any{"registry": host, "servers": list}, func() {
		t.table("", each(list, func(l registry.Listing) []string {
			id := diag.Printable(host + "/" + l.Name)
			return []string{t.paint(bold, id), diag.Printable(l.Version), diag.Printable(l.Description)}
		}))
	})
}

func registryFailure(err error) error {
	f := &failure{code: exitNo, err: err}
	if errors.Is(err, registry.ErrUnreachable) {
		f.code = exitMissing
		f.hint = "check the network connection; to list the catalogue without a network, run: ambit catalog list"
	}
	return f
}

func newCatalogShow(t *terminal) *cobra.Command {
	var constraint string
	cmd := verb("show ID", exactly(1, "the id of a server"), func(ctx context.Context, args []string) error {
		r, err := registry.NewResolver(t.home, nil)
		if err != nil {
			return no("fix the file named in the message", "%w", err)
		}
		id := args[0]
		if !strings.Contains(id, "/") {
			if id, err = completeID(r.Catalog, id); err != nil {
				return err
			}
		}
		f := r.One(ctx, &agent.Agent{}, "NAME", agent.Requirement{Server: id, Version: constraint})
		if f.Problem != nil && f.Recipe.Kind == "" {
			return registryFailure(fmt.Errorf("%s: %w", diag.Printable(id), f.Problem))
		}
		return t.showEntry(id, &f, r.Catalog.Entries[id])
	})
	cmd.Flags().StringVar(&constraint, "version", "*", "the version `constraint`, in npm's syntax")
	return cmd
}

func (t *terminal) showEntry(id string, f *registry.Found, e *catalog.Entry) error {
	doc := map[string]any{
		"id": id, "version": f.Version, "from": f.From, "package": f.Recipe, "scopes": map[string][]string{},
		"warnings": notNil(f.Warnings),
	}
	var facts, scopes [][]string
	facts = t.fact(facts, "from", f.From)
	facts = t.fact(facts, "package", strings.TrimSuffix(string(f.Recipe.Kind)+" "+f.Recipe.Name+"@"+f.Recipe.Version, "@"))
	facts = t.fact(facts, "digest", f.Recipe.Digest)
	if e != nil {
		doc["scopes"], doc["description"], doc["license"], doc["needs"] = e.Scopes, e.Description, e.License, e.Needs
		facts = t.fact(facts, "does", e.Description)
		facts = t.fact(facts, "license", e.License)
		facts = t.fact(facts, "needs", e.Needs)
		for _, scope := range slices.Sorted(maps.Keys(e.Scopes)) {
			scopes = append(scopes, []string{diag.Printable(scope), diag.Printable(strings.Join(e.Scopes[scope], ", "))})
		}
	}
	facts = t.fact(facts, "works in", f.Work)
	doc["tools"] = each(f.Tools, func(of agent.Tool) any {
		return map[string]any{"name": of.Name, "side_effect": of.SideEffect}
	})
	tools := each(f.Tools, func(of agent.Tool) []string {
		return []string{t.paint(classStyle(of.SideEffect), string(of.SideEffect)), diag.Printable(of.Name)}
	})
	if f.Problem != nil {
		doc["problem"] = f.Problem.Error()
	}
	if len(tools) == 0 {
		tools = [][]string{{"unknown until the server has been started"}}
	}
	return t.show(doc, func() {
		t.printf("%s  %s\n", t.paint(bold, diag.Printable(id)), diag.Printable(f.Version))
		t.table("  ", facts)
		t.section("Scopes", scopes)
		t.section("Tools", tools)
		if f.Problem != nil {
			t.warnf("%s", diag.Printable(f.Problem.Error()))
		}
	})
}

type addFlags struct {
	version, description, license string
	args, env, scopes, effects    []string
}

func newCatalogAdd(t *terminal) *cobra.Command {
	var f addFlags
	cmd := verb("add ID PACKAGE", exactly(2, "an id and a package"), func(ctx context.Context, args []string) error {
		return t.addEntry(ctx, args[0], args[1], f)
	})
	cmd.Flags().StringVar(&f.version, "version", "", "the server's `version` (default: the version of the package)")
	cmd.Flags().StringVar(&f.description, "description", "", "one `sentence` about what the server does")
	cmd.Flags().StringVar(&f.license, "license", "", "the server's `license`")
	cmd.Flags().StringArrayVar(&f.args, "arg", nil,
		"an `argument` of the program; ambit replaces {work} with the agent's work folder")
	cmd.Flags().StringArrayVar(&f.env, "env", nil,
		"an environment variable as `NAME=value`; ambit replaces $env:NAME with a credential")
	cmd.Flags().StringArrayVar(&f.scopes, "scope", nil, "the tools that a scope covers, as `SCOPE=tool,tool`")
	cmd.Flags().StringArrayVar(&f.effects, "effect", nil,
		"the side-effect class of a tool, as `TOOL=read|write|network|shell`")
	return cmd
}

func newCatalogRemove(t *terminal) *cobra.Command {
	return verb("rm ID", exactly(1, "the id of a server"), func(_ context.Context, args []string) error {
		before, err := t.catalogue()
		if err != nil {
			return err
		}
		id := args[0]
		removed, err := catalog.Remove(t.home, id)
		switch {
		case err != nil:
			return no("", "%w", err)
		case !removed && before.Entries[id] != nil:
			return no("to use your own server under this id, run: ambit catalog add ID PACKAGE",
				"%s is built into ambit and cannot be removed", diag.Printable(id))
		case !removed:
			return no("to list the servers, run: ambit catalog list", "there is no server %s in the catalogue", diag.Quote(id))
		}
		after, err := t.catalogue()
		if err != nil {
			return err
		}
		shipped := after.Entries[id]
		return t.show(map[string]any{"id": id, "removed": true, "shipped": shipped != nil}, func() {
			t.printf("removed %s from the catalogue\n", diag.Printable(id))
			if shipped != nil {
				t.printf("ambit uses its built-in entry again: %s %s\n", diag.Printable(shipped.Package.Name), shipped.Version)
			}
		})
	})
}

var (
	serverID   = regexp.MustCompile(`^[^/A-Z\s@\\]*\.[^/A-Z\s@\\]*/[^\s@\\]+$`)
	onePackage = regexp.MustCompile(`^(?:(npm):(.+)@([^@]+)|(pypi):(.+)==([^=]+))$`)
)

// entry returns the catalogue entry that the flags describe. The error lists all invalid flags and arguments.
func (f *addFlags) entry(id, spec string) (*catalog.Entry, error) {
	var problems []string
	if !serverID.MatchString(id) {
		problems = append(problems, diag.Quote(id)+" is not a server id: write HOST/NAME")
	}
	e := &catalog.Entry{
		Description: f.description, License: f.license, Args: f.args,
		Tools: map[string]agent.SideEffect{}, Scopes: map[string][]string{}, Env: map[string]string{},
	}
	if p := onePackage.FindStringSubmatch(spec); p != nil {
		e.Package = catalog.Package{Kind: p[1] + p[4], Name: p[2] + p[5], Version: p[3] + p[6]}
	} else {
		problems = append(problems,
			diag.Quote(spec)+" is not a package with an exact version: write npm:NAME@1.2.3 or pypi:NAME==1.2.3")
	}
	pairs := func(flag string, list []string, set func(name, value string)) {
		for _, text := range list {
			name, value, ok := strings.Cut(text, "=")
			if !ok || name == "" {
				problems = append(problems, "--"+flag+" "+diag.Quote(text)+" does not have the form NAME=VALUE")
				continue
			}
			set(name, value)
		}
	}
	pairs("env", f.env, func(name, value string) { e.Env[name] = value })
	pairs("scope", f.scopes, func(name, value string) { e.Scopes[name] = strings.Split(value, ",") })
	pairs("effect", f.effects, func(name, value string) { e.Tools[name] = agent.SideEffect(value) })
	e.Version = cmp.Or(f.version, e.Package.Version)
	if len(problems) > 0 {
		return nil, usage("see: ambit catalog add --help", "%s", strings.Join(problems, "; "))
	}
	return e, nil
}

// addEntry fetches a package, lists the tools of its server, and adds the server to the catalogue.
func (t *terminal) addEntry(ctx context.Context, id, spec string, f addFlags) error {
	e, err := f.entry(id, spec)
	if err != nil {
		return err
	}
	store := pack.Store{Dir: t.home.Packages()}
	ref := pack.Ref{Kind: pack.Kind(e.Package.Kind), Name: e.Package.Name, Version: e.Package.Version}
	show := t.progress()
	p, err := store.Fetch(ctx, ref, pack.Want{}, func(step string) { show(id, step) })
	if err != nil {
		return no(pack.HintOf(err), "%w", err)
	}
	e.Package.Digest = p.Digest
	definitions, err := t.discover(ctx, id, e)
	if err != nil {
		return err
	}
	classify(e, id, definitions)
	if err := catalog.Add(t.home, id, e); err != nil {
		return no("", "%w", err)
	}
	return t.say(entryReport{id, e}, "%s is in the catalogue: %s %s, %s\n",
		diag.Printable(id), e.Package.Name, e.Package.Version, count(len(e.Tools), "tool"))
}

// discover starts the server of a catalogue entry once. It returns the definitions of the server's tools by name.
func (t *terminal) discover(ctx context.Context, id string, e *catalog.Entry) (map[string][]byte, error) {
	h := t.home
	config, err := registry.ReadConfig(h)
	if err != nil {
		return nil, no("fix the file named in the message", "%w", err)
	}
	set := config.Servers[id]
	// No agent uses the server yet, so it gets temporary folders.
	folder, err := os.MkdirTemp("", "ambit-catalog-")
	if err != nil {
		return nil, missing("", "the folder of the server cannot be created: %w", err)
	}
	defer os.RemoveAll(folder)
	work := cmp.Or(set.Work, filepath.Join(folder, "work"))
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, missing("", "the work folder of the server cannot be created: %w", err)
	}
	server, err := registry.Server(id, registry.RecipeOf(e), set, work)
	if err != nil {
		return nil, no("", "%w", err)
	}
	one := &agent.Agent{ID: "catalog", Name: "catalog", Servers: []agent.Server{server}}
	o := toolserver.Options{
		Home: h, Lookup: (&credential.Source{Vault: credential.Open(h)}).Lookup(one), Version: version,
		Log: t.serverLog, Progress: t.progress(), Servers: []toolserver.Spec{{Server: server, Learn: true}},
	}
	if o.Confine = host.Confinement(h, "", one.Name, one.ID); o.Confine != nil {
		o.Confine.Files = func(string) string { return filepath.Join(folder, "home") }
		o.Confine.Access = func(s *agent.Server) agent.Access { // the classes of the tools are not known yet
			return one.Access(s).With(agent.Access{{Kind: agent.CanWrite, What: work}})
		}
	}
	m := toolserver.Start(ctx, one, o)
	defer m.Close()
	proof := m.Proofs()[0]
	if !proof.OK {
		return nil, asFailure(proof.Refusal)
	}
	return proof.Tools, nil
}

// classify sets the side-effect class of every tool that has no --effect flag. If no --scope is given, classify also
// assigns every tool to the scope "read" or "write".
func classify(e *catalog.Entry, id string, definitions map[string][]byte) {
	hasScopes := len(e.Scopes) > 0
	for _, tool := range registry.Tools(id, definitions, e) {
		e.Tools[tool.Name] = tool.SideEffect
		if hasScopes {
			continue
		}
		scope := "write"
		if tool.SideEffect == agent.Read || tool.SideEffect == agent.Network {
			scope = "read"
		}
		e.Scopes[scope] = append(e.Scopes[scope], tool.Name)
	}
}
