package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

func newCatalog(t *terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "catalog",
		GroupID: groupInstall,
		Short:   "Show and extend the tool servers that are known by their ids",
		Long: "Show and extend the catalogue: the tool servers that GPARS manifests can require by id without a registry\n" +
			"being asked. Each entry is one exact package with its sha256, its tools, and what each scope covers.",
		Example: "  ambit catalog list\n  ambit catalog show registry.openmcp.org/filesystem",
	}
	return group(cmd, newCatalogList(t), newCatalogShow(t), newCatalogAdd(t), newCatalogRemove(t))
}

// entryReport is an entry in the output of --json.
type entryReport struct {
	ID string `json:"id"`
	*catalog.Entry
}

func (t *terminal) catalogue() (*catalog.Catalog, home.Home, error) {
	h := t.home
	c, err := catalog.Open(h)
	if err != nil {
		return nil, h, no("fix or remove the file", "%w", err)
	}
	return c, h, nil
}

func newCatalogList(t *terminal) *cobra.Command {
	var host, search string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the servers",
		Long:    "List the servers of the catalogue, or with --registry those that a registry has.",
		Example: "  ambit catalog list\n  ambit catalog list --registry registry.modelcontextprotocol.io --search filesystem",
		Args:    exactly(0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, h, err := t.catalogue()
			if err != nil {
				return err
			}
			if host != "" {
				return t.searchRegistry(cmd.Context(), h, host, search)
			}
			reports := []entryReport{}
			for _, id := range c.IDs() {
				if strings.Contains(id, search) {
					reports = append(reports, entryReport{id, c.Entries[id]})
				}
			}
			return t.show(map[string]any{"servers": reports}, func() {
				rows := make([][]string, len(reports))
				for i, r := range reports {
					rows[i] = []string{t.paint(bold, diag.Printable(r.ID)), r.Version, strings.Join(slices.Sorted(maps.Keys(r.Scopes)), ", "), diag.Printable(r.Description)}
				}
				t.table("", rows)
			})
		},
	}
	cmd.Flags().StringVar(&host, "registry", "", "ask the registry of this `host` instead")
	cmd.Flags().StringVar(&search, "search", "", "only servers whose names hold this `text`")
	return cmd
}

// maxSearched bounds how many servers of a registry are listed.
const maxSearched = 500

func (t *terminal) searchRegistry(ctx context.Context, h home.Home, host, text string) error {
	config, err := registry.ReadConfig(h)
	if err != nil {
		return no("fix the file", "%w", err)
	}
	list, err := registry.NewClient(h, config).Search(ctx, host, text, maxSearched)
	if err != nil {
		return registryFailure(err)
	}
	return t.show(map[string]any{"registry": host, "servers": list}, func() {
		rows := make([][]string, len(list))
		for i, l := range list {
			rows[i] = []string{t.paint(bold, diag.Printable(host+"/"+l.Name)), diag.Printable(l.Version), diag.Printable(l.Description)}
		}
		t.table("", rows)
	})
}

func registryFailure(err error) error {
	f := &failure{code: exitNo, err: err}
	if errors.Is(err, registry.ErrUnreachable) {
		f.code, f.hint = exitMissing, "check the connection; the catalogue needs none: ambit catalog list"
	}
	return f
}

func newCatalogShow(t *terminal) *cobra.Command {
	var constraint string
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show what an id is resolved to",
		Long:    "Show what a server id is resolved to: the version, the package, its tools with their side-effect classes and\nthe scopes that cover them. An id that the catalogue does not have is looked up in its registry.",
		Example: "  ambit catalog show registry.openmcp.org/git\n  ambit catalog show registry.modelcontextprotocol.io/io.github.example/weather --version '^1.2'",
		Args:    exactly(1, "the id of a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			h := t.home
			r, err := registry.NewResolver(h, nil)
			if err != nil {
				return no("fix the file that the message names", "%w", err)
			}
			f := r.One(cmd.Context(), &agent.Agent{}, "NAME", agent.Requirement{Server: args[0], Version: constraint})
			if f.Problem != nil && f.Recipe.Kind == "" {
				return registryFailure(fmt.Errorf("%s: %w", diag.Printable(args[0]), f.Problem))
			}
			return t.showEntry(args[0], &f, r.Catalog.Entries[args[0]])
		},
	}
	cmd.Flags().StringVar(&constraint, "version", "*", "the version `constraint`, as npm writes it")
	return cmd
}

// showEntry prints one server.
func (t *terminal) showEntry(id string, f *registry.Found, e *catalog.Entry) error {
	if t.json {
		doc := map[string]any{"id": id, "version": f.Version, "from": f.From, "package": f.Recipe, "tools": []any{}, "scopes": map[string][]string{}, "warnings": append([]string{}, f.Warnings...)}
		var tools []any
		for i := range f.Tools {
			tools = append(tools, map[string]any{"name": f.Tools[i].Name, "side_effect": f.Tools[i].SideEffect})
		}
		if tools != nil {
			doc["tools"] = tools
		}
		if e != nil {
			doc["scopes"], doc["description"], doc["license"], doc["needs"] = e.Scopes, e.Description, e.License, e.Needs
		}
		if f.Problem != nil {
			doc["problem"] = f.Problem.Error()
		}
		return t.document(doc)
	}
	t.printf("%s  %s\n", t.paint(bold, diag.Printable(id)), diag.Printable(f.Version))
	rows := [][]string{{t.paint(dim, "from"), f.From}, {t.paint(dim, "package"), diag.Printable(strings.TrimSuffix(string(f.Recipe.Kind)+" "+f.Recipe.Name+"@"+f.Recipe.Version, "@"))}}
	if f.Recipe.Digest != "" {
		rows = append(rows, []string{t.paint(dim, "digest"), f.Recipe.Digest})
	}
	if e != nil {
		rows = append(rows, []string{t.paint(dim, "does"), diag.Printable(e.Description)}, []string{t.paint(dim, "license"), diag.Printable(e.License)})
		if e.Needs != "" {
			rows = append(rows, []string{t.paint(dim, "needs"), diag.Printable(e.Needs)})
		}
	}
	if f.Work != "" {
		rows = append(rows, []string{t.paint(dim, "works in"), diag.Printable(f.Work)})
	}
	t.table("  ", rows)
	if e != nil {
		t.printf("\n%s\n", t.paint(bold, "Scopes"))
		rows = nil
		for _, scope := range slices.Sorted(maps.Keys(e.Scopes)) {
			rows = append(rows, []string{diag.Printable(scope), diag.Printable(strings.Join(e.Scopes[scope], ", "))})
		}
		t.table("  ", t.hang(rows))
	}
	t.printf("\n%s\n", t.paint(bold, "Tools"))
	if len(f.Tools) == 0 {
		t.printf("  not known until it has been started\n")
	}
	rows = nil
	for i := range f.Tools {
		rows = append(rows, []string{t.paint(classStyle(f.Tools[i].SideEffect), string(f.Tools[i].SideEffect)), diag.Printable(f.Tools[i].Name)})
	}
	t.table("  ", rows)
	if f.Problem != nil {
		t.warnf("%s", diag.Printable(f.Problem.Error()))
	}
	return nil
}

// adding are the flags of catalog add.
type addFlags struct {
	version, description, license string
	args, env, scopes, effects    []string
}

func newCatalogAdd(t *terminal) *cobra.Command {
	var f addFlags
	cmd := &cobra.Command{
		Use:   "add ID PACKAGE",
		Short: "Add a server of your own",
		Long: "Add a server to the catalogue of this home, or replace one: fetch the package, hash it, start it once to see\n" +
			"its tools, and write the entry. A tool's side-effect class is what its annotations come to, unless --effect\n" +
			"says otherwise. Without --scope, the scope read covers what only reads, and write the rest.",
		Example: "  ambit catalog add registry.openmcp.org/time npm:@example/time-server@1.2.0\n" +
			"  ambit catalog add example.com/notes pypi:notes-server==2.0.1 --arg '{work}' --scope read=list,get",
		Args: exactly(2, "an id and a package"),
		RunE: func(cmd *cobra.Command, args []string) error { return t.addEntry(cmd.Context(), args[0], args[1], f) },
	}
	cmd.Flags().StringVar(&f.version, "version", "", "the server's `version`; without it, the package's")
	cmd.Flags().StringVar(&f.description, "description", "", "what it does, in a `sentence`")
	cmd.Flags().StringVar(&f.license, "license", "", "its `license`")
	cmd.Flags().StringArrayVar(&f.args, "arg", nil, "an `argument` of the program; {work} stands for the agent's work folder")
	cmd.Flags().StringArrayVar(&f.env, "env", nil, "a variable as `NAME=value`; $env:NAME stands for a credential")
	cmd.Flags().StringArrayVar(&f.scopes, "scope", nil, "what a scope covers, as `SCOPE=tool,tool`")
	cmd.Flags().StringArrayVar(&f.effects, "effect", nil, "the class of a tool, as `TOOL=read|write|network|shell`")
	return cmd
}

func newCatalogRemove(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID",
		Short:   "Take a server of your own out again",
		Long:    "Remove a server from the catalogue of this home. An entry that ships with ambit stays, and applies again if yours\nreplaced it. Locks stay as they are.",
		Example: "  ambit catalog rm registry.openmcp.org/time",
		Args:    exactly(1, "the id of a server"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, h, err := t.catalogue()
			if err != nil {
				return err
			}
			id := args[0]
			removed, err := catalog.Remove(h, id)
			switch {
			case err != nil:
				return no("", "%w", err)
			case !removed && c.Entries[id] != nil:
				return no("a server of yours under the same id would count in its place: ambit catalog add", "%s is one that ambit brings", diag.Printable(id))
			case !removed:
				return no("see what there is: ambit catalog list", "there is no server %s in the catalogue", diag.Quote(id))
			}
			if c, err = catalog.Open(h); err != nil {
				return no("fix the file", "%w", err)
			}
			own := c.Entries[id]
			return t.show(map[string]any{"id": id, "removed": true, "shipped": own != nil}, func() {
				if t.printf("%s is out of the catalogue\n", diag.Printable(id)); own != nil {
					t.printf("the one that ambit brings counts again: %s %s\n", diag.Printable(own.Package.Name), own.Version)
				}
			})
		},
	}
}

// entry reads the flags and reports every problem at once.
func (f *addFlags) entry(id, spec string) (*catalog.Entry, error) {
	var problems []string
	if host, rest, ok := strings.Cut(id, "/"); !ok || !strings.Contains(host, ".") || rest == "" || strings.ContainsAny(id, " \t@\\") || strings.ToLower(host) != host {
		problems = append(problems, fmt.Sprintf("%s is not the id of a server: write HOST/NAME", diag.Quote(id)))
	}
	e := &catalog.Entry{Description: f.description, License: f.license, Args: f.args, Tools: map[string]agent.SideEffect{}, Scopes: map[string][]string{}}
	kind, rest, _ := strings.Cut(spec, ":")
	separator := "@"
	if kind == catalog.PyPI {
		separator = "=="
	}
	at := strings.LastIndex(rest, separator)
	if kind != catalog.NPM && kind != catalog.PyPI || at <= 0 || at+len(separator) == len(rest) {
		problems = append(problems, fmt.Sprintf("%s is not a package at one version: write npm:NAME@1.2.3 or pypi:NAME==1.2.3", diag.Quote(spec)))
	} else {
		e.Package = catalog.Package{Kind: kind, Name: rest[:at], Version: rest[at+len(separator):]}
	}
	pairs := func(flag string, list []string, take func(name, value string)) {
		for _, text := range list {
			name, value, ok := strings.Cut(text, "=")
			if !ok || name == "" {
				problems = append(problems, fmt.Sprintf("--%s %s has no name and value with = between them", flag, diag.Quote(text)))
				continue
			}
			take(name, value)
		}
	}
	pairs("env", f.env, func(name, value string) {
		if e.Env == nil {
			e.Env = map[string]string{}
		}
		e.Env[name] = value
	})
	pairs("scope", f.scopes, func(name, value string) { e.Scopes[name] = strings.Split(value, ",") })
	pairs("effect", f.effects, func(name, value string) { e.Tools[name] = agent.SideEffect(value) })
	e.Version = f.version
	if e.Version == "" {
		e.Version = e.Package.Version
	}
	if len(problems) > 0 {
		return nil, usage("see: ambit catalog add --help", "%s", strings.Join(problems, "; "))
	}
	return e, nil
}

// addEntry pins the package, sees what it offers and writes the entry.
func (t *terminal) addEntry(ctx context.Context, id, spec string, f addFlags) error {
	e, err := f.entry(id, spec)
	if err != nil {
		return err
	}
	h := t.home
	store := pack.Store{Dir: h.Packages()}
	ref := pack.Ref{Kind: pack.Kind(e.Package.Kind), Name: e.Package.Name, Version: e.Package.Version}
	show := t.progress()
	p, err := store.Fetch(ctx, ref, pack.Want{}, func(step string) { show(id, step) })
	if err != nil {
		return no(pack.HintOf(err), "%w", err)
	}
	e.Package.Digest = p.Digest
	definitions, err := t.discover(ctx, h, id, e)
	if err != nil {
		return err
	}
	classify(e, id, definitions)
	if err := catalog.Add(h, id, e); err != nil {
		return no("", "%w", err)
	}
	return t.say(entryReport{id, e}, "%s is in the catalogue: %s %s, %s\n", diag.Printable(id), e.Package.Name, e.Package.Version, count(len(e.Tools), "tool"))
}

// discover starts the server of an entry once and gives its definitions.
func (t *terminal) discover(ctx context.Context, h home.Home, id string, e *catalog.Entry) (map[string][]byte, error) {
	config, err := registry.ReadConfig(h)
	if err != nil {
		return nil, no("fix the file", "%w", err)
	}
	set := config.Servers[id]
	work := set.Work
	if work == "" {
		// No agent uses the server yet, so there is no work folder of an agent.
		if work, err = os.MkdirTemp("", "ambit-catalog-"); err == nil {
			defer os.RemoveAll(work)
		}
	} else {
		err = os.MkdirAll(work, 0o700)
	}
	if err != nil {
		return nil, &failure{code: exitMissing, err: fmt.Errorf("the server has no work folder: %w", err)}
	}
	server, err := registry.Server(id, registry.RecipeOf(e), set, work)
	if err != nil {
		return nil, no("", "%w", err)
	}
	one := &agent.Agent{ID: "catalog", Name: "catalog", Servers: []agent.Server{server}}
	m := toolserver.Start(ctx, one, toolserver.Options{
		Home: h, Lookup: (&credential.Source{Vault: credential.Open(h)}).Lookup(one), Version: version,
		Log: t.serverLog, Progress: t.progress(), Servers: []toolserver.Spec{{Server: server, Learn: true}},
	})
	defer m.Close()
	proof := m.Proofs()[0]
	if !proof.OK {
		return nil, asFailure(proof.Refusal)
	}
	return proof.Tools, nil
}

// classify fills in the classes and scopes that the flags leave open.
func classify(e *catalog.Entry, id string, definitions map[string][]byte) {
	said := len(e.Scopes) > 0
	for _, tool := range registry.Tools(id, definitions, e) {
		e.Tools[tool.Name] = tool.SideEffect
		if said {
			continue
		}
		scope := "write"
		if tool.SideEffect == agent.Read || tool.SideEffect == agent.Network {
			scope = "read"
		}
		e.Scopes[scope] = append(e.Scopes[scope], tool.Name)
	}
}
